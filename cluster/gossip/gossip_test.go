package gossip

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

func TestJoinAndLeave(t *testing.T) {
	list := startAll(t, "relay", 3, keyed(t, keyA), func(c *Config) {
		c.spoil = func(m *memberlist.Config) { m.ProbeInterval = time.Hour } // this node never notices a death
	})
	if m, ok := list[2].Roster().Member("relay-0"); !ok || m.Gossip != list[0].Addr() || m.Shards != 64 {
		t.Errorf("relay-2 sees relay-0 as %+v, %v", m, ok)
	}
	if !list[0].own(list[0].Addr()) || list[0].own(list[1].Addr()) {
		t.Error("relay-0 confuses itself with another node")
	}
	list[2].leave()
	if err := list[2].wait(); err != nil {
		t.Errorf("Run of a node that leaves returns %v, want nil", err)
	}
	for _, n := range list[:2] {
		n.until("relay-2 has left", sees(2))
	}
	if !list[2].logger.silent.Load() {
		t.Error("errors of the shutdown would be logged")
	}
}

// TestDeathIsNoticed closes a node without telling the others, so that only probes notice.
func TestDeathIsNoticed(t *testing.T) {
	var times []time.Duration
	for range 5 {
		list := startAll(t, "relay", 5, keyed(t, keyA))
		victim := list[4]
		begin := time.Now()
		victim.kill()
		for _, n := range list[:4] {
			times = append(times, n.until("relay-4 is dead", sees(4)).Sub(begin))
		}
		for _, n := range list[:4] {
			n.leave()
		}
	}
	slices.Sort(times)
	t.Logf("a death shows after %v to %v, median %v (5 runs, 4 observers each)",
		times[0].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), times[len(times)/2].Round(time.Millisecond))
	if median := times[len(times)/2]; median > 4*time.Second {
		t.Errorf("a death shows after %v, which is no better than with memberlist's settings for a LAN", median)
	}
}

func TestRestartUnderTheSameName(t *testing.T) {
	for name, sameAddress := range map[string]bool{"elsewhere": false, "same address": true} {
		t.Run(name, func(t *testing.T) {
			list := startAll(t, "relay", 3)
			addr := list[2].Addr()
			list[2].kill()
			list[2].wait()
			again := start(t, "relay-2", joining(list[0]), func(c *Config) { // the others have not noticed the death yet
				c.Self.Incarnation = 2
				if sameAddress {
					c.Bind = addr.String()
				}
			})
			for _, n := range []*node{list[0], list[1], again} {
				n.until("relay-2 is another process", func(r cluster.Roster) bool {
					m, ok := r.Member("relay-2")
					return ok && r.Len() == 3 && m.Incarnation == 2 && m.Gossip == again.Addr()
				})
			}
		})
	}
}

func TestAnnouncements(t *testing.T) {
	list := startAll(t, "relay", 3)
	list[1].SetPhase(cluster.PhaseDraining)
	if m, _ := list[1].Roster().Member("relay-1"); m.Phase != cluster.PhaseDraining {
		t.Error("a node does not see its own change at once")
	}
	addr := cluster.Address{Service: cluster.ServiceDNP, Addr: netip.MustParseAddrPort("192.0.2.1:3413")}
	if err := list[1].SetAddresses([]cluster.Address{addr}); err != nil {
		t.Fatal(err)
	}
	if err := list[1].SetAddresses([]cluster.Address{{Service: cluster.ServiceDNP}}); err == nil {
		t.Error("SetAddresses takes an invalid address")
	}
	for _, n := range list {
		n.until("relay-1 drains", func(r cluster.Roster) bool {
			m, _ := r.Member("relay-1")
			got, _ := m.Address(cluster.ServiceDNP)
			return m.Phase == cluster.PhaseDraining && got == addr.Addr
		})
	}
}

