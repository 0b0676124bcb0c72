package edge

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// How long a request to the holder may stay without answer before it is made
// again (DESIGN: after 100 ms), up to which pause that grows, and how long an
// answer is waited for. An answer to an earlier copy is as good, so a holder that
// is farther away than a repetition does no harm.
const (
	writeRepeat    = 100 * time.Millisecond
	writeRepeatMax = 500 * time.Millisecond
	writeAnswer    = time.Second
)

// A repeater says when a request is due. The zero value is never due.
//
// It runs whether an answer comes or not: an answer that finds the inbox of the
// worker full is lost, and must not leave anything waiting for ever.
type repeater struct {
	due  time.Time
	wait time.Duration
}

// want makes the request due now, whatever was tried before.
func (r *repeater) want(now time.Time) { *r = repeater{due: now} }

// sent plans the repetition. It reports whether this sending was one.
func (r *repeater) sent(now time.Time) (again bool) {
	again = r.wait > 0
	r.wait = min(max(2*r.wait, writeRepeat), writeRepeatMax)
	r.due = now.Add(r.wait)
	return again
}

// done ends the repetitions.
func (r *repeater) done() { *r = repeater{} }

// ready reports whether the request is due, and otherwise makes next early enough.
func (r *repeater) ready(now time.Time, next *time.Time) bool {
	if r.due.IsZero() {
		return false
	}
	if r.due.After(now) {
		*next = earlier(*next, r.due)
		return false
	}
	return true
}

// request sends a write request to the holder. done is called by the worker, with
// the epoch that the request was made in; also when there is no answer, unless
// the worker's inbox is full.
func (s *session) request(w *replication.Write, done func(now time.Time, r replication.WriteResult, err error)) {
	w.Session, w.Client, w.Space, w.Epoch = s.id, s.client, s.space.name, s.space.epoch
	to := s.space.w
	m := bus.Msg{Subject: s.edge().cfg.Subjects.Write(s.space.shard), Data: replication.AppendWrite(nil, w)}
	s.edge().cfg.Bus.Request(m, writeAnswer, func(answer bus.Msg, err error) {
		var r replication.WriteResult
		if err == nil {
			r, err = replication.ParseWriteResult(answer.Data)
		}
		to.post(len(answer.Data), func(_ *Worker, now time.Time) { done(now, r, err) })
	})
}

// tryAgain reports whether an answer settles nothing.
func tryAgain(r replication.WriteResult, err error) bool {
	return err != nil || r.Code == replication.WriteBusy || r.Code == replication.WriteWrongEpoch
}

// nextWrite numbers the write requests of a worker. 0 stands for none.
func (w *Worker) nextWrite() uint32 {
	if w.writeNumber++; w.writeNumber == 0 {
		w.writeNumber++
	}
	return w.writeNumber
}
