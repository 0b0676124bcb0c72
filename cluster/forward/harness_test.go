package forward

import (
	"flag"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

var (
	epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	keyA  = []byte("0123456789abcdef0123456789abcdef")
	keyB  = []byte("fedcba9876543210fedcba9876543210")
)

func client(n int) Client {
	return Client{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n >> 8)}), 1000+uint16(n)), 3413}
}

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

var client6 = Client{netip.MustParseAddrPort("[2001:db8::7]:5000"), 3414}

// A sent datagram is one that a router gave to its Sender.
type sent struct {
	to netip.AddrPort
	b  []byte
}

// An outbox is a Sender that keeps what it gets.
type outbox struct {
	buf  []byte
	list []sent
}

func (o *outbox) Datagram(size int) []byte {
	o.buf = make([]byte, 0, size)
	return o.buf
}

func (o *outbox) Send(to netip.AddrPort, b []byte) {
	if cap(o.buf) > 0 && &b[:1][0] != &o.buf[:1][0] {
		panic("a datagram outgrew its buffer")
	}
	o.list = append(o.list, sent{to, b})
}

func (o *outbox) take() []sent {
	list := o.list
	o.list = nil
	return list
}

// A node is a router of the harness, with the clients that it serves and where it believes
// that others are.
type node struct {
	*Router
	outbox
	name  string
	addr  netip.AddrPort
	id    uint64
	owned map[Client]uint64
	hints map[Client]string
	got   []Delivery // with data of its own
}

// A world is some edges in one place, without loss or delay.
type world struct {
	t     *testing.T
	now   time.Time
	rate  admit.Rate
	nodes map[string]*node
	order []*node
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, now: epoch, nodes: map[string]*node{}}
	for i, name := range names {
		w.start(name, i, uint64(i+1)*0x0101010101010101)
	}
	w.meet()
	return w
}

// start begins a process of a node.
func (w *world) start(name string, i int, id uint64) *node {
	n := &node{name: name, id: id, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7947), owned: map[Client]uint64{}, hints: map[Client]string{}}
	var err error
	n.Router, err = New(w.now, Config{Node: name, ID: id, Rate: w.rate, Serves: func(c Client) (uint64, bool) {
		e, ok := n.owned[c]
		return e, ok
	}})
	if err == nil {
		err = n.SetKeys([][]byte{keyA})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if old := w.nodes[name]; old != nil {
		for i := range w.order {
			if w.order[i] == old {
				w.order[i] = n
			}
		}
	} else {
		w.order = append(w.order, n)
	}
	w.nodes[name] = n
	return n
}

// Liveness returns what the router believes about a node.
func (r *Router) Liveness(now time.Time, node string) Liveness {
	p := r.byName[node]
	if p == nil {
		return Gone
	}
	return r.liveness(r.since(now), p)
}

// find returns the entry of a client, nil if there is none.
func (f *fence) find(k clientKey) *fenceEntry {
	if i, ok := f.index[k]; ok {
		return &f.entries[i]
	}
	return nil
}

// meet gives all nodes the roster.
func (w *world) meet() {
	for _, n := range w.order {
		n.SetPeers(w.now, w.roster())
	}
}

func (w *world) roster() (list []Peer) {
	for _, n := range w.order {
		list = append(list, Peer{n.name, n.id, n.addr})
	}
	return list
}

// settle delivers all datagrams and those that they cause.
func (w *world) settle() {
	for range 100 {
		idle := true
		for _, n := range w.order {
			for _, s := range n.take() {
				idle = false
				w.deliver(s)
			}
		}
		if idle {
			return
		}
	}
	w.t.Fatal("the edges go on sending to each other")
}

func (w *world) deliver(s sent) {
	for _, n := range w.order {
		if n.addr == s.to {
			n.take1(w.now, s.b)
		}
	}
}

func (n *node) take1(now time.Time, b []byte) {
	d := n.Receive(now, append([]byte(nil), b...), n)
	if d.Kind == Orphan && n.onward(now, d) {
		return
	}
	if d.Kind != Nothing || d.Overtaken {
		d.Data = append([]byte(nil), d.Data...)
		n.got = append(n.got, d)
	}
}

// onward forwards a datagram once more, as the location table of an edge does: not back to
// where it came from.
func (n *node) onward(now time.Time, d Delivery) bool {
	to := n.hints[d.Client]
	if to == "" || to == d.Via {
		return false
	}
	n.In(now, to, d.Client, d.Hops, d.Data, n)
	return true
}

// pass lets time go by, with heartbeats.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(HeartbeatInterval / 2)
		for _, n := range w.order {
			n.Advance(w.now, n)
		}
		w.settle()
	}
}

// want checks what one edge was told since the last check.
func (w *world) want(why, name string, want ...string) {
	w.t.Helper()
	var got []string
	n := w.nodes[name]
	for _, d := range n.got {
		got = append(got, describe(d))
	}
	n.got = nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: edge %s was told\n  %q, want\n  %q", why, name, got, want)
	}
}

func describe(d Delivery) string {
	s := [...]string{"nothing", "owner", "client", "orphan", "misled"}[d.Kind]
	if len(d.Data) > 0 {
		s += " " + string(d.Data)
	}
	if d.Via != "" {
		s += " via " + d.Via
	}
	if d.Epoch != 0 {
		s += fmt.Sprint(" epoch ", d.Epoch)
	}
	if d.Overtaken {
		s += " overtaken"
	}
	return s
}

// drops checks one counter of an edge.
func (w *world) drops(why, name string, reason DropReason, want uint64) {
	w.t.Helper()
	if got := w.nodes[name].stats.Drops[reason]; got != want {
		w.t.Errorf("%s: edge %s dropped %d for %v, want %d", why, name, got, reason, want)
	}
}
