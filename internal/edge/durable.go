package edge

import (
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Durable is what sessions need to outlive their edge; see sessionlog/DESIGN.md.
type Durable struct {
	// Log stores the logs of all sessions, in so many log Shards. Secret makes the names
	// of the logs. All edges of a deployment must have the same.
	Log    sessionlog.Log
	Shards int
	Secret []byte

	// From brings reliable messages of clients to the game servers.
	From From

	// Affinity says which edge serves which session. nil means that only the log tells.
	Affinity cluster.Affinity

	// DrainTimeout is how long Run may take to hand sessions over when it is to end, and
	// DrainLinger for how long it then goes on to forward datagrams. 0 means 55 s, and 3 s
	// if there is a Forwarder.
	DrainTimeout, DrainLinger time.Duration

	// Forward carries datagrams to the edges that they are for. nil means that an edge
	// takes over each session whose datagrams come to it.
	Forward Forwarder

	// AnswerOnly says that a balancer tracks connections, so that an edge that takes a
	// session over must not send to the client before something came from it. It needs
	// a Forwarder.
	AnswerOnly bool
}

// From is the port to what keeps the reliable messages of clients for game servers.
type From interface {
	// Begin returns the feed of a session. delivered is called, from any goroutine, when
	// the message with this number and all before it cannot get lost any more; it does
	// not block.
	Begin(space, client, session string, delivered func(number uint64)) Feed
}

// A Feed is the messages of one session. Its methods do not block.
type Feed interface {
	// Deliver takes the next message, whose data it may keep.
	Deliver(m sessionlog.Message)

	// End forgets what is not delivered: whoever owns the session now delivers it.
	End()
}

func (d *Durable) setDefaults() {
	if d.DrainTimeout == 0 {
		d.DrainTimeout = 55 * time.Second
	}
	if d.DrainLinger == 0 {
		d.DrainLinger = 3 * time.Second
	}
}

// startDurable takes over what an earlier process of this node had, and listens to what
// the affinity finds out.
func (e *Edge) startDurable() {
	if e.cfg.Durable.Affinity == nil {
		return
	}
	e.cfg.Durable.Affinity.OnReplaced(func(name string, by cluster.Served) {
		for _, w := range e.workers {
			w.post(0, func(w *Worker, _ time.Time) { w.keeper.replaced(name, by) })
		}
	})
	e.inherit(e.cfg.Node, inheritRounds)
}

func (d *Durable) validate() error {
	var errs []error
	if d.Log == nil || d.Shards < 1 || len(d.Secret) == 0 {
		errs = append(errs, errors.New("edge: sessions in a log need the log, its shards and a secret"))
	}
	if d.From == nil {
		errs = append(errs, errors.New("edge: sessions in a log need a way for their messages"))
	}
	return errors.Join(errs...)
}
