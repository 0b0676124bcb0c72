package takeover

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

func clientOf(i int) forward.Client { return forward.Client{Addr: clientAddr(i), Listener: listener} }

// TestHints: an edge remembers for a while which edge serves a client, unless that edge says
// that it does not.
func TestHints(t *testing.T) {
	l := NewLocations(noGuard{})
	l.grow()
	now := simnet.Epoch
	a, b, c := clientOf(1), clientOf(2), clientOf(3)
	want := func(why string, at time.Duration, client forward.Client, text string) {
		t.Helper()
		got := "unknown"
		switch kind, worker, node := l.locate(now.Add(at), client); kind {
		case placeElsewhere:
			got = node
		case placeNowhere:
			got = "nowhere"
		case placeHere:
			got = fmt.Sprintf("worker %d", worker)
		}
		if got != text {
			t.Errorf("%s: %s, want %s", why, got, text)
		}
	}
	want("nothing is known", 0, a, "unknown")
	l.hint(now, a, "e2")
	want("another edge", 0, a, "e2")
	want("another listener is another client", 0, forward.Client{Addr: a.Addr, Listener: 1}, "unknown")
	want("for almost two seconds", elsewhereTime-1, a, "e2")
	want("for two seconds", elsewhereTime, a, "unknown")
	l.hint(now, b, "")
	want("no edge serves it", 0, b, "nowhere")
	want("for a second", nowhereTime, b, "unknown")

	l.hint(now, c, "e2")
	l.Withdraw(a, "e3")
	want("the word of an edge that is not meant", 0, a, "e2")
	l.Withdraw(a, "e2")
	want("e2 does not serve it", 0, a, "unknown")
	want("that is about one client", 0, c, "e2")
	l.Withdraw(clientOf(9), "e2")

	l.enter("C", c, 3)
	want("an attempt to take it over counts for less", 0, c, "e2")
	want("and for more than nothing", elsewhereTime, c, "worker 3")
	l.own("C", c, 3, 7)
	want("an owner counts for more", 0, c, "worker 3")
	l.hint(now, b, "")
	l.enter("B", b, 2)
	want("it logs in", 0, b, "worker 2")
	l.leave("B", 2)
	l.leave("C", 3)
	want("it left within the two seconds", 0, c, "e2")

	for i := range 2 * hintsMax {
		l.hint(now, clientOf(100+i), "e2")
	}
	if l.hints.Len() > hintsMax || len(l.byClient) > hintsMax {
		t.Errorf("%d hints for %d clients are remembered, at most %d may be", l.hints.Len(), len(l.byClient), hintsMax)
	}
	want("the newest is there", 0, clientOf(99+2*hintsMax), "e2")
	now = now.Add(elsewhereTime)
	for i := range hintsMax {
		l.hint(now, clientOf(100+2*hintsMax+i%10), "e3")
	}
	if n := l.hints.Len(); n > 10 {
		t.Errorf("%d hints are remembered, and all but 10 are over", n)
	}
}

// A plainShare is what the twin of the table knows of one worker.
type plainShare struct {
	present bool
	epoch   uint64
	known   bool // the client is known
}

// TestLocations compares the shares of the table with a plain list, in any order of what
// workers do.
func TestLocations(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := NewLocations(noGuard{})
		l.grow()
		twin := map[int]map[int]*plainShare{} // by client and worker
		for step := range 3000 {
			i, w := r.IntN(5), r.IntN(3)
			name, c := fmt.Sprint(i), clientOf(i)
			if twin[i] == nil {
				twin[i] = map[int]*plainShare{}
			}
			s := twin[i][w]
			if s == nil {
				s = &plainShare{}
				twin[i][w] = s
			}
			switch r.IntN(4) {
			case 0:
				l.enter(name, forward.Client{Listener: listener}, w)
				s.present = true
			case 1:
				l.enter(name, c, w)
				s.present, s.known = true, true
			case 2:
				s.present, s.known, s.epoch = true, true, uint64(step+1)
				l.own(name, c, w, s.epoch)
			case 3:
				l.leave(name, w)
				*s = plainShare{}
			}
			checkShares(t, l, twin[i], name, c)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		for i, shares := range twin {
			for w := range shares {
				l.leave(fmt.Sprint(i), w)
			}
		}
		if n := len(l.byName) + len(l.byClient); n > 0 {
			t.Errorf("seed %d: %d entries are left that say nothing", seed, n)
		}
	}
}

func checkShares(t *testing.T, l *Locations, shares map[int]*plainShare, name string, c forward.Client) {
	t.Helper()
	present, known, epoch := false, false, uint64(0)
	for _, s := range shares {
		known, present, epoch = known || s.known, present || s.present, max(epoch, s.epoch)
	}
	if got := l.present(name); got != present {
		t.Errorf("present: %v, want %v", got, present)
	}
	w, got, ok := l.Server(c)
	if !known && !ok { // whose session it is may be known from earlier, which is as good
		return
	}
	if ok != present || got != epoch || ok && (!shares[w].present || shares[w].epoch != epoch) {
		t.Errorf("it is at worker %d in epoch %d: %v, want epoch %d: %v", w, got, ok, epoch, present)
	}
}
