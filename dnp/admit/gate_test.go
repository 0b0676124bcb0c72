package admit

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
	"unsafe"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

var start = time.Unix(1_700_000_000, 0)

// A gateTest is a transcript of datagrams that a Gate judges.
type gateTest struct {
	*testing.T
	g   *Gate
	now time.Time
}

func newGate(t *testing.T, cfg Config) *gateTest {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &gateTest{t, g, start}
}

func (g *gateTest) request(why, from string, want Verdict) {
	g.Helper()
	if v := g.g.Judge(g.now, netip.MustParseAddrPort(from), Request); v != want {
		g.Fatalf("request from %s: verdict %d, want %d: %s", from, v, want, why)
	}
}

func (g *gateTest) login(why, from string, want Verdict) {
	g.Helper()
	if v := g.g.Judge(g.now, netip.MustParseAddrPort(from), Login); v != want {
		g.Fatalf("login from %s: verdict %d, want %d: %s", from, v, want, why)
	}
}

func (g *gateTest) proven(why, from string, want Verdict) {
	g.Helper()
	if v := g.g.Judge(g.now, netip.MustParseAddrPort(from), ProvenLogin); v != want {
		g.Fatalf("proven login from %s: verdict %d, want %d: %s", from, v, want, why)
	}
}

// TestProvenLogins: forged logins, from whatever addresses, take nothing from proven ones.
func TestProvenLogins(t *testing.T) {
	g := newGate(t, Config{AddressRate: 5, Rate: 100, LoginRate: 10})
	for i := range 10_000 { // those of one network among them
		g.g.Judge(g.now, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i % 7), byte(i)}), uint16(i+1)), Login)
	}
	for i := range 7 {
		g.proven("three quarters of the logins are theirs", fmt.Sprintf("192.0.2.%d:1", i+1), Pass)
	}
	g.proven("but the processor has its bound", "192.0.2.9:1", LimitedAll)
	g.now = g.now.Add(100 * time.Millisecond)
	g.login("the next is for one that is proven", "192.0.3.1:1", Stateless)
	g.proven("and it gets it", "192.0.2.9:1", Pass)
}

func TestAddressRate(t *testing.T) {
	g := newGate(t, Config{AddressRate: 5})
	for i := range 20 {
		g.request("four seconds of the rate at once, whatever the port", fmt.Sprintf("192.0.2.1:%d", i+1), Pass)
	}
	g.request("the bucket is empty", "192.0.2.1:1", LimitedOne)
	g.login("logins are counted with requests: its address is to be proven first", "192.0.2.1:1", Stateless)
	g.proven("one that is proven has a bucket of its own", "192.0.2.1:1", Pass)
	g.request("the neighbour has one of its own", "192.0.2.2:1", Pass)
	g.now = g.now.Add(200 * time.Millisecond)
	g.request("a fifth of a second is one more", "192.0.2.1:1", Pass)
	g.request("and no more", "192.0.2.1:1", LimitedOne)
}

func TestNetworks(t *testing.T) {
	for _, c := range []struct {
		name string
		addr func(i int) string
		max  int
		want Verdict
	}{
		{"/24", func(i int) string { return fmt.Sprintf("192.0.2.%d:1", i%256) }, 200, LimitedNet},
		{"/56", func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:1", i%256) }, 200, LimitedNet},
		{"/48", func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:1", i%256<<8) }, 400, LimitedSite},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t, Config{AddressRate: 5})
			for i := range c.max {
				g.request("within the network's bucket", c.addr(i), Pass)
			}
			g.request("beyond it", c.addr(c.max%200), c.want)
		})
	}
	g := newGate(t, Config{AddressRate: 5})
	for i := range 20 {
		g.request("one /64 counts as one", fmt.Sprintf("[2001:db8::%x]:1", i+1), Pass)
	}
	g.request("so its other addresses are empty too", "[2001:db8::ffff]:1", LimitedOne)
	for range 20 {
		g.request("IPv4 in IPv6 is IPv4", "[::ffff:192.0.2.9]:1", Pass)
	}
	g.request("the same address", "192.0.2.9:1", LimitedOne)
}

// TestRefusalIsFree: a datagram that one bucket refuses takes no token from the others.
func TestRefusalIsFree(t *testing.T) {
	g := newGate(t, Config{AddressRate: 5})
	for range 1000 {
		g.g.Judge(g.now, netip.MustParseAddrPort("192.0.2.1:1"), Request)
	}
	for i := range 180 {
		g.request("the /24 gave only 20 to the noisy address", fmt.Sprintf("192.0.2.%d:1", i+2), Pass)
	}
}

