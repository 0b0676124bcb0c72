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

// forms returns the form of a message's body and the form in which it is answered:
// that of Accept, or of the body. It is JSON if nothing is said, or nothing that is
// known.
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

// probePrefix begins the spaces by which nodes find out where publishes end up.
const probePrefix = "_probe-"

// busyRetry is how long a publisher is told to wait when there is no room.
const busyRetry = time.Second

// publish gives a publisher's message to the store of its space.
func (l *Lane) publish(now time.Time, h *holding, m bus.Msg) {
	l.counts.Publishes++
	if a, ok := l.relay.cfg.Subjects.ParsePublish(m.Subject); ok && strings.HasPrefix(a.Space, probePrefix) {
		l.answer(m.Reply, fmt.Appendf(nil, `{"shard":%d,"shards":%d}`, h.shard, l.relay.cfg.Shards))
		return
	}
	span := l.relay.signals.received(m)
	form, err := l.applyPublish(now, h, m, span)
	if err != nil {
		l.refuse(h, m.Reply, form, err)
		l.tellRefused(span, m.Subject, err)
	}
	span.End()
}

// applyPublish returns the form of the answer, and why the message did not reach a
// store. span is nil unless the message is sampled.
func (l *Lane) applyPublish(now time.Time, h *holding, m bus.Msg, span *telemetry.Span) (payload.Form, *replication.Error) {
	body, form, err := forms(m)
	if err != nil {
		return form, err
	}
	p, space, err := l.parsePublish(m, body, h.shard)
	if err != nil {
		return form, err
	}
	sp, ok := l.space(now, h, space)
	if !ok {
		return form, &replication.Error{
			Code: replication.CodeBusy, Message: "this relay has no room for another space", RetryAfter: busyRetry,
		}
	}
	sp.speak(form)
	p.Token = l.token(sp, m.Reply, form)
	apply := span.Child("apply")
	failed := sp.store.Stats().PublishErrors
	sp.store.Publish(now, p)
	if sp.store.Stats().PublishErrors > failed {
		apply.Fail("refused", "an op was refused; the answer to the publish says why")
	}
	sp.applied(now, &l.relay.signals, apply)
	apply.End()
	l.touch(sp)
	return form, nil
}

func (l *Lane) parsePublish(m bus.Msg, body payload.Form, shard int) (p replication.Publish, space string, err *replication.Error) {
	a, ok := l.relay.cfg.Subjects.ParsePublish(m.Subject)
	if !ok {
		return p, "", badSubject(m.Subject)
	}
	if strings.HasPrefix(a.Space, "_") {
		return p, "", replication.Errorf(replication.CodeBadRequest, "space %q: names that start with _ are reserved", a.Space)
	}
	if !l.belongs(a.Space, shard) {
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

// refuse answers a message that did not reach a store.
func (l *Lane) refuse(h *holding, reply string, form payload.Form, err *replication.Error) {
	l.counts.Refused++
	l.answer(reply, form.AppendAnswer(nil, &replication.Answer{Epoch: h.epoch, Durable: h.durable, Err: err}))
}

func (l *Lane) answer(reply string, data []byte) {
	l.send(bus.Msg{Subject: reply, Data: data})
}

// write gives what a client wrote to the store of its space.
func (l *Lane) write(now time.Time, h *holding, m bus.Msg) {
	w, err := replication.ParseWrite(m.Data)
	if err != nil || !l.belongs(w.Space, h.shard) {
		l.counts.Malformed++
		return
	}
	sp, ok := l.space(now, h, w.Space)
	if !ok {
		l.answer(m.Reply, replication.AppendWriteResult(nil, replication.WriteResult{Code: replication.WriteBusy, Epoch: h.epoch}))
		return
	}
	if w.Kind == replication.WriteAssert {
		l.hint(now, sp, w.Session)
	}
	w.Token = l.token(sp, m.Reply, payload.JSON)
	sp.store.Write(now, w)
	l.touch(sp)
}

// repair answers a replica. What the store has not emitted goes first, because
// the answer says what is true after it.
func (l *Lane) repair(now time.Time, h *holding, m bus.Msg) {
	name, ok := replication.RequestSpace(m.Data)
	if !ok || m.Reply == "" || !l.belongs(string(name), h.shard) {
		l.counts.Malformed++
		return
	}
	sp, ok := l.space(now, h, string(name))
	if !ok {
		return // the replica asks again
	}
	l.emit(now, sp)
	parts := sp.store.Repair(now, m.Data)
	l.emit(now, sp)
	for _, part := range parts {
		l.answer(m.Reply, part)
	}
	l.counts.Repairs++
	l.touch(sp)
}

// get answers who wants to know a state or a space.
func (l *Lane) get(h *holding, m bus.Msg) {
	body, form, err := forms(m)
	if err != nil {
		l.refuse(h, m.Reply, form, err)
		return
	}
	listing, err := l.listing(h, m, body)
	if err != nil {
		l.refuse(h, m.Reply, form, err)
		return
	}
	l.answer(m.Reply, form.AppendListing(nil, &listing, listBytes))
}

func (l *Lane) listing(h *holding, m bus.Msg, body payload.Form) (none replication.Listing, err *replication.Error) {
	a, ok := l.relay.cfg.Subjects.ParseGet(m.Subject)
	if !ok {
		return none, badSubject(m.Subject)
	}
	if validSpace(a.Space) && !l.belongs(a.Space, h.shard) {
		return none, wrongShard(a.Space)
	}
	request, err := body.ParseGet(m.Data)
	if err != nil {
		return none, err
	}
	return l.list(h, a, request)
}

// One answer to a get has at most so many states and bytes. The message of NATS
// may have 1 MiB.
const (
	listMax   = 4096
	listBytes = 900 << 10
)

func (l *Lane) list(h *holding, a subject.Address, r payload.GetRequest) (replication.Listing, *replication.Error) {
	sp, ok := l.spaces[a.Space]
	switch {
	case !ok && a.Key == "":
		return replication.Listing{Epoch: h.epoch}, nil
	case !ok:
		return replication.Listing{}, replication.Errorf(replication.CodeUnknownState, "no state %q in space %q", a.Key, a.Space)
	case a.Key != "":
		return sp.store.Get(a.Key)
	case r.Max == 0 || r.Max > listMax:
		r.Max = listMax
	}
	return sp.store.List(r.After, r.Max), nil
}
