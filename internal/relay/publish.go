package relay

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// headerAccept is the header of publishes and gets that names the form of the answer.
const headerAccept = "Accept"

// forms returns the form of a message's body and the form of the answer: that of the Accept
// header, or of the body. It is JSON if the headers name none.
func forms(m bus.Msg) (body, answer payload.Form, err *replication.Error) {
	if t, ok := m.Header[payload.HeaderContentType]; ok {
		body, err = payload.ParseForm(t)
	}
	answer = body
	if t, ok := m.Header[headerAccept]; ok && t != "*/*" {
		var unknown *replication.Error
		if answer, unknown = payload.ParseForm(t); err == nil {
			err = unknown
		}
	}
	return body, answer, err
}

// busyRetry is how long a publisher should wait when there is no room.
const busyRetry = time.Second

// publish gives a publisher's message to the store of its space.
func (w *Worker) publish(now time.Time, o *ownership, m bus.Msg) {
	w.counts.Publishes++
	if a, ok := w.relay.cfg.Subjects.ParsePublish(m.Subject); ok && strings.HasPrefix(a.Space, subject.ProbePrefix) {
		w.answer(m.Reply, fmt.Appendf(nil, `{"shard":%d,"shards":%d}`, o.shard, w.relay.cfg.Shards))
		return
	}
	if _, is := m.Header[subject.HeaderAgain]; is {
		w.answers.again(w, o, m)
		return
	}
	span := w.relay.signals.received(m)
	form, err := w.applyPublish(now, o, m, span)
	if err != nil {
		w.refuse(o, m.Reply, form, err)
		w.tellRefused(now, span, m.Subject, err)
	}
	span.End()
}

// applyPublish gives a message to a store. It returns the form of the answer, and why the
// message did not reach the store. span is nil unless the message is sampled.
func (w *Worker) applyPublish(now time.Time, o *ownership, m bus.Msg, span *telemetry.Span) (payload.Form, *replication.Error) {
	body, form, err := forms(m)
	if err != nil {
		return form, err
	}
	p, space, err := w.parsePublish(m, body, o.shard)
	if err != nil {
		return form, err
	}
	sp, ok := w.space(now, o, space)
	if !ok {
		return form, &replication.Error{
			Code: replication.CodeBusy, Message: "this relay has no room for another space (--spaces)", RetryAfter: busyRetry,
		}
	}
	if sp.defers(now, m, &p) {
		w.counts.Publishes-- // it is counted when it is handled
		w.plan(sp)
		return form, nil
	}
	sp.addForm(form)
	p.Token = w.token(sp, m.Reply, form)
	apply := span.Child("apply")
	if refused := sp.store.Publish(now, p); refused != nil {
		apply.Fail(string(refused.Code), refused.Error())
		w.tellRefused(now, span, m.Subject, refused)
	}
	sp.pending.applied(now, &w.relay.signals, sp.store, sp.name, apply)
	apply.End()
	w.plan(sp)
	return form, nil
}

// refusedPause is the least time between two log lines of a worker about refused publishes.
const refusedPause = time.Second

// A refusedLine is what the log says about refused publishes that are sampled.
type refusedLine struct {
	next    time.Time // when there may be another one
	leftOut int       // publishes without a line since the last one
}

// tellRefused says in the trace of a sampled publish, and now and then in a log line, why it was refused,
// in whole or in part. Other refused publishes are not logged, because a publisher could cause many lines.
func (w *Worker) tellRefused(now time.Time, span *telemetry.Span, subject string, err *replication.Error) {
	if span == nil {
		return
	}
	span.Fail(string(err.Code), err.Error())
	l := &w.refusedLine
	if now.Before(l.next) {
		l.leftOut++
		return
	}
	w.relay.cfg.Log.InfoContext(span.Context(), "refused a sampled publish", "subject", subject, "code", err.Code, "op", err.Op, "error", err.Message, "left_out", l.leftOut)
	*l = refusedLine{next: now.Add(refusedPause)}
}

// parsePublish parses a message of a publisher. The result is valid until the next call.
func (w *Worker) parsePublish(m bus.Msg, body payload.Form, shard int) (p replication.Publish, space string, err *replication.Error) {
	a, ok := w.relay.cfg.Subjects.ParsePublish(m.Subject)
	if !ok {
		return p, "", badSubject(m.Subject)
	}
	if strings.HasPrefix(a.Space, "_") {
		return p, "", replication.Errorf(replication.CodeBadRequest, "space %q: names that start with _ are reserved", a.Space)
	}
	if !w.belongs(a.Space, shard) {
		return p, "", wrongShard(a.Space)
	}
	p, err = w.parser.Parse(body, m.Data, a.Key)
	return p, a.Space, err
}

func badSubject(subject string) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest,
		"subject %q: a space is [A-Za-z0-9_-]{1,64}, a key up to 8 of those joined by dots, at most 255 bytes", subject)
}

func wrongShard(space string) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest,
		"space %q does not belong to this shard; is the number of shards the same everywhere?", space)
}

// refuse answers a message that does not reach a store.
func (w *Worker) refuse(o *ownership, reply string, form payload.Form, err *replication.Error) {
	w.counts.Refused++
	w.answerIn(form, reply, form.AppendAnswer(nil, &replication.Answer{Epoch: o.epoch, Durable: o.durable, Err: err}))
}

func (w *Worker) answer(reply string, data []byte) {
	w.send(bus.Msg{Subject: reply, Data: data})
}

