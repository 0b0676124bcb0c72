package forward

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
)

var (
	seeds = flag.Int("seeds", 100, "number of simulated clusters")
	story = flag.Bool("story", false, "tell what was counted")
)

// The clients of a simulation, and for how long an owner that was replaced goes on.
const (
	simClients = 12
	zombieTime = 3 * time.Second
	hintTime   = 2 * time.Second
)

// A sim is a cluster of edges that lose, confuse and restart. Sessions move between them,
// edges are told wrong things, and keys change.
type sim struct {
	t     *testing.T
	net   *simnet.Net
	rng   *rand.Rand
	edges []*simEdge

	truth   [simClients]home // which edge serves each client
	serial  uint64
	taken   map[uint64]int // datagrams that reached an owner
	shown   map[uint64]int // answers that reached a client
	origin  map[uint64]*simEdge
	keys    [][]byte
	restart uint64
	quiet   bool // trouble is over

	orphans int
}

type home struct {
	edge  *simEdge
	epoch uint64
}

// A simEdge is one node; its router is a process.
type simEdge struct {
	*sim
	*Router
	name    string
	addr    netip.AddrPort
	id      uint64
	owned   map[Client]uint64
	vias    map[Client]string
	zombies map[Client]time.Time // sessions that it does not know to be lost
	emitted map[Client]uint64    // highest epoch of what was sent to the client
	hints   map[Client]hint      // the location table
	down    bool
}

// A hint is where an edge believes that a client is.
type hint struct {
	node  string
	until time.Time
}

// learn remembers for a while where a client is, rightly or not.
func (e *simEdge) learn(c Client, node string) {
	if node != e.name {
		e.hints[c] = hint{node, e.net.Now().Add(hintTime)}
	}
}

// hinted returns where a client is, empty if that is not known.
func (e *simEdge) hinted(c Client) string {
	if h := e.hints[c]; h.until.After(e.net.Now()) {
		return h.node
	}
	return ""
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{
		t: t, net: simnet.New(seed), taken: map[uint64]int{}, shown: map[uint64]int{}, origin: map[uint64]*simEdge{}, keys: [][]byte{keyA},
	}
	s.rng = s.net.Rand()
	s.net.SetPath(simnet.Path{
		Loss: []float64{0, 0.02, 0.2}[s.rng.IntN(3)], Delay: time.Millisecond, Jitter: 20 * time.Millisecond,
		Duplicate: 0.05, Corrupt: 0.01,
	})
	for i := range 3 + s.rng.IntN(3) {
		e := &simEdge{sim: s, name: fmt.Sprint("e", i), addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7947)}
		s.edges = append(s.edges, e)
		e.start()
	}
	for i := range s.truth {
		s.move(i)
	}
	return s
}

