package forward

import (
	"testing"
	"time"
)

func TestForward(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 7
	if a.In(w.now, "d", client(1), 0, []byte("hi"), a) {
		t.Error("a node that is not known is reached")
	}
	w.drops("a node that is not known", "a", DropNoPeer, 1)
	if !a.In(w.now, "b", client(1), 0, []byte("hi"), a) {
		t.Fatal("not sent")
	}
	w.settle()
	w.want("the edge that serves the client gets the datagram", "b", "owner hi via a")
	b.Out(w.now, "a", client(1), 7, []byte("ack"), b)
	w.settle()
	w.want("the answer leaves where the client's datagram came", "a", "client ack via b epoch 7")
	a.In(w.now, "b", client(1), 0, []byte("more"), a)
	w.settle()
	w.want("the highest epoch that is known goes with it", "b", "owner more via a epoch 7")
}

func TestForwardIPv6(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client6] = 1
	a.In(w.now, "b", client6, 0, []byte("x"), a)
	w.settle()
	if len(b.got) != 1 || b.got[0].Client != client6 {
		t.Errorf("got %+v", b.got)
	}
}

func TestEgressFence(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
	b.owned[client(1)] = 7
	b.Out(w.now, "a", client(1), 7, []byte("old"), b)
	w.settle()
	w.want("the first owner speaks", "a", "client old via b epoch 7")
	c.owned[client(1)] = 8
	c.Out(w.now, "a", client(1), 8, []byte("new"), c)
	w.settle()
	w.want("its successor speaks", "a", "client new via c epoch 8")
	b.Out(w.now, "a", client(1), 7, []byte("zombie"), b)
	w.settle()
	w.want("the first one wakes, and the client hears nothing of it", "a")
	w.drops("so it is counted", "a", DropStaleEpoch, 1)
	w.want("the first one learns that it was replaced", "b", "nothing epoch 8 overtaken")
	a.In(w.now, "c", client(1), 0, []byte("x"), a)
	w.settle()
	w.want("the zombie did not change the epoch", "c", "owner x via a epoch 8")
	w.want("nor does it get anything", "b")
}

func TestFenceOfTheOwnSession(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	a.owned[client(1)] = 8
	b.owned[client(1)] = 7
	b.Out(w.now, "a", client(1), 7, []byte("zombie"), b)
	w.settle()
	w.want("an edge that has adopted the client lets no answer of another edge through", "a")
	w.want("and says so", "b", "nothing epoch 8 overtaken")
	b.owned[client(1)] = 9
	b.Out(w.now, "a", client(1), 9, []byte("next"), b)
	w.settle()
	w.want("but it may be the zombie itself", "a", "client next via b epoch 9 overtaken")
}

func TestFenceIsForgotten(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.Out(w.now, "a", client(1), 7, []byte("x"), b)
	w.settle()
	w.now = w.now.Add(fenceFor + time.Second)
	for _, n := range []*node{a, b} {
		n.Advance(w.now, n)
	}
	w.settle()
	a.got = nil
	b.Out(w.now, "a", client(1), 1, []byte("another session"), b)
	w.settle()
	w.want("a log that is gone begins with 1 again", "a", "client another session via b epoch 1")
}

func TestHops(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	a, b, c, d := w.nodes["a"], w.nodes["b"], w.nodes["c"], w.nodes["d"]
	d.owned[client(1)] = 3
	b.fence.touch(client(1).key()).observe(0, 3)
	b.hints[client(1)] = "d"
	a.In(w.now, "b", client(1), 0, []byte("one"), a)
	w.settle()
	w.want("the second hop reaches the owner, which answers by the first edge", "d", "owner one via a epoch 3")
	w.want("the first edge has to look again", "a", "misled via b epoch 3")
	c.hints[client(1)], b.hints[client(1)] = "d", "c"
	a.In(w.now, "b", client(1), 0, []byte("two"), a)
	w.settle()
	w.want("a third hop is none", "d")
	w.drops("and counted where it would be", "c", DropHops, 1)
}

// TestThreeHops: a peer that says so is wrong, but it is a peer.
func TestThreeHops(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	a.seal(a.byID[b.id], TypeIn, &message{hops: 3, origin: a.id, client: client(1), data: []byte("x")}, a)
	w.settle()
	w.want("three hops", "b")
	w.drops("three hops", "b", DropHops, 1)
}

func TestLoop(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.fence.touch(client(1).key()).observe(0, 2)
	a.hints[client(1)], b.hints[client(1)] = "b", "a"
	if !a.In(w.now, "b", client(1), 0, []byte("x"), a) {
		t.Fatal("not sent")
	}
	w.settle()
	w.want("two edges that believe each other have the client: the second looks for itself", "b", "orphan x via a epoch 2")
	w.want("the first one is not sent its own datagram, but told that it is wrong", "a", "misled via b epoch 2")
}

