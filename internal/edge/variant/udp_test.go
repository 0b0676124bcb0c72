package variant

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
)

// A rig is a Server whose edge answers no client, so that peers stay newcomers.
type rig struct {
	*Server
	t    testing.TB
	peer *net.UDPConn
	from netip.AddrPort // of peer
}

func newRig(t testing.TB, admission admit.Config) *rig {
	t.Helper()
	e := carriertest.New(t, nil)
	t.Cleanup(e.Close)
	listen := func() *net.UDPConn {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s, err := New(Config{Hub: e.Hub}).ListenUDP(listen(), admission)
	if err != nil {
		t.Fatal(err)
	}
	peer := listen()
	r := &rig{Server: s, t: t, peer: peer, from: peer.LocalAddr().(*net.UDPAddr).AddrPort()}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	t.Cleanup(func() {
		cancel()
		s.mu.Lock()
		for _, p := range s.peers {
			p.cancel()
		}
		s.mu.Unlock()
		s.serving.Wait()
		_ = s.socket.Close()
		_ = peer.Close()
	})
	return r
}

// session returns the session of an address, or nil.
func (r *rig) session(a netip.AddrPort) *udpPeer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[a]
}

// frame returns a datagram. A nil message is none.
func frame(cookie []byte, number int64, message func(w *variant.Writer)) []byte {
	w := variant.NewWriter(variant.Godot3, nil)
	m := w.Begin(variant.Array)
	if cookie == nil {
		w.Nil()
	} else {
		w.Data(cookie)
	}
	w.Int(0)
	w.Int(number)
	n := 3
	if message != nil {
		message(&w)
		n++
	}
	w.End(m, n)
	return w.Bytes()
}

func hello(w *variant.Writer) {
	m := w.Begin(variant.Array)
	w.String("hello")
	d := w.Begin(variant.Dictionary)
	w.String("version")
	w.Int(1)
	w.End(d, 1)
	w.End(m, 2)
}

func bye(w *variant.Writer) {
	m := w.Begin(variant.Array)
	w.String("bye")
	w.End(m, 1)
}

// hear returns the next datagram to the peer.
func (r *rig) hear() protocol.Frame {
	r.t.Helper()
	buf := make([]byte, 2048)
	if err := r.peer.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	n, err := r.peer.Read(buf)
	if err != nil {
		r.t.Fatal(err)
	}
	f, ok := protocol.ParseFrame(buf[:n])
	if !ok {
		r.t.Fatalf("the edge sent %x", buf[:n])
	}
	return f
}

// TestSpoofing has others send in the name of a peer: it costs them as many bytes as the peer gets, begins nothing and ends nothing.
func TestSpoofing(t *testing.T) {
	r := newRig(t, admit.Config{})
	now := time.Now()
	expect := func(why string, from netip.AddrPort, p []byte, want datagramDrop, taken bool) {
		t.Helper()
		if got, ok := r.receive(now, from, p); ok != taken || !ok && got != want {
			t.Errorf("%s: %v, %v; want %v, %v", why, got, ok, want, taken)
		}
	}
	first := frame(nil, 1, hello)
	expect("a first datagram", r.from, first, 0, true)
	challenge := r.hear()
	if challenge.Size > len(first) || r.session(r.from) != nil {
		t.Errorf("%d bytes are answered with %d, and a session: %v", len(first), challenge.Size, r.session(r.from))
	}
	other := netip.MustParseAddrPort("127.0.0.9:9")
	expect("the cookie of another address", other, frame(challenge.Cookie, 1, hello), 0, true) // one more challenge, to the other
	if r.session(other) != nil || r.session(r.from) != nil {
		t.Fatal("it began a session")
	}
	expect("the cookie", r.from, frame(challenge.Cookie, 1, hello), 0, true)
	session := r.session(r.from)
	if session == nil {
		t.Fatal("the cookie began no session")
	}
	wrong := append([]byte{challenge.Cookie[0] ^ 1}, challenge.Cookie[1:]...)
	expect("bye with a wrong cookie", r.from, frame(wrong, 2, bye), dropUnknown, false)
	expect("bye without a cookie", r.from, frame(nil, 0, bye), dropUnknown, false)
	expect("rubbish", r.from, []byte("rubbish"), dropMalformed, false)
	expect("a first datagram in the name of the peer", r.from, first, 0, true)
	expect("one with a wrong cookie", r.from, frame(wrong, 1, hello), 0, true)
	expect("a message of nobody", other, frame(challenge.Cookie, 2, bye), dropUnknown, false)
	session.mu.Lock()
	_, ended := session.core.Ended()
	session.mu.Unlock()
	if ended || r.session(r.from) != session {
		t.Fatal("forged datagrams ended the session")
	}
	for { // the peer gets challenges, of which it makes use if it began anew
		f := r.hear()
		if string(f.Cookie) != string(challenge.Cookie) {
			expect("a peer that begins anew", r.from, frame(f.Cookie, 1, hello), 0, true)
			break
		}
	}
	if r.session(r.from) == session {
		t.Error("it has the old session")
	}
	expect("a late datagram of the old session", r.from, frame(challenge.Cookie, 1, hello), dropUnknown, false)
}

// TestNewcomers has peers with proven addresses come from few networks and from many.
func TestNewcomers(t *testing.T) {
	r := newRig(t, admit.Config{})
	now := time.Now()
	begin := func(a netip.AddrPort) bool {
		k := r.cookies.New(now, a)
		_, ok := r.receive(now, a, frame(k[:], 1, hello))
		return ok
	}
	n := 0
	for port := range uint16(2000) {
		if begin(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.7"), 1000+port)) {
			n++
		}
	}
	if n > 600 {
		t.Errorf("%d newcomers of one address", n)
	}
	if !begin(netip.MustParseAddrPort("127.0.0.8:1000")) {
		t.Error("they shut another network out")
	}
}

// TestChallengeRate has one address ask for cookies without end.
func TestChallengeRate(t *testing.T) {
	r := newRig(t, admit.Config{AddressRate: 5})
	answered := 0
	for range 1000 {
		if _, ok := r.receive(time.Unix(5000, 0), r.from, frame(nil, 1, hello)); ok {
			answered++
		}
	}
	if answered != 20 {
		t.Errorf("%d of 1,000 were answered, want a burst of 20", answered)
	}
}
