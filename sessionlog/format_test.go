package sessionlog_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// nextFormat is a format that this program does not read.
const nextFormat = 2

// newer reports whether the edge is of the next release.
func (e *simEdge) newer() bool { return e.w.newer && e.index == edgesMax-1 }

// written returns a write in the format of the edge's release.
func (e *simEdge) written(w sessionlog.Write) sessionlog.Write {
	if e.newer() {
		w.Data = slices.Clone(w.Data)
		w.Data[0] = nextFormat
	}
	return w
}

// readable returns entries as the edge's release reads them: the next release reads both
// formats.
func (e *simEdge) readable(entries []sessionlog.Entry) []sessionlog.Entry {
	if e.newer() {
		return inFormat(1, entries)
	}
	return entries
}

// inFormat returns entries with another format number.
func inFormat(format byte, entries []sessionlog.Entry) []sessionlog.Entry {
	all := slices.Clone(entries)
	for i := range all {
		all[i].Data = slices.Clone(all[i].Data)
		all[i].Data[0] = format
	}
	return all
}

// TestOtherRelease simulates an edge of the next release, which writes a format that the others
// do not read. They must leave its sessions alone, tell its clients nothing, and notice when it
// has taken a session from them.
func TestOtherRelease(t *testing.T) {
	p := plan{name: "other release", kills: true, pauses: true, hands: true, lies: 0.05, loss: 0.01, newer: true}
	first, count := *first, uint64(*seeds+7)/8
	if *seed != 0 {
		first, count = *seed, 1
	}
	adoptions, fenced := 0, 0
	for s := first; s < first+count; s++ {
		w := newWorldOf(s, p)
		for _, e := range w.run() {
			t.Errorf("seed %d: %s", s, e)
		}
		adoptions += w.chk.adoptions
		fenced += w.chk.fenced
		if t.Failed() && s > first+10 {
			break
		}
	}
	t.Logf("%d seeds, %d adoptions, %d owners that were fenced", count, adoptions, fenced)
}

// TestOtherFormat lets an edge meet the log of a session to which another release has appended
// a write.
func TestOtherFormat(t *testing.T) {
	other := "other"
	ckpt := func(d *desk) *sessionlog.Checkpoint {
		c := &sessionlog.Checkpoint{Info: d.s.Info(), Node: other, Snapshot: d.conn.AppendCheckpoint(nil)}
		c.Info.ID, c.Info.Addr = sessionlog.ID{1}, vip
		return c
	}
	in := func(format byte, k sessionlog.Block) []byte {
		data := k.Append(nil)
		data[0] = format
		return data
	}
	for _, c := range []struct {
		why    string
		writes func(d *desk) [][]byte
		adopt  string // what an edge hears that adopts the session
	}{
		{"a write of the next format", func(*desk) [][]byte { return [][]byte{in(nextFormat, sessionlog.Block{Adopt: &other})} }, "elsewhere"},
		{"a checkpoint of the next format", func(d *desk) [][]byte { return [][]byte{in(nextFormat, sessionlog.Block{Ckpt: ckpt(d)})} }, "elsewhere"},
		{"a known checkpoint behind the next format", func(d *desk) [][]byte {
			return [][]byte{in(nextFormat, sessionlog.Block{Adopt: &other}), in(1, sessionlog.Block{Ckpt: ckpt(d)})}
		}, "found"},
		{"a snapshot of the next format", func(d *desk) [][]byte {
			k := ckpt(d)
			k.Snapshot[0] = nextFormat
			return [][]byte{in(1, sessionlog.Block{Ckpt: k})}
		}, "elsewhere"},
		{"an unknown mandatory record", func(*desk) [][]byte { return [][]byte{append(in(1, sessionlog.Block{Adopt: &other}), 99, 0)} }, "elsewhere"},
		{"an unknown optional record", func(d *desk) [][]byte { return [][]byte{append(in(1, sessionlog.Block{Ckpt: ckpt(d)}), 199, 1, 7)} }, "found"},
	} {
		t.Run(c.why, func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			tail := func() uint64 { e := d.store.Entries("log"); return e[len(e)-1].Seq }
			for _, data := range c.writes(d) {
				d.store.Append(sessionlog.Write{Log: "log", Expect: tail(), Data: data}, func(a sessionlog.Answer) {
					if a.Verdict != fence.OK {
						t.Fatalf("the write of the other release is answered %v", a.Verdict)
					}
				})
				d.net.Run(50 * time.Millisecond)
			}

			successor := newDesk(t)
			successor.heard, successor.store, successor.net = nil, d.store, d.net
			successor.conn.Abandon()
			successor.out.sent = 0
			successor.s = sessionlog.Adopt(successor.config("b"), "log")
			successor.run(50 * time.Millisecond)
			successor.want("an edge looks at the session", c.adopt)

			opener := newDesk(t)
			opener.heard, opener.store, opener.net = nil, d.store, d.net
			opener.out.sent = 0
			opener.s = sessionlog.Open(opener.config("c"), "log", opener.conn, sessionlog.Info{ID: sessionlog.ID{3}, Addr: vip})
			opener.run(time.Second)
			opener.want("an old request does not replace a session that lives", "elsewhere")
			if n := successor.out.sent + opener.out.sent; n > 0 {
				t.Errorf("the client of another edge is sent %d datagrams", n)
			}

			_ = d.conn.Send([]byte("x"), 0)
			d.out.sent = 0
			d.run(time.Second)
			d.want("the former owner notices that it was replaced", "lost")
			if d.out.sent > 0 {
				t.Errorf("the former owner sends %d datagrams", d.out.sent)
			}
			if d.conn.Established() {
				t.Error("the former owner goes on")
			}
		})
	}
}
