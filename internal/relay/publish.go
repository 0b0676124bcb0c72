package relay

import (
	"fmt"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

// Headers of publishes and gets: the form of the body, and that of the answer.
const (
	headerContentType = "Content-Type"
	headerAccept      = "Accept"
)

// forms returns the form of a message's body and the form of the answer: that of the Accept
// header, or of the body. It is JSON if the headers name none.
func forms(m bus.Msg) (body, answer payload.Form, err *replication.Error) {
	if t, ok := m.Header[headerContentType]; ok {
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

// probePrefix begins the names of the spaces through which nodes find out which shard a
// publish reaches.
const probePrefix = "_probe-"

// busyRetry is how long a publisher should wait when there is no room.
const busyRetry = time.Second

// publish gives a publisher's message to the store of its space.
func (w *Worker) publish(now time.Time, o *ownership, m bus.Msg) {
	w.counts.Publishes++
	if a, ok := w.relay.cfg.Subjects.ParsePublish(m.Subject); ok && strings.HasPrefix(a.Space, probePrefix) {
		w.answer(m.Reply, fmt.Appendf(nil, `{"shard":%d,"shards":%d}`, o.shard, w.relay.cfg.Shards))
		return
	}
	span := w.relay.signals.received(m)
	form, err := w.applyPublish(now, o, m, span)
	if err != nil {
		w.refuse(o, m.Reply, form, err)
		w.tellRefused(span, m.Subject, err)
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
			Code: replication.CodeBusy, Message: "this relay has no room for another space", RetryAfter: busyRetry,
		}
	}
	sp.addForm(form)
	p.Token = w.token(sp, m.Reply, form)
	apply := span.Child("apply")
	failed := sp.store.Stats().PublishErrors
	sp.store.Publish(now, p)
	if sp.store.Stats().PublishErrors > failed {
		apply.Fail("refused", "an op was refused; the answer to the publish says why")
	}
	sp.pending.applied(now, &w.relay.signals, sp.store, sp.name, apply)
	apply.End()
	w.plan(sp)
	return form, nil
}

// tellRefused says in the trace of a sampled publish, and in a log line, that no store accepted
// it. Other refused publishes are not logged, because a publisher could cause many lines.
func (w *Worker) tellRefused(span *telemetry.Span, subject string, err *replication.Error) {
	if span == nil {
		return
	}
	span.Fail(string(err.Code), err.Message)
	w.relay.cfg.Log.InfoContext(span.Context(), "refused a sampled publish", "subject", subject, "code", err.Code, "error", err.Message)
}

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
	p, err = body.Parse(m.Data, a.Key)
	return p, a.Space, err
}

func badSubject(subject string) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest,
		"subject %q: a space is [A-Za-z0-9_-]{1,64}, a key up to 8 of those joined by dots", subject)
}

func wrongShard(space string) *replication.Error {
	return replication.Errorf(replication.CodeBadRequest,
		"space %q does not belong to this shard; is the number of shards the same everywhere?", space)
}

// refuse answers a message that does not reach a store.
func (w *Worker) refuse(o *ownership, reply string, form payload.Form, err *replication.Error) {
	w.counts.Refused++
	w.answer(reply, form.AppendAnswer(nil, &replication.Answer{Epoch: o.epoch, Durable: o.durable, Err: err}))
}

func (w *Worker) answer(reply string, data []byte) {
	w.send(bus.Msg{Subject: reply, Data: data})
}

// write gives what a client wrote to the store of its space.
func (w *Worker) write(now time.Time, o *ownership, m bus.Msg) {
	write, err := replication.ParseWrite(m.Data)
	if err != nil || !w.belongs(write.Space, o.shard) {
		w.counts.Malformed++
		return
	}
	sp, ok := w.space(now, o, write.Space)
	if !ok {
		w.answer(m.Reply, replication.AppendWriteResult(nil, replication.WriteResult{Code: replication.WriteBusy, Epoch: o.epoch}))
		return
	}
	if write.Kind == replication.WriteAssert {
		w.mentioned(now, sp, write.Session)
	}
	write.Token = w.token(sp, m.Reply, payload.JSON)
	sp.store.Write(now, write)
	w.plan(sp)
}

// repair answers a replica. Batches that the store has not emitted go first, because the
// answer describes the space behind them.
func (w *Worker) repair(now time.Time, o *ownership, m bus.Msg) {
	name, ok := replication.RequestSpace(m.Data)
	if !ok || m.Reply == "" || !w.belongs(string(name), o.shard) {
		w.counts.Malformed++
		return
	}
	sp, ok := w.space(now, o, string(name))
	if !ok {
		return // the replica asks again
	}
	w.emit(now, sp)
	parts := sp.store.Repair(now, m.Data)
	w.emit(now, sp)
	for _, part := range parts {
		w.answer(m.Reply, part)
	}
	w.counts.Repairs++
	w.plan(sp)
}

// get answers a request for a state or a space.
func (w *Worker) get(_ time.Time, o *ownership, m bus.Msg) {
	body, form, err := forms(m)
	if err != nil {
		w.refuse(o, m.Reply, form, err)
		return
	}
	listing, err := w.listing(o, m, body)
	if err != nil {
		w.refuse(o, m.Reply, form, err)
		return
	}
	w.answer(m.Reply, form.AppendListing(nil, &listing, listBytes))
}

func (w *Worker) listing(o *ownership, m bus.Msg, body payload.Form) (none replication.Listing, err *replication.Error) {
	a, ok := w.relay.cfg.Subjects.ParseGet(m.Subject)
	if !ok {
		return none, badSubject(m.Subject)
	}
	if validSpace(a.Space) && !w.belongs(a.Space, o.shard) {
		return none, wrongShard(a.Space)
	}
	request, err := body.ParseGet(m.Data)
	if err != nil {
		return none, err
	}
	return w.list(o, a, request)
}

// Bounds of one answer to a get, in states and bytes. A message of NATS has 1 MiB at most.
const (
	listMax   = 4096
	listBytes = 900 << 10
)

func (w *Worker) list(o *ownership, a subject.Address, r payload.GetRequest) (replication.Listing, *replication.Error) {
	sp, ok := w.spaces[a.Space]
	switch {
	case !ok && a.Key == "":
		return replication.Listing{Epoch: o.epoch}, nil
	case !ok:
		return replication.Listing{}, replication.Errorf(replication.CodeUnknownState, "no state %q in space %q", a.Key, a.Space)
	case a.Key != "":
		return sp.store.Get(a.Key)
	case r.Max == 0 || r.Max > listMax:
		r.Max = listMax
	}
	return sp.store.List(r.After, r.Max), nil
}
