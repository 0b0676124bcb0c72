package natslog

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A read reads one log backwards from its last write: the header of each write names the one
// that it followed. So the result is one chain whatever is written meanwhile, and the server
// finds each write by its sequence. If a write is gone in the middle of a read, a newer
// checkpoint deleted it; the result is torn then, and the session sees that it does not begin
// with a checkpoint.
type read struct {
	l       *Log
	get     string // subject of requests for one write
	subject string
	since   time.Time
	entries []sessionlog.Entry // newest first
	bytes   int
	answer  func(sessionlog.Answer)
}

// leaderGet is the subject of requests for one write, before the name of the stream.
const leaderGet = "$JS.API.STREAM.MSG.GET."

// Read implements sessionlog.Log.
func (l *Log) Read(log string, answer func(sessionlog.Answer)) {
	n := sessionlog.Shard(log, l.cfg.Shards)
	r := &read{l: l, get: leaderGet + l.cfg.streamName(n%l.cfg.Streams), subject: l.cfg.subject(n, log), answer: answer}
	l.mu.Lock()
	if l.reading >= reads {
		l.waiting = append(l.waiting, r) // at most one for each session
		l.mu.Unlock()
		return
	}
	l.reading++
	l.mu.Unlock()
	r.begin()
}

func (r *read) begin() {
	r.since = time.Now()
	r.step(fmt.Sprintf(`{"last_by_subj":%q}`, r.subject))
}

func (r *read) step(request string) {
	r.l.counts.steps.Add(1)
	r.l.steps.Send(jetstream.Request{Msg: &nats.Msg{Subject: r.get, Data: []byte(request)}, Done: r.stepped})
}

// stepped takes the answer to a step.
func (r *read) stepped(m *nats.Msg, err error) {
	if err != nil {
		r.end(jetstream.Failed(err))
		return
	}
	v, seq, header, data := jetstream.StoredMessage(m)
	if v != fence.OK || seq == 0 {
		r.end(v) // fence.OK: the log is empty or torn
		return
	}
	r.entries = append(r.entries, sessionlog.Entry{Seq: seq, Data: data})
	r.bytes += len(data)
	h, _ := nats.DecodeHeadersMsg(header) // a write without headers is not a session's
	before, err := strconv.ParseUint(h.Get(natsjs.ExpectedLastSubjSeqHeader), 10, 64)
	r.next(before, err == nil && before > 0 && h.Get(natsjs.MsgRollup) == "")
}

// next asks for the write before, if there is one.
func (r *read) next(before uint64, more bool) {
	switch {
	case !more:
		r.end(fence.OK)
	case len(r.entries) >= readEntriesMax || r.bytes >= readBytesMax || time.Since(r.since) > readTimeout:
		r.end(fence.Unknown)
	default:
		r.step(`{"seq":` + strconv.FormatUint(before, 10) + `}`)
	}
}

// deliver answers a read.
func (r *read) deliver(v fence.Verdict) {
	a := sessionlog.Answer{Verdict: v}
	if v == fence.OK {
		slices.Reverse(r.entries)
		a.Entries = r.entries
	}
	r.answer(a)
}

// end answers, and begins the next read that waits.
func (r *read) end(v fence.Verdict) {
	r.deliver(v)
	l := r.l
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.reading--
		l.mu.Unlock()
		return
	}
	next := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	l.mu.Unlock()
	next.begin()
}

// failReads answers the reads that wait after Run has ended.
func (l *Log) failReads() {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, r := range waiting {
		r.deliver(fence.Unreachable)
	}
}
