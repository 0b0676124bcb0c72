package dnptest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestMove moves a session to a new Endpoint at the same address twice a second, amid
// messages both ways, links from both sides and loss. The client must not notice: no
// message is lost, doubled or out of order, and values go on.
func TestMove(t *testing.T) {
	for i, b := range dnptest.Presets() {
		for _, loss := range []float64{0, 0.05} {
			t.Run(fmt.Sprintf("%s/loss=%v", b.Name, loss), func(t *testing.T) { move(t, *seed+uint64(i), b, loss) })
		}
	}
}

func move(t *testing.T, seed uint64, b dnptest.Behaviour, loss float64) {
	w := newWorld(t, seed, simnet.Path{Loss: loss, Delay: 10 * time.Millisecond, Jitter: 20 * time.Millisecond}, configFor(b))
	w.server.addSource("a")
	w.server.addSource("b")
	p := w.addPlayer(b)
	p.messages(300, 300)
	p.start(5)
	n, moves := uint32(0), 0
	var own *dnptest.Link
	w.net.Every(33*time.Millisecond, func() bool {
		n++
		change(w.server.sources[n%2], int(n/2)%3, n)
		if own == nil && n > 60 && p.Phase() == dnptest.Connected && (p.Queued() == 0 || !b.DropsTail) {
			own, _ = p.Offer(w.net.Now(), newState(t, 5, 5), []byte("mine"), false)
		}
		if n%15 == 0 && p.remote() != nil && (own == nil || own.Phase == dnptest.LinkIsUp) { // a snapshot has no unanswered offers
			w.server.move(p.remote())
			moves++
		}
		w.net.Wake(serverAddr)
		return n < 600
	})
	done := w.net.RunUntil(2*time.Minute, func() bool { return p.ended() || p.done() && n >= 600 })
	w.net.Run(8 * time.Second)
	if p.wrong != "" || !done || p.ended() {
		t.Fatalf("%s; client %v %q has %d messages, server %d; %+v", p.wrong, p.Phase(), p.Reason(), p.want.next, p.remote().want.next, p.remote())
	}
	for i, name := range []string{"a", "b"} {
		if !p.equal(w.server.sources[i], name) {
			t.Errorf("state %s differs", name)
		}
	}
	if moves < 10 || p.Stats.Exceptions > 0 && b.LongMessage != dnptest.LongSticks { // Java raises at a trial
		t.Errorf("%d moves, %+v", moves, p.Stats)
	}
}

// move replaces the Endpoint by a new one that continues the connection of r from its
// snapshot and the states.
func (s *server) move(r *remote) {
	snapshot := r.conn.AppendSnapshot(nil)
	e, err := dnp.New(dnp.Config{Profile: s.profile, Listen: true, Rand: rand.New(rand.NewPCG(1, uint64(s.w.net.Elapsed())))})
	if err != nil {
		s.w.Fatal(err)
	}
	s.e = e
	for i, old := range s.sources {
		s.sources[i] = e.NewSource(dnp.SourceConfig{State: old.State(), Message: []byte(s.names[i]), Ref: uint64(i)})
	}
	if old := r.own; old != nil {
		r.own = e.NewSource(dnp.SourceConfig{State: old.State(), Message: []byte("own"), Ref: ownRef})
	}
	r.conn, err = e.Restore(s.w.net.Now(), r.conn.Addr(), snapshot, func(ref uint64) *dnp.Source {
		if ref == ownRef {
			return r.own
		}
		return s.sources[ref]
	})
	if err != nil {
		s.w.Fatalf("restore: %v", err)
	}
}