// TestAnnouncementsAreFew changes the sender at a high rate: the others are told every announceInterval. On any machine
// the third announcement must not arrive too early.
func TestAnnouncementsAreFew(t *testing.T) {
	list := startAll(t, "relay", 2)
	stop, stopped := make(chan struct{}), make(chan struct{})
	begin, seen, last := time.Now(), 0, uint64(0)
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := uint64(1); ; i++ {
			list[0].SetSender(i)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	third := list[1].until("three senders arrive", func(r cluster.Roster) bool {
		m, _ := r.Member("relay-0")
		if m.Sender != last {
			last, seen = m.Sender, seen+1
		}
		return seen == 3
	})
	if got := third.Sub(begin); got < 2*announceInterval {
		t.Errorf("three announcements within %v", got)
	}
	close(stop)
	<-stopped
	list[0].SetSender(1 << 40)
	list[1].until("the last sender arrives", func(r cluster.Roster) bool {
		m, _ := r.Member("relay-0")
		return m.Sender == 1<<40
	})
}

func TestPartitionHeals(t *testing.T) {
	w := &wall{}
	list := startAll(t, "relay", 4, w.build)
	w.put(1, list[:2]...)
	for _, n := range list {
		n.until("the other side is dead", sees(2))
	}
	// Each side must have forgotten the other, or memberlist heals the partition alone.
	for _, n := range list {
		eventually(t, "memberlist does not forget dead nodes", func() bool { return n.known() == 2 })
	}
	w.put(0, list[:2]...)
	for _, n := range list {
		n.until("the partition has healed", sees(4))
	}
}

// known returns the number of nodes, dead or alive, that memberlist knows, which it exposes in no other
// way.
func (n *node) known() int {
	field := reflect.ValueOf(n.list).Elem().FieldByName("numNodes")
	return int((*atomic.Uint32)(unsafe.Pointer(field.UnsafeAddr())).Load())
}

// pods is the resolver of a headless service: a name has the addresses of the present pods.
type pods struct {
	mu    sync.Mutex
	addrs []netip.Addr
	asked int
}

func (p *pods) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if len(p.addrs) == 0 {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return slices.Clone(p.addrs), nil
}

func (p *pods) set(addrs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = nil
	for _, a := range addrs {
		p.addrs = append(p.addrs, netip.MustParseAddr(a))
	}
}

// TestNamesWithSeveralAddresses starts pods with one name and one port before the name resolves.
func TestNamesWithSeveralAddresses(t *testing.T) {
	dns := &pods{}
	port := freePort(t)
	var list []*node
	for _, ip := range []string{"127.0.0.11", "127.0.0.12", "127.0.0.13"} {
		list = append(list, start(t, "relay-"+ip, func(c *Config) {
			c.Bind, c.Resolver, c.Join = net.JoinHostPort(ip, port), dns, []string{net.JoinHostPort("relay-gossip.default.svc", port)}
		}))
	}
	for _, n := range list {
		eventually(t, "a node without others does not log that", func() bool { return strings.Contains(n.logs.String(), "no node to join yet") })
	}
	dns.set("127.0.0.99", "127.0.0.11", "127.0.0.12", "127.0.0.13") // the first pod is gone
	for _, n := range list {
		n.until("all pods are found", sees(3))
	}
}

// freePort returns a port that was free on 127.0.0.1 a moment ago.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6: ", err)
	} else {
		l.Close()
	}
	list := startAll(t, "relay", 2, func(c *Config) { c.Bind = "[::1]:0" })
	if m, _ := list[0].Roster().Member("relay-1"); !m.Gossip.Addr().Is6() {
		t.Errorf("relay-1 is at %v", m.Gossip)
	}
}

func TestBothFamilies(t *testing.T) {
	first := start(t, "relay-0", func(c *Config) { c.Bind, c.Advertise = ":0", "127.0.0.1" })
	second := start(t, "relay-1", joining(first), func(c *Config) { c.Bind, c.Advertise = ":0", "127.0.0.1" })
	first.until("one that listens everywhere is found", sees(2))
	if !second.own(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), second.Addr().Port())) {
		t.Error("a node that listens on all addresses does not know its own address")
	}
}

func TestPortInUse(t *testing.T) {
	first := start(t, "relay-0")
	_, err := Open(Config{Self: relay("relay-1"), Bind: first.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "in use") || strings.Contains(err.Error(), "\n") {
		t.Errorf("want one line that says that the port is in use, got %v", err)
	}
	_, err = Open(Config{Self: relay("relay-1"), Bind: "192.0.2.1:0"})
	if err == nil || !strings.Contains(err.Error(), "not an address of this machine") {
		t.Errorf("want one line about the address, got %v", err)
	}
}

func TestShardCounts(t *testing.T) {
	list := startAll(t, "relay", 2)
	stranger := start(t, "stranger", joining(list...), func(c *Config) { c.Self.Shards = 32 })
	clash := stranger.wait()
	if clash == nil || !strings.Contains(clash.Error(), "has 64 shards, this node 32") {
		t.Fatalf("want an error that names 32 and 64 shards, got %v", clash)
	}
	t.Log(clash)
	for _, n := range list {
		if n.Roster().Len() != 2 || strings.Contains(n.logs.String(), "member=stranger") {
			t.Errorf("the cluster noticed the newcomer: %s\n%s", names(n.Roster()), n.logs)
		}
	}
	right := start(t, "right", joining(list...))
	right.until("one with the right count may come", sees(3))
}

// TestEndWhileJoining checks that a member which accepts connections and never answers does not delay the
// end of Run.
func TestEndWhileJoining(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	n := start(t, "relay", func(c *Config) {
		c.Join = []string{silent.Addr().String()}
		c.spoil = func(m *memberlist.Config) { m.TCPTimeout = time.Hour }
	})
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n.leave()
	if err := n.wait(); err != nil {
		t.Errorf("Run returns %v, want nil", err)
	}
}

func TestCloseEndsRun(t *testing.T) {
	n := start(t, "relay")
	n.Close()
	if err := n.wait(); err != nil {
		t.Errorf("Run returns %v, want nil", err)
	}
}

func TestConfigErrors(t *testing.T) {
	for name, c := range map[string]Config{
		"name":   {Bind: "127.0.0.1:0"},
		"bind":   {Self: relay("a"), Bind: "relay"},
		"port":   {Self: relay("a"), Bind: "127.0.0.1:x"},
		"host":   {Self: relay("a"), Bind: "relay:1"},
		"join":   {Self: relay("a"), Bind: "127.0.0.1:0", Join: []string{":5"}},
		"joins":  {Self: relay("a"), Bind: "127.0.0.1:0", Join: make([]string, joinNamesMax+1)},
		"keys":   {Self: relay("a"), Bind: "127.0.0.1:0", KeyFile: "/no/such/file"},
		"advert": {Self: relay("a"), Bind: "127.0.0.1:0", Advertise: "relay"},
	} {
		if _, err := Open(c); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: want one line, got %v", name, err)
		}
	}
}
