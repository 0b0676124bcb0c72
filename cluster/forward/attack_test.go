package forward

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// An attacker of a world sees every datagram, keeps, changes and repeats them and sends
// what it likes, but has no key.
type attacker struct {
	*world
	rng  *rand.Rand
	seen []sent
}

// datagram returns something to try, and whether it is what a peer sealed for b, whole.
func (a *attacker) datagram(b *node) (p []byte, real bool) {
	s := a.seen[a.rng.IntN(len(a.seen))]
	p = bytes.Clone(s.b)
	switch a.rng.IntN(6) {
	case 0: // as it is, to any edge
		return p, s.to == b.addr
	case 1:
		p[a.rng.IntN(len(p))] ^= 1 << a.rng.IntN(8)
	case 2:
		p = p[:a.rng.IntN(len(p))]
	case 3:
		p = append(p, byte(a.rng.Uint32()))
	case 4: // the head of one, the body of another
		copy(p, a.seen[a.rng.IntN(len(a.seen))].b[:headerSize])
		return p, s.to == b.addr && bytes.Equal(p, s.b)
	default: // all its own, under the name of a peer and of its key
		p = append(bytes.Clone(p[:12]), make([]byte, 8+bodyMin+5+tagSize)...)
		for i := 12; i < len(p); i++ {
			p[i] = byte(a.rng.Uint32())
		}
	}
	return p, false
}

// TestAttack: whatever the attacker does, every edge takes each datagram that was sealed
// for it once at most, and nothing else.
func TestAttack(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	for round := range 20 {
		w := newWorld(t, "a", "b", "c")
		a := &attacker{world: w, rng: rand.New(rand.NewPCG(*seed, uint64(round)))}
		honest := a.rng.IntN(2) == 0 // the peers' own datagrams come, too
		taken := map[*node]map[string]int{}
		for _, n := range w.order {
			taken[n] = map[string]int{}
			for i := range 20 {
				n.owned[client(i)] = 1
			}
		}
		for step := range 500 {
			from, to := w.order[a.rng.IntN(3)], w.order[a.rng.IntN(3)]
			if from != to {
				from.In(w.now, to.name, client(a.rng.IntN(20)), 0, []byte{byte(step), byte(step >> 8)}, from)
				for _, s := range from.take() {
					a.seen = append(a.seen, s)
					if honest {
						a.try(s.b, true, to, taken[to])
					}
				}
			}
			if len(a.seen) > 0 {
				b := w.order[a.rng.IntN(3)]
				p, real := a.datagram(b)
				a.try(p, real, b, taken[b])
			}
		}
	}
}

// try gives p to b and checks what b says.
func (a *attacker) try(p []byte, real bool, b *node, taken map[string]int) {
	a.t.Helper()
	before := bytes.Clone(p)
	d := b.Receive(a.now, p, b)
	b.take()
	if d.Kind == Nothing {
		return
	}
	if !real {
		a.t.Fatalf("%x was taken by %s as %+v, and no peer sealed it for this edge", before, b.name, d)
	}
	if taken[string(before)]++; taken[string(before)] > 1 {
		a.t.Fatalf("%x was taken twice", before)
	}
}

// TestStolenKey shows what a thief of the gossip key can do, once gossip has told the others of its
// ghost edge: send datagrams in a client's name to the client's edge, and in an edge's name to a
// client. In the name of another edge it can do the same, because gossip tells the ids from which
// keys derive; then it also shuts out that edge.
func TestStolenKey(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	thief := w.start("thief", 2, 77)
	thief.SetPeers(w.now, w.roster())
	thief.In(w.now, "b", client(1), 0, []byte("x"), thief)
	w.settle()
	w.want("gossip has not told b of the thief", "b")
	w.drops("a stranger costs no key", "b", DropUnknownSender, 1)
	w.meet()
	thief.In(w.now, "b", client(1), 0, []byte("from a client"), thief)
	thief.Out(w.now, "b", client(2), 1, []byte("from an edge"), thief)
	w.settle()
	w.want("the thief is an edge like any other", "b", "owner from a client via thief", "client from an edge via thief epoch 1")
	thief = w.start("a", 0, a.id)
	thief.SetPeers(w.now, w.roster())
	thief.In(w.now, "b", client(1), 0, []byte("forged"), thief)
	w.settle()
	w.want("the thief has the id of a", "b", "owner forged via a")
	a.In(w.now, "b", client(1), 0, []byte("true"), a)
	for _, s := range a.take() {
		w.deliver(s)
	}
	w.want("the counter of a is used up", "b")
	w.drops("the counter of a is used up", "b", DropReplay, 1)
}

