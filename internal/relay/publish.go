package relay

import (
	"fmt"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

const (
	headerContentType = "Content-Type"
	contentJSON       = "application/json"
)

// probePrefix begins the spaces by which nodes find out where publishes end up.
const probePrefix = "_probe-"

// busyRetry is how long a publisher is told to wait when there is no room.
const busyRetry = time.Second

// publish gives a publisher's message to the store of its space.
func (l *Lane) publish(now time.Time, h *holding, m replication.Msg) {
	l.counts.Publishes++
	if a, ok := l.relay.cfg.Subjects.ParsePublish(m.Subject); ok && strings.HasPrefix(a.Space, probePrefix) {
		l.answer(m.Reply, fmt.Appendf(nil, `{"shard":%d,"shards":%d}`, h.shard, l.relay.cfg.Shards))
		return
	}
	p, space, err := l.parsePublish(m, h.shard)
	if err != nil {
		l.refuse(h, m.Reply, err)
		return
	}
	sp, ok := l.space(now, h, space)
	if !ok {
		l.refuse(h, m.Reply, &replication.Error{
			Code: replication.CodeBusy, Message: "this relay has no room for another space", RetryAfter: busyRetry,
		})
		return
	}
	p.Token = l.token(sp, m.Reply)
	sp.store.Publish(now, p)
	l.touch(sp)
}

func (l *Lane) parsePublish(m replication.Msg, shard int) (p replication.Publish, space string, err *replication.Error) {
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
	if t, ok := m.Header[headerContentType]; ok && !strings.HasPrefix(t, contentJSON) {
		return p, "", replication.Errorf(replication.CodeBadRequest, "content type %q: want %s", t, contentJSON)
	}
	p, err = payload.ParseJSON(m.Data, a.Key)
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
func (l *Lane) refuse(h *holding, reply string, err *replication.Error) {
	l.counts.Refused++
	l.answer(reply, payload.AppendAnswer(nil, &replication.Answer{Epoch: h.epoch, Durable: h.durable, Err: err}))
}

func (l *Lane) answer(reply string, data []byte) {
	l.send(replication.Msg{Subject: reply, Data: data})
}

// write gives what a client wrote to the store of its space.
func (l *Lane) write(now time.Time, h *holding, m replication.Msg) {
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
	w.Token = l.token(sp, m.Reply)
	sp.store.Write(now, w)
	l.touch(sp)
}

// repair answers a replica. What the store has not emitted goes first, because
// the answer says what is true after it.
func (l *Lane) repair(now time.Time, h *holding, m replication.Msg) {
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
func (l *Lane) get(h *holding, m replication.Msg) {
	a, ok := l.relay.cfg.Subjects.ParseGet(m.Subject)
	if !ok {
		l.refuse(h, m.Reply, badSubject(m.Subject))
		return
	}
	if validSpace(a.Space) && !l.belongs(a.Space, h.shard) {
		l.refuse(h, m.Reply, wrongShard(a.Space))
		return
	}
	request, err := payload.ParseGet(m.Data)
	if err != nil {
		l.refuse(h, m.Reply, err)
		return
	}
	listing, err := l.list(h, a, request)
	if err != nil {
		l.refuse(h, m.Reply, err)
		return
	}
	l.answer(m.Reply, payload.AppendListing(nil, &listing, listBytes))
}

// One answer to a get has at most so many states and bytes. The message of NATS
// may have 1 MiB.
const (
	listMax   = 4096
	listBytes = 900 << 10
)

func (l *Lane) list(h *holding, a replication.Address, r payload.GetRequest) (replication.Listing, *replication.Error) {
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