func TestOrphanGoesOn(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
	c.owned[client(1)] = 1
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	w.settle()
	w.want("b does not serve the client", "b", "orphan x via a")
	b.In(w.now, "c", client(1), 1, []byte("x"), b)
	w.settle()
	w.want("the edge found the owner, which answers by the first edge", "c", "owner x via a")
	if b.In(w.now, "c", client(1), HopsMax, []byte("x"), b) {
		t.Error("an orphan of two hops is forwarded")
	}
	w.drops("is a hop too many", "b", DropHops, 1)
	if b.stats.Orphans != 1 || b.stats.Relayed != 1 || a.stats.In != 1 {
		t.Errorf("%d orphans, %d relayed by b, %d sent by a, want 1 each", b.stats.Orphans, b.stats.Relayed, a.stats.In)
	}
}

// TestRoundTrip: what goes around and comes back to the edge that it came to first is what came
// to that edge directly. An answer that left by the other one would leave by an address that
// the client never heard of.
func TestRoundTrip(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	w.settle()
	w.want("b does not serve the client", "b", "orphan x via a")
	b.In(w.now, "a", client(1), 1, []byte("x"), b)
	w.settle()
	w.want("its own", "a", "misled via b", "orphan x")
}

func TestSuspect(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	w.pass(time.Second)
	if got := a.Liveness(w.now, "b"); got != Alive {
		t.Fatalf("with heartbeats: %v", got)
	}
	stopped := w.now
	var at time.Duration
	for at == 0 && w.now.Sub(stopped) < time.Second {
		w.now = w.now.Add(10 * time.Millisecond)
		for _, c := range a.Advance(w.now, a) {
			if c != (Change{"b", Suspect}) {
				t.Errorf("told %v", c)
			}
			at = w.now.Sub(stopped)
		}
	}
	if at < 300*time.Millisecond || at > SuspectAfter+HeartbeatInterval {
		t.Errorf("suspected %v after the last heartbeat", at)
	}
	if a.In(w.now, "b", client(1), 0, []byte("x"), a) {
		t.Errorf("a datagram for an edge that is suspected")
	}
	a.SetPeers(w.now, nil)
	if a.In(w.now, "b", client(1), 0, []byte("x"), a) {
		t.Errorf("the roster drops the dead, which makes none of them alive")
	}
	a.take()
	b.Advance(w.now, b)
	w.settle()
	if got := a.Liveness(w.now, "b"); got != Alive {
		t.Errorf("one heartbeat ends the suspicion: %v", got)
	}
}

// TestGossipIsFirst: the roster drops a dead edge before heartbeats show that it is dead.
func TestGossipIsFirst(t *testing.T) {
	w := newWorld(t, "a", "b")
	a := w.nodes["a"]
	w.pass(time.Second)
	a.SetPeers(w.now, nil)
	for stopped := w.now; w.now.Sub(stopped) < SuspectAfter+HeartbeatInterval; w.now = w.now.Add(10 * time.Millisecond) {
		a.Advance(w.now, a)
	}
	if a.In(w.now, "b", client(1), 0, []byte("x"), a) {
		t.Errorf("a datagram for an edge that is silent")
	}
}

func TestStallSuspectsNone(t *testing.T) {
	w := newWorld(t, "a", "b")
	a := w.nodes["a"]
	w.pass(time.Second)
	w.now = w.now.Add(5 * time.Second) // a was stopped
	a.Advance(w.now, a)
	if got := a.Liveness(w.now, "b"); got != Alive {
		t.Errorf("an edge that was stopped cannot know: %v", got)
	}
	if a.stats.Stalls != 1 {
		t.Errorf("%d stalls", a.stats.Stalls)
	}
}

func TestGone(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	w.pass(time.Second)
	a.SetPeers(w.now, nil)
	if !a.In(w.now, "b", client(1), 0, []byte("x"), a) {
		t.Errorf("an edge that left the roster a moment ago")
	}
	w.settle()
	w.want("still gets what is for it", "b", "owner x via a")
	w.now = w.now.Add(goneAfter)
	if got := a.Liveness(w.now, "b"); got != Gone {
		t.Errorf("two seconds later: %v", got)
	}
	if a.Out(w.now, "b", client(1), 1, []byte("x"), a) {
		t.Error("an answer by an edge that is gone")
	}
	w.drops("is counted", "a", DropNoPeer, 1)
}