// TestReorder: datagrams may overtake each other by 1,023 others, not by more.
func TestReorder(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	send := func(text string) sent {
		a.In(w.now, "b", client(1), 0, []byte(text), a)
		return a.take()[0]
	}
	first, second := send("first"), send("second")
	for range windowSize - 1 {
		w.deliver(send("x"))
	}
	b.got = nil
	w.deliver(first)
	w.want("overtaken by 1,024", "b")
	w.drops("it is too late to tell whether it came", "b", DropReplay, 1)
	w.deliver(second)
	w.want("overtaken by 1,023", "b", "owner second via a")
}

// TestForgedCounter: a datagram that was not sealed by a peer does not move the window.
func TestForgedCounter(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	s := a.take()[0]
	forged := bytes.Clone(s.b)
	forged[18] = 0xff // the counter
	b.take1(w.now, forged)
	w.drops("forged", "b", DropBadSeal, 1)
	w.deliver(s)
	w.want("the peer's own datagram is taken", "b", "owner x via a")
}

// TestReflect: an edge does not take what it sent itself, nor what was for another.
func TestReflect(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	a, c := w.nodes["a"], w.nodes["c"]
	a.owned[client(1)], c.owned[client(1)] = 1, 1
	a.In(w.now, "b", client(1), 0, []byte("x"), a)
	s := a.take()[0]
	a.take1(w.now, s.b)
	w.want("its own", "a")
	w.drops("its own", "a", DropUnknownSender, 1)
	c.take1(w.now, s.b)
	w.want("another edge's", "c")
	w.drops("another edge's", "c", DropBadSeal, 1)
}

// TestRotation: keys change without a datagram lost, in the order in which gossip does
// it: all edges know the new one, then they use it, then they forget the old one.
func TestRotation(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	check := func(why string) {
		t.Helper()
		a.In(w.now, "b", client(1), 0, []byte("x"), a)
		w.settle()
		w.want(why, "b", "owner x via a")
	}
	set := func(n *node, keys ...[]byte) {
		t.Helper()
		if err := n.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	check("one key")
	set(b, keyA, keyB)
	check("the other edge knows the next key")
	set(a, keyA, keyB)
	check("both know it")
	set(a, keyB, keyA)
	check("it is used")
	a.In(w.now, "b", client(1), 0, []byte("under way"), a)
	set(b, keyB)
	w.settle()
	w.want("what was under way comes", "b", "owner under way via a")
	set(a, keyB)
	check("the old one is forgotten")
	if a.byID[b.id].counter < 6 {
		t.Error("counters begin anew with a key, which may come back")
	}
	set(a, keyA)
	a.In(w.now, "b", client(1), 0, []byte("old"), a)
	w.settle()
	w.want("the old key", "b")
	w.drops("is unknown", "b", DropUnknownKey, 1)
}

// TestNameCollision: two keys with the same name are both tried.
func TestNameCollision(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	b.owned[client(1)] = 1
	if err := b.SetKeys([][]byte{keyB, keyA}); err != nil {
		t.Fatal(err)
	}
	b.ring[0].name = b.ring[1].name
	for range 2 {
		a.In(w.now, "b", client(1), 0, []byte("x"), a)
		w.settle()
		w.want("the second key opens", "b", "owner x via a")
	}
}

// TestKnownSecrets: what is derived must not change, or edges of two versions would not
// understand each other. The bytes were computed with Python (hmac, cryptography).
func TestKnownSecrets(t *testing.T) {
	ring, err := newRing([][]byte{keyA})
	if err != nil {
		t.Fatal(err)
	}
	got := ring[0].pair(1, 2).Seal(nil, make([]byte, nonceSize), []byte("x"), nil)
	if ring[0].name != 0xe5f2 || !bytes.Equal(got, unhex("35e34af77cd48367e332c3174bf7a9bcb4")) {
		t.Errorf("name %#04x, sealed %x", ring[0].name, got)
	}
}
