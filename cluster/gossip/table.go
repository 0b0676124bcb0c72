package gossip

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/hashicorp/memberlist"
)

// membersMax bounds the members that a node knows. Further ones are ignored and logged.
const membersMax = 4096

// A table holds the descriptions of this node and of the others. It is memberlist's delegate for
// everything.
//
// It has a mutex, because memberlist calls it from goroutines of its own while it holds its own lock; an
// owner would have to queue notifications, and would block gossip when it is late. No method may call
// memberlist back.
type table struct {
	changed  turn.Wake // the roster has changed
	news     turn.Wake // the same, for narrate
	conflict func(addr netip.AddrPort)

	mu     sync.Mutex
	self   cluster.Member
	others map[string]cluster.Member
	roster cluster.Roster
	stale  bool  // roster is older than self and others
	met    bool  // this node has met another member
	clash  error // the last disagreement on the number of shards
}

func newTable(self cluster.Member) *table {
	return &table{changed: turn.NewWake(), news: turn.NewWake(), self: self, others: map[string]cluster.Member{}, stale: true}
}

// snapshot returns the newest roster, with the present description of this node and not the one that was
// announced last.
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

// edit changes the description of this node and reports whether it differs from the former one.
func (t *table) edit(change func(*cluster.Member)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.self
	change(&t.self)
	if t.self.Equal(before) {
		return false
	}
	t.touchLocked()
	return true
}

// touchLocked says that the roster has changed. A receiver that has not looked since sees the newest
// roster.
func (t *table) touchLocked() {
	t.stale = true
	t.changed.Wake()
	t.news.Wake()
}

// established reports whether this node has been part of a cluster.
func (t *table) established() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.met
}

// knows reports whether a member has the address.
func (t *table) knows(addr netip.AddrPort) bool {
	for m := range t.snapshot().All() {
		if m.Gossip == addr {
			return true
		}
	}
	return false
}

// takeClash returns the last disagreement on the number of shards, and forgets it.
func (t *table) takeClash() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clash
	t.clash = nil
	return c
}

// member returns the description of a node of memberlist, and keeps nothing of the node, which memberlist
// goes on changing.
func member(n *memberlist.Node) (cluster.Member, error) {
	m, err := cluster.ParseMetadata(n.Meta)
	m.Name, m.Gossip = n.Name, addrPort(n.Addr, n.Port)
	return m, err
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// NodeMeta returns the description of this node.
func (t *table) NodeMeta(int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.self.AppendMetadata(nil)
}

// NotifyJoin adds a member.
func (t *table) NotifyJoin(n *memberlist.Node) { t.NotifyUpdate(n) }

// NotifyUpdate replaces the description of a member.
func (t *table) NotifyUpdate(n *memberlist.Node) {
	m, err := member(n)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil || m.Name == t.self.Name {
		return
	}
	t.others[m.Name] = m
	t.met = true
	t.touchLocked()
}

// NotifyLeave removes a member that left or died.
func (t *table) NotifyLeave(n *memberlist.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.others[n.Name]; ok {
		delete(t.others, n.Name)
		t.touchLocked()
	}
}

var errMembers = errors.New("there are more members than this node can know")

// NotifyAlive returns an error if a node, which any member may have reported, is to be ignored.
func (t *table) NotifyAlive(n *memberlist.Node) error {
	m, err := member(n)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.others[n.Name]
	switch {
	case n.Name == t.self.Name:
		return nil // memberlist must refute what others say about this node
	case err != nil:
		return err
	case len(n.Name) > cluster.NameMax:
		return cluster.ErrMetadata
	case m.Shards != t.self.Shards:
		return shardsError(m, t.self.Shards)
	case !known && len(t.others) >= membersMax:
		return errMembers
	}
	return nil
}

// NotifyMerge returns an error if this node must not join a node that knows these, in either direction.
// A disagreement on the number of shards ends the join on both sides before either node knows the other.
func (t *table) NotifyMerge(nodes []*memberlist.Node) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range nodes {
		m, err := member(n)
		alive := n.State == memberlist.StateAlive || n.State == memberlist.StateSuspect
		if err == nil && alive && n.Name != t.self.Name && m.Shards != t.self.Shards {
			t.clash = shardsError(m, t.self.Shards)
			return t.clash
		}
	}
	return nil
}

// NotifyConflict is called for two nodes with the same name.
func (t *table) NotifyConflict(existing, other *memberlist.Node) {
	if existing.Name == t.self.Name && t.conflict != nil {
		t.conflict(addrPort(other.Addr, other.Port))
	}
}

// The rest of memberlist's delegate is for user messages, which there are none of.

func (t *table) NotifyMsg([]byte)                {}
func (t *table) GetBroadcasts(int, int) [][]byte { return nil }
func (t *table) LocalState(bool) []byte          { return nil }
func (t *table) MergeRemoteState([]byte, bool)   {}
