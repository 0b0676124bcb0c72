package natslog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natsask"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
)

// A walk reads one log, from its last write backwards: each says in its header which
// one it followed. So what was read is one chain whatever is written meanwhile, and the
// server finds each write by its sequence. A write that is gone in the middle of a walk
// was deleted by a newer checkpoint; what was read is torn then, and the session sees
// that it does not begin with one.
type walk struct {
	l       *Log
	get     string // subject of the leader of the stream
	subject string
	since   time.Time
	entries []sessionlog.Entry // newest first
	bytes   int
	answer  func(sessionlog.Answer)
}

// Read implements sessionlog.Log.
func (l *Log) Read(log string, answer func(sessionlog.Answer)) {
	n := sessionlog.Shard(log, l.cfg.Shards)
	w := &walk{
		l: l, get: l.api + ".STREAM.MSG.GET." + StreamName(n%l.cfg.Streams), subject: l.cfg.Subjects.Log(n, log),
		since: time.Now(), answer: answer,
	}
	l.mu.Lock()
	if l.walking >= l.cfg.Reads {
		l.waiting = append(l.waiting, w) // one per session at most
		l.mu.Unlock()
		return
	}
	l.walking++
	l.mu.Unlock()
	w.begin()
}

func (w *walk) begin() { w.step(fmt.Sprintf(`{"last_by_subj":%q}`, w.subject)) }

func (w *walk) step(request string) {
	w.l.counts.steps.Add(1)
	w.l.steps.Ask(natsask.Request{Msg: &nats.Msg{Subject: w.get, Data: []byte(request)}, Done: w.stepped})
}

// A stored is what the leader answers.
type stored struct {
	Message *struct {
		Seq    uint64 `json:"seq"`
		Header []byte `json:"hdrs"`
		Data   []byte `json:"data"`
	} `json:"message"`
	Error *struct {
		Code int `json:"err_code"`
	} `json:"error"`
}

// stepped takes a write, or what came instead.
func (w *walk) stepped(m *nats.Msg, err error) {
	var s stored
	switch {
	case err != nil:
		w.end(failure(err))
	case json.Unmarshal(m.Data, &s) != nil:
		w.end(fence.Unknown)
	case s.Error != nil && s.Error.Code == natsask.CodeNotFound:
		w.end(fence.OK) // there is none, or it is torn
	case s.Error != nil || s.Message == nil:
		w.end(fence.Unreachable)
	default:
		h, _ := nats.DecodeHeadersMsg(s.Message.Header) // a write without headers is none of ours
		w.entries = append(w.entries, sessionlog.Entry{Seq: s.Message.Seq, Data: s.Message.Data})
		w.bytes += len(s.Message.Data)
		before, err := strconv.ParseUint(h.Get(natsask.HeaderExpect), 10, 64)
		w.onwards(before, err == nil && before > 0 && h.Get(natsask.HeaderRollup) == "")
	}
}

// onwards asks for the write before, if there is more.
func (w *walk) onwards(before uint64, more bool) {
	switch {
	case !more:
		w.end(fence.OK)
	case len(w.entries) >= readEntriesMax || w.bytes >= readBytesMax || time.Since(w.since) > readTime:
		w.end(fence.Unknown)
	default:
		w.step(`{"seq":` + strconv.FormatUint(before, 10) + `}`)
	}
}

// end answers, and lets the next one begin.
func (w *walk) end(v fence.Verdict) {
	l := w.l
	l.counts.reads[v].Add(1)
	a := sessionlog.Answer{Verdict: v}
	if v == fence.OK {
		slices.Reverse(w.entries)
		a.Entries = w.entries
	}
	w.answer(a)
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.walking--
		l.mu.Unlock()
		return
	}
	next := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	l.mu.Unlock()
	next.since = time.Now()
	next.begin()
}

// drop answers the reads that wait when nothing runs any more.
func (l *Log) drop() {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, w := range waiting {
		l.counts.reads[fence.Unreachable].Add(1)
		w.answer(sessionlog.Answer{Verdict: fence.Unreachable})
	}
}
