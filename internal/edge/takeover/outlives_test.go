package takeover

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// outlivesMax is how long a session may go on after the last datagram of its client.
const outlivesMax = 56 * time.Second

// TestOutlives: a session ends within a minute of its client's death, in the log too, whatever
// was under way, and whichever edge has it.
func TestOutlives(t *testing.T) {
	forge := func(p ...byte) func(e *testEdge, addr netip.AddrPort) *testEdge {
		return func(e *testEdge, addr netip.AddrPort) *testEdge {
			e.net.Every(time.Second, func() bool {
				e.workers[0].deliver(addr, e.via, p...)
				return e.net.Elapsed() < 5*time.Minute
			})
			return e
		}
	}
	say := func(p ...byte) func(e *testEdge, addr netip.AddrPort) *testEdge {
		return func(e *testEdge, addr netip.AddrPort) *testEdge {
			e.workers[0].deliver(addr, e.via, p...)
			return e
		}
	}
	takeOver := func(e *testEdge, addr netip.AddrPort) *testEdge {
		next := e.next()
		next.workers[0].t.Give(next.workers[0].t.name(addr), Path{}, "")
		return next
	}
	for _, c := range []struct {
		why string
		do  func(e *testEdge, addr netip.AddrPort) *testEdge // returns the edge that goes on
	}{
		{"one that listens", func(e *testEdge, _ netip.AddrPort) *testEdge { return e }},
		{"with a message under way", func(e *testEdge, addr netip.AddrPort) *testEdge {
			if err := e.workers[0].session(addr).Log.Conn().Send([]byte("m"), 0); err != nil {
				t.Fatal(err)
			}
			return e
		}},
		{"that has just said something", say(4, 0, 0, 'a')},
		{"behind a hole", say(4, 5, 0, 'a')},
		{"in the middle of a long message", say(10, 0, 0, 1, 'a')},
		{"in the middle of a long offer", say(11, 0, 0, 3, 0, 2, 1, 0, 'a')},
		{"that closes", say(2)},
		{"that asks for a new connection", say(0, 1, 0, 0, 0)},
		{"in whose name messages come", forge(3, 'a')},
		{"in whose name it says it closes", forge(2)},
		{"in whose name connections are asked for", forge(0, 1, 0, 0, 0)},
		{"in whose name a number is acknowledged", forge(6, 0, 0, 0)},
		{"in whose name a link is taken", forge(7, 0, 0x80)},
		{"while the edge has to read the log", func(e *testEdge, addr netip.AddrPort) *testEdge {
			e.workers[0].t.revalidateAll()
			return e
		}},
		{"while the log is silent", func(e *testEdge, addr netip.AddrPort) *testEdge {
			e.log.SetSilent(true)
			e.workers[0].deliver(addr, e.via, 4, 0, 0, 'a')
			e.pass(20 * time.Second)
			e.log.SetSilent(false)
			return e
		}},
		{"during a takeover by name", takeOver},
		{"during a takeover because of its datagram", func(e *testEdge, addr netip.AddrPort) *testEdge {
			next := e.next()
			next.workers[0].deliver(addr, "", 3, 'a')
			return next
		}},
		{"during a takeover that waits for the states", func(e *testEdge, addr netip.AddrPort) *testEdge {
			next := takeOver(e, addr)
			next.complete = false
			next.pass(8 * time.Second)
			next.complete = true
			return next
		}},
		{"with a message under way, during a takeover", func(e *testEdge, addr netip.AddrPort) *testEdge {
			if err := e.workers[0].session(addr).Log.Conn().Send([]byte("m"), 0); err != nil {
				t.Fatal(err)
			}
			e.pass(5 * time.Second)
			return takeOver(e, addr)
		}},
		{"in two takeovers", func(e *testEdge, addr netip.AddrPort) *testEdge {
			next := takeOver(e, addr)
			next.pass(15 * time.Second)
			return takeOver(next, addr)
		}},
	} {
		e, addr := newTestEdge(t), clientAddr(1)
		e.join(addr)
		e.toClient = func(netip.AddrPort, []byte) {}
		died := e.net.Elapsed()
		e = c.do(e, addr)
		for e.workers[0].t.Count() > 0 && e.net.Elapsed()-died < 3*outlivesMax {
			for _, s := range e.workers[0].t.byName {
				e.workers[0].t.Delivered(e.net.Now(), s, 1<<40)
			}
			e.pass(time.Second)
		}
		if got := e.net.Elapsed() - died; got > outlivesMax {
			t.Errorf("a client dies %s: its session goes on for %v", c.why, got)
		}
		if !e.closedInLog(addr) {
			t.Errorf("a client dies %s: the log does not have the end of its session", c.why)
		}
	}
}

// closedInLog reports whether the log says that the session of a client is over.
func (e *testEdge) closedInLog(addr netip.AddrPort) bool {
	entries := e.log.Entries(e.workers[0].t.name(addr))
	if len(entries) == 0 {
		return false
	}
	k, err := sessionlog.ParseBlock(entries[len(entries)-1].Data)
	return err == nil && k.Close != nil
}
