package natslease

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers and error codes of JetStream that the client library has no names for,
// or no calls. Atomic batches: NATS architecture decision 50; the codes are in
// server/errors.json of nats-server.
const (
	headerExpect        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSeq      = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
	headerTTL           = "Nats-TTL"

	codeStale           = 10071 // wrong last sequence: <it>
	codeBusy            = 10164 // wrong last sequence, because such a write is under way
	codeBatchIncomplete = 10176 // parts of the batch did not arrive
	codeBatches         = 10210 // too many batches are under way
	codeBatchesOld      = 10211
)

// tombstoneTTL is how long the store remembers that a state was removed.
const tombstoneTTL = "1h"

// serve does what the lease asks of the store, one after the other.
func (s *shard) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-s.ops:
			opCtx, cancel := context.WithTimeout(ctx, s.l.cfg.Lease.Timeout)
			a := s.do(opCtx, o)
			cancel()
			s.l.counts.answers[a.Verdict].Add(1)
			s.put(func(in *inbox) { in.answer = &a })
		}
	}
}

func (s *shard) do(ctx context.Context, o op) cluster.Answer {
	subjects := &s.l.cfg.Subjects
	switch o.Kind {
	case cluster.ActionRead:
		return s.read(ctx)
	case cluster.ActionAcquire:
		// Own comes last, so that its sequence is in the answer.
		beat := message(subjects.StoreHeartbeat(s.n), o.Heartbeat.Append(nil))
		expect(beat, "", o.ExpectHeartbeat)
		own := message(subjects.StoreOwn(s.n), o.Holder.Append(nil))
		expect(own, "", o.ExpectHolder)
		a := s.publish(ctx, beat, own)
		a.Heartbeat = o.Heartbeat
		a.Heartbeat.Seq = a.Seq - 1 // a batch is stored without others between
		s.hint(o.Holder, a)
		return a
	case cluster.ActionRenew:
		beat := message(subjects.StoreHeartbeat(s.n), o.Heartbeat.Append(nil))
		expect(beat, subjects.StoreOwn(s.n), o.ExpectHolder)
		return s.publish(ctx, beat)
	case cluster.ActionStore:
		return s.publish(ctx, s.batch(o)...)
	case cluster.ActionRelease:
		own := message(subjects.StoreOwn(s.n), o.Holder.Append(nil))
		expect(own, "", o.ExpectHolder)
		a := s.publish(ctx, own)
		s.hint(o.Holder, a)
		return a
	}
	panic("natslease: an action that is none of the store's")
}

// batch returns the messages of ActionStore: the keyframes, of which the first
// has the fence, and the beat, which makes sure that no older batch of this very
// holder comes after it.
func (s *shard) batch(o op) []*nats.Msg {
	subjects := &s.l.cfg.Subjects
	var all []*nats.Msg
	for _, k := range o.keyframes {
		m := message(subjects.StoreKeyframe(s.n, k.Space, k.Number), k.Data)
		if len(k.Data) == 0 {
			m.Header.Set(headerTTL, tombstoneTTL)
		}
		all = append(all, m)
	}
	expect(all[0], subjects.StoreOwn(s.n), o.ExpectHolder)
	beat := message(subjects.StoreHeartbeat(s.n), o.Heartbeat.Append(nil))
	expect(beat, "", o.ExpectHeartbeat)
	return append(all, beat)
}

func message(subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{}, Data: data}
}

// expect makes the store refuse m unless the last message of subject, or of m's
// own if that is empty, has the sequence seq; 0 if there must be none.
func expect(m *nats.Msg, subject string, seq uint64) {
	m.Header.Set(headerExpect, strconv.FormatUint(seq, 10))
	if subject != "" {
		m.Header.Set(headerExpectSubject, subject)
	}
}

// publish writes the messages, all or none. The store answers to the last.
func (s *shard) publish(ctx context.Context, all ...*nats.Msg) cluster.Answer {
	last := all[len(all)-1]
	if len(all) > 1 {
		id := s.l.cfg.Lease.ID + "-" + strconv.FormatUint(s.l.counts.batches.Add(1), 36)
		for i, m := range all {
			m.Header.Set(headerBatchID, id)
			m.Header.Set(headerBatchSeq, strconv.Itoa(i+1))
		}
		last.Header.Set(headerBatchCommit, "1")
		for _, m := range all[:len(all)-1] {
			if s.l.cfg.Conn.PublishMsg(m) != nil {
				return cluster.Answer{Verdict: fence.Unreachable} // without the last none counts
			}
		}
	}
	r, err := s.l.cfg.Conn.RequestMsgWithContext(ctx, last)
	if err != nil {
		return cluster.Answer{Verdict: failure(err)}
	}
	return parseAck(r.Data)
}

// parseAck takes the store's answer to a write apart.
func parseAck(data []byte) cluster.Answer {
	var ack struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Code uint16 `json:"err_code"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(data, &ack); {
	case err != nil:
		return cluster.Answer{Verdict: fence.Unknown}
	case ack.Error == nil:
		return cluster.Answer{Verdict: fence.OK, Seq: ack.Seq}
	}
	switch ack.Error.Code {
	case codeStale:
		return cluster.Answer{Verdict: fence.Stale}
	case codeBusy:
		return cluster.Answer{Verdict: fence.Busy}
	case codeBatchIncomplete, codeBatches, codeBatchesOld:
		return cluster.Answer{Verdict: fence.Unreachable}
	}
	return cluster.Answer{Verdict: fence.Unknown} // to be on the safe side
}

// failure tells what certainly was not written from what may have been.
func failure(err error) fence.Verdict {
	for _, e := range [...]error{
		nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded, nats.ErrMaxPayload,
	} {
		if errors.Is(err, e) {
			return fence.Unreachable
		}
	}
	return fence.Unknown
}

// read asks the leader of the stream, because any other may answer with what was
// true some time ago. Direct get is off, so the library cannot do otherwise.
func (s *shard) read(ctx context.Context) cluster.Answer {
	own, err := s.last(ctx, s.l.cfg.Subjects.StoreOwn(s.n))
	if err != nil {
		return cluster.Answer{Verdict: failure(err)}
	}
	beat, err := s.last(ctx, s.l.cfg.Subjects.StoreHeartbeat(s.n))
	if err != nil {
		return cluster.Answer{Verdict: failure(err)}
	}
	a := cluster.Answer{Verdict: fence.OK}
	if own != nil {
		a.Holder = cluster.ParseHolder(own.Sequence, own.Data)
	}
	if beat != nil {
		a.Heartbeat = cluster.ParseHeartbeat(beat.Sequence, beat.Data)
	}
	return a
}

// last returns the last message of a subject; nil if there is none.
func (s *shard) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	m, err := s.l.stream(s.n).GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

func (l *Leases) stream(shard int) jetstream.Stream { return l.streams[shard%l.cfg.Streams] }