func TestRateForAll(t *testing.T) {
	g := newGate(t, Config{Rate: 10, StatefulRate: 5})
	for i := range 10 {
		want := Pass
		if i >= 5 {
			want = Stateless
		}
		g.request("half of them are remembered", fmt.Sprintf("198.51.100.%d:1", i), want)
	}
	g.request("all are used up", "203.0.113.1:1", LimitedAll)
	g.now = g.now.Add(time.Second)
	g.request("a second later it goes on", "203.0.113.1:1", Pass)
}

func TestTombstones(t *testing.T) {
	g := newGate(t, Config{})
	a := netip.MustParseAddrPort("192.0.2.1:5")
	g.g.Closed(g.now, a)
	g.login("a repeat of the login must not begin a session", "192.0.2.1:5", Late)
	g.login("another port is another peer", "192.0.2.1:6", Pass)
	g.request("a request is meant", "192.0.2.1:5", Pass)
	g.login("so its login is", "192.0.2.1:5", Pass)
	g.g.Closed(g.now, a)
	g.now = g.now.Add(lateFor)
	g.login("after a while nothing can be late", "192.0.2.1:5", Pass)
}

// memoryOf returns how many bytes the tables of a Gate take.
func memoryOf(g *Gate) int {
	const slot = 16 // bytes of a bucket and of a tomb
	return slot * (len(g.ones.buckets) + len(g.nets.buckets) + len(g.sites.buckets) + len(g.tombs.slots))
}

// TestFlood: hundreds of thousands of forged sources do not change the memory, cause no
// allocation, and do not lock a player out.
func TestFlood(t *testing.T) {
	g := newGate(t, Config{AddressRate: 5})
	memory := memoryOf(g.g)
	if memory != 458_752 || unsafe.Sizeof(bucket{}) != 16 || unsafe.Sizeof(tomb{}) != 16 {
		t.Errorf("a Gate takes %d bytes, want 448 KiB", memory)
	}
	t.Logf("repeat with -seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	refused := 0
	allocs := testing.AllocsPerRun(1, func() {
		for i := range 200_000 {
			g.now = g.now.Add(20 * time.Microsecond) // 50,000 a second
			var ip [4]byte
			binary.BigEndian.PutUint32(ip[:], rng.Uint32()|1<<31)
			g.g.Judge(g.now, netip.AddrPortFrom(netip.AddrFrom4(ip), uint16(i)), Request)
			if i%10_000 == 0 {
				if v := g.g.Judge(g.now, netip.MustParseAddrPort("10.0.0.1:1"), Request); v > Stateless {
					refused++
				}
			}
		}
	})
	if allocs > 0 || memoryOf(g.g) != memory {
		t.Errorf("%v allocations, %d bytes", allocs, memoryOf(g.g))
	}
	if refused > 0 {
		t.Errorf("a player was refused %d times", refused)
	}
}

// TestTwin compares the tables with maps that never forget, on so few prefixes that the
// tables hold them all.
func TestTwin(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 1))
	g := newGate(t, Config{AddressRate: 2})
	type twin struct{ tokens, full, rate float64 }
	buckets := map[string]*twin{}
	get := func(name string, rate float64) *twin {
		if buckets[name] == nil {
			buckets[name] = &twin{4 * rate, 4 * rate, rate}
		}
		return buckets[name]
	}
	for range 20_000 {
		d := time.Duration(rng.IntN(3)) * time.Second / 64 // a step that float32 counts exactly
		g.now = g.now.Add(d)
		for _, b := range buckets {
			b.tokens = min(b.full, b.tokens+b.rate*d.Seconds())
		}
		addr := fmt.Sprintf("10.0.%d.%d", rng.IntN(2), rng.IntN(30))
		one, net := get(addr, 2), get(addr[:6], 20)
		want := Pass
		switch {
		case one.tokens < 1:
			want = LimitedOne
		case net.tokens < 1:
			want = LimitedNet
		default:
			one.tokens--
			net.tokens--
		}
		g.request("as the twin says", addr+":1", want)
	}
}

func BenchmarkRequest(b *testing.B) {
	g, _ := New(Config{AddressRate: 5})
	now := start
	b.ReportAllocs()
	for i := range b.N {
		now = now.Add(10 * time.Microsecond)
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], uint32(i)*2654435761)
		g.Judge(now, netip.AddrPortFrom(netip.AddrFrom4(ip), 1), Request)
	}
}

// TestEviction: a table forgets an address that came once before one that used up its
// bucket.
func TestEviction(t *testing.T) {
	g := newGate(t, Config{AddressRate: 5})
	for range 20 {
		g.request("its share", "192.0.2.1:1", Pass)
	}
	for i := range 5 * oneBuckets {
		g.g.Judge(g.now, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1), Request)
	}
	g.request("not forgotten for strangers", "192.0.2.1:1", LimitedOne)
}
