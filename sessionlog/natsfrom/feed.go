package natsfrom

import (
	"strconv"
	"sync"

	"github.com/dnprelay/dnprelay/internal/natsask"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
)

// Headers of a message.
const (
	headerSession  = "Dnp-Session"
	headerNumber   = "Dnp-Number"
	headerPrevious = "Dnp-Previous" // number of the message before, plus one: what a consumer's cursor was
	headerReliable = "Dnp-Reliable"
)

// Unstored returns headers that keep a message out of the stream, for unreliable
// messages of clients: they have the same subjects. The stream refuses what is meant for
// another stream; subscribers get it as ever.
func Unstored() nats.Header { return nats.Header{natsask.HeaderExpectStream: {"none"}} }

// A Source is who sends.
type Source struct {
	Space, Client string
	Session       string // names the session for ever
}

// A Feed is the messages of one session. Its methods may be called from any goroutine
// and do not block.
type Feed struct {
	p         *Publisher
	subject   string
	session   string
	delivered func(number uint64)

	// Deliver comes from a worker and confirmations from the connection.
	mu      sync.Mutex
	waiting []sessionlog.Message // the first is under way; the session bounds them (Config.KeptMax)
	ended   bool
}

// Begin returns the feed of a session. delivered is called, from a goroutine of the
// Publisher, when the message with this number and all before are stored; it must not
// block.
func (p *Publisher) Begin(src Source, delivered func(number uint64)) *Feed {
	return &Feed{p: p, subject: p.cfg.Subjects.From(src.Space, src.Client), session: src.Session, delivered: delivered}
}

// Deliver publishes a message behind those before. Its data must not be changed.
func (f *Feed) Deliver(m sessionlog.Message) {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return
	}
	f.waiting = append(f.waiting, m)
	first := len(f.waiting) == 1
	f.mu.Unlock()
	f.p.counts.waiting.Add(1)
	if first {
		f.publish()
	}
}

// End forgets what is not confirmed: whoever owns the session now publishes it.
// delivered may be called once more.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.p.counts.waiting.Add(-int64(len(f.waiting)))
	f.waiting, f.ended = nil, true
}

// publish publishes the first message that waits.
func (f *Feed) publish() {
	f.mu.Lock()
	if len(f.waiting) == 0 {
		f.mu.Unlock()
		return
	}
	m := f.waiting[0]
	f.mu.Unlock()
	number := strconv.FormatUint(m.Number, 10)
	f.p.asker.Ask(natsask.Request{
		Msg: &nats.Msg{Subject: f.subject, Data: m.Data, Header: nats.Header{
			headerSession: {f.session}, headerNumber: {number}, headerPrevious: {strconv.FormatUint(m.Previous, 10)},
			headerReliable: {"true"}, nats.MsgIdHdr: {f.session + ":" + number},
		}},
		Done: func(reply *nats.Msg, err error) { f.answered(m.Number, reply, err) },
	})
}

// answered takes what the stream says to a message.
func (f *Feed) answered(number uint64, reply *nats.Msg, err error) {
	if err != nil {
		f.p.later(f, err.Error())
		return
	}
	ack, ok := natsask.ParseAck(reply.Data)
	switch {
	case !ok:
		f.p.later(f, "an answer that cannot be read")
	case ack.Code != 0: // also: another copy of it is under way
		f.p.later(f, ack.Text)
	case ack.Stream != StreamName:
		f.p.later(f, "stream "+ack.Stream+" answers")
	default:
		f.p.confirmed(ack)
		f.next(number)
	}
}

// next goes on behind the message that is stored.
func (f *Feed) next(number uint64) {
	f.mu.Lock()
	if len(f.waiting) == 0 || f.waiting[0].Number != number {
		f.mu.Unlock() // ended
		return
	}
	f.waiting[0] = sessionlog.Message{}
	f.waiting = f.waiting[1:]
	more := len(f.waiting) > 0
	f.mu.Unlock()
	f.p.counts.waiting.Add(-1)
	f.delivered(number)
	if more {
		f.publish()
	}
}