// answerIn answers in a form, which the header names.
func (w *Worker) answerIn(form payload.Form, reply string, data []byte) {
	w.send(bus.Msg{Subject: reply, Header: form.Header(), Data: data})
}

// write gives what a client wrote to the store of its space.
func (w *Worker) write(now time.Time, o *ownership, m bus.Msg) {
	write, err := replication.ParseWrite(m.Data)
	if err != nil || !w.belongs(write.Space, o.shard) {
		w.counts.Malformed++
		return
	}
	write.Wide, _ = strconv.ParseUint(m.Header[subject.HeaderWrite], 10, 64) // most have none
	sp, ok := w.space(now, o, write.Space)
	if !ok {
		w.answer(m.Reply, replication.AppendWriteResult(nil, replication.WriteResult{Code: replication.WriteBusy, Epoch: o.epoch}))
		return
	}
	switch write.Kind {
	case replication.WriteAssert:
		w.mentioned(now, sp, write.Session)
	case replication.WriteJoin:
		if write.State = sp.present.announced(write.Session); !w.join(now, sp, write.Client, write.Session, "") {
			w.answer(m.Reply, replication.AppendWriteResult(nil, replication.WriteResult{Code: replication.WriteBusy, Epoch: o.epoch}))
			return
		}
	case replication.WriteLeave:
		w.part(sp, write.Client, write.Session)
		sp.present.left.put(write.Session)
	}
	write.Token = w.token(sp, m.Reply, payload.JSON)
	sp.store.Write(now, write)
	w.plan(sp)
}

// get answers a request for a state or a space.
func (w *Worker) get(_ time.Time, o *ownership, m bus.Msg) {
	body, form, err := forms(m)
	var listing replication.Listing
	if err == nil {
		listing, err = w.listing(o, m, body)
	}
	if err != nil {
		w.refuse(o, m.Reply, form, err)
		return
	}
	w.answerIn(form, m.Reply, form.AppendListing(nil, &listing, listBytes))
}

// Bounds of one answer to a get, in states and bytes. A message of NATS has 1 MiB at most.
const (
	listMax   = 4096
	listBytes = 900 << 10
)

func (w *Worker) listing(o *ownership, m bus.Msg, body payload.Form) (none replication.Listing, err *replication.Error) {
	a, ok := w.relay.cfg.Subjects.ParseGet(m.Subject)
	if !ok {
		return none, badSubject(m.Subject)
	}
	if validSpace(a.Space) && !w.belongs(a.Space, o.shard) {
		return none, wrongShard(a.Space)
	}
	r, err := body.ParseGet(m.Data)
	if err != nil {
		return none, err
	}
	sp, ok := w.spaces[a.Space]
	switch {
	case !ok && a.Key == "":
		return replication.Listing{Epoch: o.epoch}, nil
	case !ok:
		return none, replication.Errorf(replication.CodeUnknownState, "no state %q in space %q", a.Key, a.Space)
	case a.Key != "":
		return sp.store.Get(a.Key)
	case r.Max == 0 || r.Max > listMax:
		r.Max = listMax
	}
	return sp.store.List(r.After, r.Max), nil
}

// The store carries in a batch what package telemetry makes.
var _ [view.TraceSize]byte = [telemetry.BlockSize]byte{}

// Signals are what a relay reports to telemetry besides its counters; all may be nil.
type signals struct {
	tracer       *telemetry.Tracer
	subjects     subject.Names
	publishDelay *telemetry.Histogram
	publish      string // template of the subject of publishes
	live         string // and of batches
}

func newSignals(t *telemetry.Telemetry, subjects subject.Names) signals {
	return signals{
		tracer: t.Tracer(), subjects: subjects,
		publishDelay: t.Histogram("dnp.relay.publish.delay",
			"From taking a publish to its batch leaving, once per batch, of the first publish in it."),
		publish: subjects.Publish("{space}", ""),
		live:    subjects.Live("{space}"),
	}
}

// received begins the span of a publish that is sampled; otherwise it returns nil.
func (s *signals) received(m bus.Msg) *telemetry.Span {
	return s.tracer.Receive("publish", m.Header, telemetry.Message{Subject: m.Subject, Template: s.publish, Size: len(m.Data)})
}

// A pending follows the publishes that a store was given until their batch has left.
type pending struct {
	since time.Time       // when the first publish among them was taken; zero if there is none
	span  *telemetry.Span // of the batch, nil if none of them is sampled
}

// applied notes that a publish was given to the store of a space. apply is its span, or nil.
func (p *pending) applied(now time.Time, s *signals, store *replication.Store, space string, apply *telemetry.Span) {
	if !store.Pending() {
		return
	}
	if p.since.IsZero() {
		p.since = now
	}
	switch {
	case apply == nil:
	case p.span != nil:
		p.span.Join(apply)
	default:
		p.span = apply.Send("batch", telemetry.Message{Subject: s.subjects.Live(space), Template: s.live})
		store.Trace(p.span.Block())
	}
}

// left notes that the store has emitted, in so many batches and bytes.
func (p *pending) left(s *signals, store *replication.Store, batches, bytes int) {
	if p.since.IsZero() || store.Pending() {
		return
	}
	if s.publishDelay != nil {
		s.publishDelay.Record(time.Since(p.since), p.span)
	}
	if p.span != nil {
		p.span.Set("dnp.batches", batches)
		p.span.Set("messaging.message.body.size", bytes)
		p.span.End()
	}
	*p = pending{}
}
