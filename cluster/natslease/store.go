package natslease

import (
	"context"
	"errors"
	"strconv"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// tombstoneTTL is how long the store remembers that a state was removed.
const tombstoneTTL = "1h"

// serveStore asks the store what the lease wants, one op at a time.
func (s *shard) serveStore(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-s.ops:
			opCtx, cancel := context.WithTimeout(ctx, cluster.LeaseTimeout)
			a := s.ask(opCtx, o)
			cancel()
			s.l.counts.answers[a.Verdict].Add(1)
			s.l.answered(s.n, o.Kind, &a)
			s.put(func(in *inbox) { in.answer = &a })
		}
	}
}

func (s *shard) ask(ctx context.Context, o op) cluster.Answer {
	own := func() string { return s.l.cfg.Subjects.StoreOwn(s.n) }
	holder := func() *nats.Msg { return jetstream.Expect(s.message(own(), o.Holder.Append(nil)), "", o.ExpectHolder) }
	switch o.Kind {
	case cluster.ActionRead:
		return s.read(ctx)
	case cluster.ActionAcquire:
		// The holder comes last, so that its sequence is in the answer.
		a := s.publish(ctx, jetstream.Expect(s.heartbeat(o), "", o.ExpectHeartbeat), holder())
		a.Heartbeat = o.Heartbeat
		a.Heartbeat.Seq = a.Seq - 1 // no other message is stored within a batch
		s.hint(o.Holder, a)
		return a
	case cluster.ActionRenew:
		return s.publish(ctx, s.renewal(o))
	case cluster.ActionStore:
		return s.publish(ctx, s.batch(o)...)
	case cluster.ActionRelease:
		a := s.publish(ctx, holder())
		s.hint(o.Holder, a)
		return a
	}
	panic("natslease: the store is asked for action " + strconv.Itoa(int(o.Kind)))
}

// batch returns the messages of ActionStore: the keyframes, of which the first has the fence,
// and the heartbeat, whose condition refuses an older batch of the same holder that arrives
// late. Without keyframes it is a renewal.
func (s *shard) batch(o op) []*nats.Msg {
	subjects := &s.l.cfg.Subjects
	if len(o.keyframes) == 0 {
		return []*nats.Msg{s.renewal(o)}
	}
	var all []*nats.Msg
	for _, k := range o.keyframes {
		m := s.message(subjects.StoreKeyframe(s.n, k.Space, k.Number), k.Data)
		if len(k.Data) == 0 {
			m.Header.Set(natsjs.MsgTTLHeader, tombstoneTTL)
		}
		all = append(all, m)
	}
	jetstream.Expect(all[0], subjects.StoreOwn(s.n), o.ExpectHolder)
	return append(all, jetstream.Expect(s.heartbeat(o), "", o.ExpectHeartbeat))
}

func (s *shard) renewal(o op) *nats.Msg {
	return jetstream.Expect(s.heartbeat(o), s.l.cfg.Subjects.StoreOwn(s.n), o.ExpectHolder)
}

func (s *shard) heartbeat(o op) *nats.Msg {
	return s.message(s.l.cfg.Subjects.StoreHeartbeat(s.n), o.Heartbeat.Append(nil))
}

// message returns a message that the store stores under a subject.
func (s *shard) message(stored string, data []byte) *nats.Msg {
	secret := *s.l.secrets[s.n%s.l.cfg.Streams].Load()
	return &nats.Msg{Subject: s.l.cfg.Subjects.StoreInput(stored, secret), Header: nats.Header{}, Data: data}
}

// publish writes the messages, all or none, and judges the answer. An error code that
// package jetstream does not know counts as Unknown, to be on the safe side.
func (s *shard) publish(ctx context.Context, all ...*nats.Msg) cluster.Answer {
	var id string
	if len(all) > 1 {
		id = s.l.cfg.Lease.ID + "-" + strconv.FormatUint(s.l.counts.batches.Add(1), 36)
	}
	r, err := jetstream.PublishBatch(ctx, s.l.cfg.Conn, id, all...)
	v, ack := jetstream.Judge(r, err, fence.Unknown)
	return cluster.Answer{Verdict: v, Seq: ack.Seq}
}

// read asks the leader of the stream, because any other server may answer with an old state.
// Direct get is off, so the library cannot do otherwise.
func (s *shard) read(ctx context.Context) cluster.Answer {
	holder, err := s.last(ctx, s.l.cfg.Subjects.StoreOwn(s.n))
	if err != nil {
		return cluster.Answer{Verdict: jetstream.Failed(err)}
	}
	heartbeat, err := s.last(ctx, s.l.cfg.Subjects.StoreHeartbeat(s.n))
	if err != nil {
		return cluster.Answer{Verdict: jetstream.Failed(err)}
	}
	a := cluster.Answer{Verdict: fence.OK}
	if holder != nil {
		a.Holder = cluster.ParseHolder(holder.Sequence, holder.Data)
	}
	if heartbeat != nil {
		a.Heartbeat = cluster.ParseHeartbeat(heartbeat.Sequence, heartbeat.Data)
	}
	return a
}

// last returns the last message of a subject; nil if there is none.
func (s *shard) last(ctx context.Context, subject string) (*natsjs.RawStreamMsg, error) {
	m, err := s.l.stream(s.n).GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}
