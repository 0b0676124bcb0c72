package dnp

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// discard is a Sender that checks only the size of datagrams.
type discard struct {
	tb  testing.TB
	buf []byte
}

func (d *discard) Datagram(size int) []byte {
	if cap(d.buf) < size {
		d.buf = make([]byte, 0, size)
	}
	return d.buf[:0]
}

func (d *discard) Send(_ netip.AddrPort, b []byte) {
	if len(b) == 0 || len(b) > datagramLimit {
		d.tb.Fatalf("a datagram of %d bytes", len(b))
	}
}

// FuzzConn passes a sequence of datagrams, each behind its length in one byte, to both
// profiles and roles, while time passes, and checks the bounds.
func FuzzConn(f *testing.F) {
	seeds, err := os.ReadFile("testdata/datagrams.hex")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range strings.Fields(seedLines(string(seeds))) {
		p := unhex(line)
		f.Add(append([]byte{byte(len(p))}, p...))
	}
	f.Add(unhex("05 0001000000 05 0400000061 04 06000000 03 070080 0d 0500000000000100 4d01000105 08 0901000001000007"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, profile := range []wire.Profile{wire.Denetwork, wire.Spec} {
			for _, client := range []bool{false, true} {
				fuzzConn(t, profile, client, in)
			}
		}
	})
}

func seedLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func fuzzConn(t *testing.T, profile wire.Profile, client bool, in []byte) {
	cfg := quiet()
	cfg.Profile, cfg.PeerLinksMax, cfg.LongMax = profile, 4, 1000
	cfg.Rand = rand.New(rand.NewPCG(1, 2))
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := &discard{tb: t}
	now := epoch
	request := unhex("0001000000")
	if client {
		e.Connect(now, peerAddr)
		e.Advance(now, out)
		request = unhex("01000000")
	}
	src := e.NewSource(SourceConfig{State: newState(t, "uint8", "string"), Message: []byte("M"), Farewell: []byte("bye")})
	for _, v := range e.Receive(now, peerAddr, request, out) {
		v.Conn.Link(src, false)
		v.Conn.Send([]byte("hello"), 1)
	}
	for len(in) > 0 {
		n := min(int(in[0]), len(in)-1)
		drops := e.stats.Drops
		for _, v := range e.Receive(now, peerAddr, in[1:1+n], out) {
			fuzzEvent(t, e, v)
		}
		in = in[1+n:]
		if moved := dropsBetween(drops, e.stats.Drops); moved > 1 {
			t.Fatalf("one datagram moved %d counters", moved)
		}
		now = now.Add(20 * time.Millisecond)
		e.Advance(now, out)
		src.Changed(0)
		e.Flush(now, out)
		for c := range e.All {
			if len(c.recv.early) > recvAhead || len(c.links.peer) > cfg.PeerLinksMax || c.recv.long.size() > max(cfg.LongMax, longLinkMax) || len(c.send.flight) > sendWindowMax {
				t.Fatalf("a bound is broken: %d early, %d links, %d bytes, %d in flight", len(c.recv.early), len(c.links.peer), c.recv.long.size(), len(c.send.flight))
			}
		}
	}
	fuzzSnapshot(t, e, src, now)
}

func dropsBetween(a, b [NumDropReasons]uint64) (n uint64) {
	for i := range a {
		n += b[i] - a[i]
	}
	return n
}

func fuzzEvent(tb testing.TB, e *Endpoint, v Event) {
	switch v.Kind {
	case EventLinkOffered:
		if v.Values.Len() != 1 {
			v.Conn.Reject(v.Link)
			return
		}
		t, _, _ := v.Values.Next()
		state := newState(tb, t.String())
		state.SetAll(v.Values)
		v.Conn.Accept(v.Link, e.NewSource(SourceConfig{State: state, Message: []byte("P")}))
	case EventUpdate:
		src, _ := v.Conn.SourceOf(v.Link)
		for i, b, ok := v.Update.Next(); ok; i, b, ok = v.Update.Next() {
			v.Conn.Writes().Hold(v.Link, i, 0, b)
			src.State().Set(i, b)
			src.Changed(i)
			v.Conn.Writes().Release(v.Link, i)
		}
	}
}

// fuzzSnapshot restores the connection from its snapshot.
func fuzzSnapshot(t *testing.T, e *Endpoint, src *Source, now time.Time) {
	for c := range e.All {
		if c.state != connEstablished {
			continue
		}
		snapshot := c.AppendSnapshot(nil)
		c.Close(CloseMoved)
		e.Advance(now, &discard{tb: t})
		if _, err := e.Restore(now, peerAddr, snapshot, func(ref uint64) *Source { return nil }); err != nil {
			t.Fatalf("Restore of a snapshot: %v", err)
		}
	}
}

// FuzzRestore gives damaged snapshots to Restore.
func FuzzRestore(f *testing.F) {
	e, _ := New(Config{})
	c, _ := e.Connect(epoch, servAddr)
	c.state = connEstablished
	src := e.NewSource(SourceConfig{State: newState(f, "uint8"), Message: []byte("M")})
	c.Link(src, false)
	c.Send([]byte("hello"), 1)
	f.Add(c.AppendSnapshot(nil))
	e.Advance(epoch, &discard{tb: f})
	f.Add(c.AppendSnapshot(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		e, _ := New(Config{})
		src := e.NewSource(SourceConfig{State: newState(t, "uint8"), Message: []byte("M")})
		out := &discard{tb: t}
		c, err := e.Restore(epoch, peerAddr, in, func(uint64) *Source { return src })
		if err != nil {
			if len(e.byAddr) != 0 || src.Links() != 0 {
				t.Fatal("a refused snapshot left a connection behind")
			}
			return
		}
		for i := range 20 {
			now := epoch.Add(time.Duration(i) * time.Second)
			e.Advance(now, out)
			e.Flush(now, out)
			switch {
			case i == 1: // the peer refuses every other link
				for slot := 0; slot < len(c.links.slots); slot += 2 {
					e.Receive(now, peerAddr, wire.LinkDown{Link: c.links.slots[slot].id}.Append(nil), out)
				}
			case i == 2:
				src.Remove()
			}
		}
		c.AppendSnapshot(nil)
	})
}