// start begins a process. The others hear of it a moment later, each at its time.
func (e *simEdge) start() {
	s := e.sim
	s.restart++
	e.id = s.restart * 0x9e3779b97f4a7c15
	e.owned, e.vias, e.zombies, e.emitted = map[Client]uint64{}, map[Client]string{}, map[Client]time.Time{}, map[Client]uint64{}
	e.hints = map[Client]hint{}
	var err error
	e.Router, err = New(s.net.Now(), Config{Node: e.name, ID: e.id, Serves: func(c Client) (uint64, bool) {
		epoch, ok := e.owned[c]
		return epoch, ok
	}})
	if err == nil {
		err = e.SetKeys(s.keys)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	e.fence = newFence(8) // fewer than there are clients
	e.down = false
	s.net.Attach(e.addr, e)
	s.tell()
}

func (s *sim) tell() {
	for _, e := range s.edges {
		s.net.Schedule(time.Duration(s.rng.IntN(500))*time.Millisecond, func() {
			var list []Peer
			for _, p := range s.edges {
				if !p.down {
					list = append(list, Peer{p.name, p.id, p.addr})
				}
			}
			if s.rng.IntN(10) == 0 && !s.quiet {
				list = list[:len(list)-1] // gossip loses an edge
				s.tell()
			}
			e.SetPeers(s.net.Now(), list)
		})
	}
}

// Datagram and Send are those of a Sender.
func (e *simEdge) Datagram(size int) []byte         { return make([]byte, 0, size) }
func (e *simEdge) Send(to netip.AddrPort, b []byte) { e.net.Send(e.addr, to, b) }
func (e *simEdge) Advance(now time.Time)            { e.Router.Advance(now, e) }
func (e *simEdge) NextTimeout() (time.Time, bool)   { return e.Router.NextTimeout(), true }
func number(data []byte) (client int, serial uint64) {
	return int(data[0]), binary.LittleEndian.Uint64(data[1:])
}
func (s *sim) payload(i int) (b []byte, serial uint64) {
	s.serial++
	return binary.LittleEndian.AppendUint64([]byte{byte(i)}, s.serial), s.serial
}

// Receive takes what comes from the network.
func (e *simEdge) Receive(now time.Time, _ netip.AddrPort, p []byte) {
	d := e.Router.Receive(now, p, e)
	if d.Overtaken {
		e.lose(d.Client)
	}
	switch d.Kind {
	case ToOwner:
		e.owner(now, d)
	case ToClient:
		e.show(d)
	case Orphan:
		if to := e.hinted(d.Client); to != "" && to != d.Via { // not back to where it came from
			e.In(now, to, d.Client, d.Hops, d.Data, e)
			return
		}
		delete(e.hints, d.Client)
		e.orphans++
		e.orphan(now, d)
	case Misled:
		if e.hinted(d.Client) == d.Via {
			delete(e.hints, d.Client)
		}
	}
}

// owner takes a datagram of a client that e serves, or has served, and answers.
func (e *simEdge) owner(now time.Time, d Delivery) {
	i, serial := number(d.Data)
	if d.Client != client(i) || d.Hops > HopsMax {
		e.t.Fatalf("%s: a datagram of client %d came as one of %v, with %d hops", e.name, i, d.Client, d.Hops)
	}
	if e.taken[serial]++; e.taken[serial] > 1 {
		e.t.Fatalf("%s: datagram %d was taken twice", e.name, serial)
	}
	e.vias[d.Client] = d.Via
	e.answer(now, i)
}

func (e *simEdge) answer(now time.Time, i int) {
	if via, ok := e.vias[client(i)]; ok {
		b, _ := e.payload(i)
		e.Out(now, via, client(i), e.owned[client(i)], b, e)
	}
}

// show is what a client gets. An edge that has passed on what a later owner said passes
// nothing on from before.
func (e *simEdge) show(d Delivery) {
	_, serial := number(d.Data)
	if e.shown[serial]++; e.shown[serial] > 1 {
		e.t.Fatalf("%s: answer %d was taken twice", e.name, serial)
	}
	if d.Epoch < e.emitted[d.Client] && e.remembers(d.Client) {
		e.t.Fatalf("%s: an answer of epoch %d for %v after one of %d", e.name, d.Epoch, d.Client, e.emitted[d.Client])
	}
	e.emitted[d.Client] = max(e.emitted[d.Client], d.Epoch)
}

// remembers reports whether the fence still has the epoch of the newest answer: it has room
// for 8 clients of 12 only.
func (e *simEdge) remembers(c Client) bool {
	entry := e.fence.find(c.key())
	return entry != nil && entry.epoch >= e.emitted[c]
}

// orphan finds out which edge serves the client, or is mistaken.
func (e *simEdge) orphan(now time.Time, d Delivery) {
	i, _ := number(d.Data)
	node := e.truth[i].edge
	if !e.quiet && e.rng.IntN(3) == 0 {
		node = e.edges[e.rng.IntN(len(e.edges))]
	}
	if node != e && d.Hops < HopsMax {
		e.learn(d.Client, node.name)
		e.In(now, node.name, d.Client, d.Hops, d.Data, e)
	}
}

// lose ends a session that e had.
func (e *simEdge) lose(c Client) {
	delete(e.owned, c)
	delete(e.zombies, c)
	delete(e.vias, c)
}

// move gives a client to another edge. The one before notices it sooner or later.
func (s *sim) move(i int) {
	old := s.truth[i]
	to := s.edges[s.rng.IntN(len(s.edges))]
	if to.down || to == old.edge {
		return
	}
	if e := old.edge; e != nil {
		if s.rng.IntN(2) == 0 {
			e.lose(client(i))
			e.learn(client(i), to.name)
		} else {
			e.zombies[client(i)] = s.net.Now().Add(zombieTime)
		}
	}
	delete(to.zombies, client(i))
	s.truth[i] = home{to, old.epoch + 1}
	to.owned[client(i)] = old.epoch + 1
}

// say has a client send a datagram, which a balancer brings to some edge.
func (s *sim) say(i int) (serial uint64) {
	e := s.edges[s.rng.IntN(len(s.edges))]
	if e.down {
		return 0
	}
	b, serial := s.payload(i)
	now := s.net.Now()
	if _, ok := e.owned[client(i)]; ok {
		delete(e.vias, client(i))
		s.taken[serial]++
		return serial
	}
	if s.quiet {
		e.In(now, s.truth[i].edge.name, client(i), 0, b, e)
		return serial
	}
	if to := e.hinted(client(i)); to != "" {
		e.In(now, to, client(i), 0, b, e)
	} else {
		e.orphan(now, Delivery{Client: client(i), Data: b})
	}
	return serial
}

// trouble does one thing that a cluster does not expect.
func (s *sim) trouble() {
	e := s.edges[s.rng.IntN(len(s.edges))]
	now := s.net.Now()
	switch s.rng.IntN(10) {
	case 0, 1, 2:
		s.move(s.rng.IntN(simClients))
	case 3, 4, 5: // a hint that is wrong
		e.learn(client(s.rng.IntN(simClients)), s.edges[s.rng.IntN(len(s.edges))].name)
	case 6, 7:
		for c := range e.zombies {
			for i := range simClients {
				if client(i) == c {
					e.answer(now, i)
				}
			}
		}
	case 8:
		s.crash(e)
	case 9:
		s.rotate()
	}
}

// crash ends a process; another one begins a second later, with nothing.
func (s *sim) crash(e *simEdge) {
	up := 0
	for _, o := range s.edges {
		if !o.down {
			up++
		}
	}
	if e.down || up < 3 || s.rng.IntN(4) > 0 {
		return
	}
	e.down = true
	s.net.Detach(e.addr)
	for i := range s.truth {
		for s.truth[i].edge == e {
			s.move(i)
		}
	}
	s.tell()
	s.net.Schedule(time.Second, e.start)
}

// rotate changes the key as gossip does: known to all, used, the old one forgotten. Each
// step takes longer than it takes all edges to follow.
func (s *sim) rotate() {
	if len(s.keys) > 1 {
		return
	}
	old := s.keys[0]
	next := binary.LittleEndian.AppendUint64([]byte("a key of 24 byte"), s.rng.Uint64())
	for step, keys := range [][][]byte{{old, next}, {next, old}, {next}} {
		s.net.Schedule(time.Duration(step)*time.Second, func() {
			s.keys = keys
			for _, e := range s.edges {
				s.net.Schedule(time.Duration(s.rng.IntN(900))*time.Millisecond, func() {
					if err := e.SetKeys(keys); err != nil {
						s.t.Fatal(err)
					}
				})
			}
		})
	}
}

// run plays for some seconds and then heals.
func (s *sim) run() {
	for range 2000 {
		s.say(s.rng.IntN(simClients))
		if s.rng.IntN(5) == 0 {
			s.trouble()
		}
		s.net.Run(time.Duration(s.rng.IntN(10)) * time.Millisecond)
	}
	s.quiet = true
	s.net.SetPath(simnet.Path{Delay: time.Millisecond, Jitter: time.Millisecond, Duplicate: 0.1})
	s.net.Run(6 * time.Second)
	for _, e := range s.edges {
		for c := range e.zombies {
			e.lose(c)
		}
	}
	s.check()
}

// check sends a datagram of each client to each edge: all arrive, once.
func (s *sim) check() {
	for _, e := range s.edges {
		for _, p := range s.edges {
			if is := e.Liveness(s.net.Now(), p.name); p != e && is != Alive {
				s.t.Errorf("%s takes %s for %v after all is well", e.name, p.name, is)
			}
		}
	}
	var sent []uint64
	for i := range simClients {
		for range 20 {
			sent = append(sent, s.say(i))
		}
		s.net.Run(20 * time.Millisecond)
	}
	s.net.Run(time.Second)
	for _, serial := range sent {
		if s.taken[serial] != 1 {
			s.t.Errorf("datagram %d of %d was taken %d times", serial, len(sent), s.taken[serial])
		}
	}
	var sum Stats
	for _, e := range s.edges {
		st := e.Router.Stats(s.net.Now())
		for i := range st.Drops {
			sum.Drops[i] += st.Drops[i]
		}
		sum.In += st.In
		sum.Relayed += st.Relayed
		sum.NacksOut += st.NacksOut
	}
	if *story {
		s.t.Logf("%d edges, %d in, %d relayed, %d nacks, %d orphans, %d restarts, drops %v", len(s.edges), sum.In, sum.Relayed, sum.NacksOut, s.orphans, s.restart, sum.Drops)
	}
}

func TestSim(t *testing.T) {
	for i := range *seeds {
		n := *seed + uint64(i)
		t.Run(fmt.Sprint("seed=", n), func(t *testing.T) {
			newSim(t, n).run()
			if t.Failed() {
				t.Logf("repeat with -run TestSim -seeds 1 -seed %d -story", n)
			}
		})
	}
}
