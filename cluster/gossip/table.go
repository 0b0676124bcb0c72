package gossip

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// membersMax bounds the members that a node takes notice of. More are ignored and
// logged.
const membersMax = 4096

// A table holds what this node tells and what the others told. It is memberlist's
// delegate for everything.
//
// It has a mutex, because memberlist calls it from goroutines of its own, while it
// holds its own lock; so nothing here may call memberlist back. A notification
// would have to be queued otherwise, and an owner that is late would block gossip.
type table struct {
	changed  chan struct{} // one slot: the roster is another one
	news     chan struct{} // the same, for the log
	conflict func(addr netip.AddrPort)

	mu     sync.Mutex
	self   cluster.Member
	others map[string]cluster.Member
	roster cluster.Roster
	stale  bool // roster is older than self and others
	met    bool // there was another member once
	clash  *ShardsError
}

func newTable(self cluster.Member) *table {
	return &table{changed: make(chan struct{}, 1), news: make(chan struct{}, 1), self: self, others: map[string]cluster.Member{}, stale: true}
}

// snapshot returns the newest roster, with this node as it is and not as it was
// told to the others last.
func (t *table) snapshot() cluster.Roster {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stale {
		list := []cluster.Member{t.self}
		for _, m := range t.others {
			list = append(list, m)
		}
		t.roster, t.stale = cluster.NewRoster(list), false
	}
	return t.roster
}

// edit changes what this node tells and reports whether it is something else
// than before.
func (t *table) edit(change func(*cluster.Member)) bool {
	t.mu.Lock()
	before := t.self
	change(&t.self)
	same := t.self.Equal(before)
	if !same {
		t.stale = true
	}
	t.mu.Unlock()
	if !same {
		t.notify()
	}
	return !same
}

// notify says that the roster is another one. It never blocks: who was told
// already will see the newest.
func (t *table) notify() {
	for _, c := range []chan struct{}{t.changed, t.news} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// established reports whether this node has been in a cluster.
func (t *table) established() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.met
}

// knows reports whether an alive member has the address.
func (t *table) knows(addr netip.AddrPort) bool {
	for m := range t.snapshot().All() {
		if m.Gossip == addr {
			return true
		}
	}
	return false
}

// takeClash returns the last disagreement on the number of shards, once.
func (t *table) takeClash() *ShardsError {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clash
	t.clash = nil
	return c
}

// member returns what a node of memberlist tells. memberlist goes on changing the
// node, so nothing of it is kept.
func member(n *memberlist.Node) (cluster.Member, error) {
	m, err := cluster.ParseMetadata(n.Meta)
	m.Name, m.Gossip = n.Name, addrPort(n.Addr, n.Port)
	return m, err
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// NodeMeta is what this node tells.
func (t *table) NodeMeta(int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.self.AppendMetadata(nil)
}

// NotifyJoin takes in a member that is there.
func (t *table) NotifyJoin(n *memberlist.Node) { t.NotifyUpdate(n) }

// NotifyUpdate takes in what a member tells anew.
func (t *table) NotifyUpdate(n *memberlist.Node) {
	m, err := member(n)
	t.mu.Lock()
	if err != nil || m.Name == t.self.Name {
		t.mu.Unlock()
		return
	}
	t.others[m.Name] = m
	t.stale, t.met = true, true
	t.mu.Unlock()
	t.notify()
}

// NotifyLeave forgets a member that left or died.
func (t *table) NotifyLeave(n *memberlist.Node) {
	t.mu.Lock()
	_, ok := t.others[n.Name]
	delete(t.others, n.Name)
	t.stale = true
	t.mu.Unlock()
	if ok {
		t.notify()
	}
}

var errMembers = errors.New("there are more members than this node takes notice of")

// NotifyAlive decides whether to take notice of a node, whoever told about it.
func (t *table) NotifyAlive(n *memberlist.Node) error {
	m, err := member(n)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.others[n.Name]
	switch {
	case n.Name == t.self.Name:
		return nil // memberlist has to contradict what is said about us
	case err != nil:
		return err
	case len(n.Name) > cluster.NameMax:
		return cluster.ErrMetadata
	case m.Shards != t.self.Shards:
		return &ShardsError{Member: m.Name, Theirs: m.Shards, Ours: t.self.Shards}
	case !known && len(t.others) >= membersMax:
		return errMembers
	}
	return nil
}

// NotifyMerge decides whether to join, or to be joined by, a node that knows
// these. A disagreement on the number of shards ends it on both sides before either
// took notice of the other.
func (t *table) NotifyMerge(nodes []*memberlist.Node) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range nodes {
		m, err := member(n)
		alive := n.State == memberlist.StateAlive || n.State == memberlist.StateSuspect
		if err == nil && alive && n.Name != t.self.Name && m.Shards != t.self.Shards {
			t.clash = &ShardsError{Member: m.Name, Theirs: m.Shards, Ours: t.self.Shards}
			return t.clash
		}
	}
	return nil
}

// NotifyConflict learns of two nodes with one name.
func (t *table) NotifyConflict(existing, other *memberlist.Node) {
	if existing.Name == t.self.Name && t.conflict != nil {
		t.conflict(addrPort(other.Addr, other.Port))
	}
}

// The rest of memberlist's delegate is for messages of our own; there are none.

// NotifyMsg does nothing.
func (t *table) NotifyMsg([]byte) {}

// GetBroadcasts returns nothing.
func (t *table) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing.
func (t *table) LocalState(bool) []byte { return nil }

// MergeRemoteState does nothing.
func (t *table) MergeRemoteState([]byte, bool) {}
