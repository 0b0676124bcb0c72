package natslease

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/internal/jetstream"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Times of consumers.
const (
	// openSoon bounds the first requests for a consumer. While the servers elect a leader they have no answer, and
	// what the library allows, 5 s, would only make relays later than the election does.
	openSoon = time.Second

	// openLate bounds later requests: a store whose elections are over, and that does not answer within openSoon, is
	// slow.
	openLate = 5 * time.Second

	// openAttempts is how many requests are the first ones. With the pauses between them they take as long as an
	// election.
	openAttempts = 8

	// consumerIdle is how long a server keeps a consumer that is not read from: one that its relay could not delete,
	// because the relay or the connection ended. A server lets a stream have 1,000 consumers. Arbitrary.
	consumerIdle = 30 * time.Second
)

// openTimeout returns how long a request for a consumer may take after so many that had no answer.
func openTimeout(unanswered int) time.Duration {
	if unanswered < openAttempts {
		return openSoon
	}
	return openLate
}

// An opener makes consumers of a stream that read in order, one after the other. A request that has no answer is
// repeated as it was, so that it finds the consumer that a slow server made meanwhile.
type opener struct {
	l          *Leases
	g          int    // number of the stream
	name       string // prefix of the name in the request that had no answer; empty if the last one had one
	unanswered int    // requests since the last answer
}

// open makes a consumer. The caller ends it with end.
func (o *opener) open(ctx context.Context, cfg natsjs.OrderedConsumerConfig) (c natsjs.Consumer, end func(), err error) {
	if o.name == "" {
		o.name = rand.Text()
	}
	cfg.NamePrefix, cfg.InactiveThreshold, cfg.MaxResetAttempts = o.name, consumerIdle, 1
	ctx, cancel := context.WithTimeout(ctx, openTimeout(o.unanswered))
	defer cancel()
	c, err = o.l.streams[o.g].OrderedConsumer(ctx, cfg)
	if errors.Is(err, context.DeadlineExceeded) {
		o.unanswered++
		return nil, nil, err
	}
	o.name, o.unanswered = "", 0
	if err != nil {
		return nil, nil, err
	}
	return c, func() { o.l.deleteConsumer(c) }, nil
}

// deleteConsumer deletes a consumer that is not needed any longer. Otherwise the consumers of many loads would leave
// no room for others in their stream.
func (l *Leases) deleteConsumer(c natsjs.Consumer) {
	info := c.CachedInfo()                                           // of the consumer that the library made last
	_ = jetstream.DeleteConsumer(l.cfg.Conn, info.Stream, info.Name) // otherwise the server deletes it after consumerIdle
}