// TestFlap: gossip loses an edge for a moment. Nothing that came before may be taken
// again, and no counter may be used again.
func TestFlap(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	old := a.outbox.list[0]
	w.settle()
	w.want("first", "b", "owner x via a")
	list := w.roster()
	for _, n := range []*node{a, b} {
		n.SetPeers(w.now, nil)
		n.SetPeers(w.now, list)
	}
	w.deliver(old)
	w.want("the datagram comes again", "b")
	w.drops("and is known", "b", DropReplay, 1)
	a.In(w.now, "b", client(1), 0, []byte("y"), a)
	w.settle()
	w.want("new ones are taken", "b", "owner y via a")
}

// TestForgottenPeerGoesOn: after a thousand other processes a peer is forgotten; when it
// comes back, counters that were used are not used again.
func TestForgottenPeerGoesOn(t *testing.T) {
	w := newWorld(t, "a", "b")
	a := w.nodes["a"]
	for range 5 {
		a.In(w.now, "b", client(1), 0, []byte("x"), a)
	}
	list := w.roster()
	for i := range departedMax + 2 {
		a.SetPeers(w.now, []Peer{{"z", uint64(i) + 1000, w.nodes["b"].addr}})
	}
	if a.byID[w.nodes["b"].id] != nil || len(a.byID) > departedMax+2 {
		t.Fatalf("%d processes are remembered, and the first is among them: %v", len(a.byID), a.byID[w.nodes["b"].id] != nil)
	}
	a.SetPeers(w.now, list)
	if got := a.byID[w.nodes["b"].id].counter; got < 5 {
		t.Errorf("the next counter would be %d", got+1)
	}
}

func TestRestart(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	old := a.outbox.list[0]
	w.settle()
	w.start("b", 1, 77).owned[client(1)] = 2
	w.meet()
	w.deliver(old)
	w.want("a datagram for the former process is lost", "b")
	w.drops("because it has another key", "b", DropBadSeal, 1)
	a.In(w.now, "b", client(1), 0, []byte("y"), a)
	w.settle()
	w.want("the new process is reached under the old name", "b", "owner y via a")
}

func TestOff(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	if err := b.SetKeys(nil); err != nil || len(b.ring) > 0 {
		t.Fatal(err)
	}
	w.settle()
	w.drops("without keys nothing is taken", "b", DropOff, 1)
	if b.In(w.now, "a", client(1), 0, []byte("x"), b) {
		t.Errorf("nor sent")
	}
	b.Advance(w.now.Add(time.Second), b)
	if len(b.take()) > 0 {
		t.Error("nor are there heartbeats")
	}
	if b.SetKeys([][]byte{[]byte("short")}) == nil || b.SetKeys(make([][]byte, KeysMax+1)) == nil {
		t.Error("bad keys pass")
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client6] = 1
	if a.In(w.now, "b", client6, 0, make([]byte, DatagramMax+1), a) {
		t.Errorf("too large")
	}
	w.drops("too large", "a", DropTooLarge, 1)
	a.In(w.now, "b", client6, 0, make([]byte, DatagramMax), a)
	if n := len(a.outbox.list[0].b); n != 65507 {
		t.Errorf("the largest has %d bytes", n)
	}
	w.settle()
	if len(b.got) != 1 || len(b.got[0].Data) != DatagramMax {
		t.Error("the largest did not come")
	}
	for _, addr := range []string{"[fe80::1%2]:5", "[::ffff:192.0.2.1]:5"} {
		c := client6
		c.Addr = mustAddr(addr)
		if a.In(w.now, "b", c, 0, []byte("x"), a) {
			t.Errorf("%s means nothing to others, and is sent", addr)
		}
	}
	w.drops("no addresses", "a", DropAddress, 2)
}

// TestSize: the largest datagram of the reference clients and what becomes of it, with
// headers of IP and UDP.
func TestSize(t *testing.T) {
	const reference = 1361 // a part of 1,357 bytes and its command
	w := newWorld(t, "a", "b")
	a := w.nodes["a"]
	for _, c := range []struct {
		client Client
		want   int
	}{{client(1), reference + 61}, {client6, reference + 73}} {
		a.In(w.now, "b", c.client, 0, make([]byte, reference), a)
		n := len(a.take()[0].b)
		if n != c.want {
			t.Errorf("%v: %d bytes, want %d", c.client, n, c.want)
		}
		if n+48 > 1500 {
			t.Errorf("%v: %d bytes with IPv6 and UDP do not fit 1,500", c.client, n+48)
		}
		if c.client != client6 && n+28 > 1450 {
			t.Errorf("%d bytes with IPv4 and UDP do not fit a VXLAN of 1,450", n+28)
		}
	}
}
