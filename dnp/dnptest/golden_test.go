package dnptest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A vector holds the datagrams of a reference library for the input that desc describes.
type vector struct {
	Lib, Group, Name, Desc string
	Packets                []string
}

func loadVectors(t *testing.T) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

var (
	epoch  = time.Unix(1_000_000, 0)
	server = netip.MustParseAddrPort("127.0.0.1:3413")
)

// A golden replays the input of vectors to the model of one library.
type golden struct {
	*testing.T
	c       *Client
	now     time.Time
	out     []string
	vectors []vector
	used    map[string]int
}

func newGolden(t *testing.T, b Behaviour, vectors []vector, app App) *golden {
	g := &golden{T: t, now: epoch, vectors: vectors, used: map[string]int{}}
	g.connect(b, app, 0)
	return g
}

// connect starts again with a new connection.
func (g *golden) connect(b Behaviour, app App, firstReceive int) {
	g.c = NewClient(Config{Behaviour: b, App: app, Server: server, FirstReceive: firstReceive,
		Send: func(p []byte) { g.out = append(g.out, hex.EncodeToString(p)) }})
	g.c.Connect(g.now)
	g.in("01000000")
	if g.c.Phase() != Connected {
		g.Fatalf("phase %v after the accept", g.c.Phase())
	}
	g.out = nil
}

// in passes datagrams to the client, with a tick after each.
func (g *golden) in(datagrams ...string) {
	for _, d := range datagrams {
		g.c.Receive(g.now, server, unhex(d))
		g.tick()
	}
}

func (g *golden) tick() {
	g.now = g.now.Add(time.Millisecond)
	if t, _ := g.c.NextTimeout(); t.After(g.now) {
		g.now = t
	}
	g.c.Advance(g.now)
}

// want compares the datagrams since the last want with the next vector of this name, and
// the counts in its description with the model's.
func (g *golden) want(name string) {
	g.Helper()
	nth := g.used[name]
	g.used[name]++
	for _, v := range g.vectors {
		if v.Name != name || v.Lib != g.c.b.Name {
			continue
		}
		if nth--; nth >= 0 {
			continue
		}
		if !slices.Equal(g.out, v.Packets) {
			g.Errorf("%s: %s\n sent %s\n want %s", name, v.Desc, g.out, v.Packets)
		}
		g.wantCounts(v)
		g.out = nil
		return
	}
	g.Fatalf("no vector %s of %s", name, g.c.b.Name)
}

func (g *golden) wantCounts(v vector) {
	g.Helper()
	_, counts, ok := strings.Cut(v.Desc, "| msgs=")
	if !ok {
		return
	}
	var msgs, num, queue int
	if _, err := fmt.Sscanf(counts, "%d recvNum=%d recvQueue=%d", &msgs, &num, &queue); err != nil {
		g.Fatal(err)
	}
	if len(g.c.Messages) != msgs || g.c.Next() != num || g.c.Held() != queue {
		g.Errorf("%s: %d messages, next %d, %d queued; want: %s", v.Name, len(g.c.Messages), g.c.Next(), g.c.Held(), v.Desc)
	}
}

func unhex(s string) []byte {
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return p
}

// message is the reliable message with this number.
func message(n int, data string) string {
	return hex.EncodeToString(wire.ReliableMessage{Seq: wire.Seq(n), Data: []byte(data)}.Append(nil))
}

func ack(n int) string {
	return hex.EncodeToString(wire.ReliableAck{Seq: wire.Seq(n)}.Append(nil))
}

func state(t testing.TB, types ...wire.ValueType) *netstate.State {
	values := make([]netstate.Value, len(types))
	for i, v := range types {
		values[i].Type = v
	}
	l, err := netstate.NewLayout(values)
	if err != nil {
		t.Fatal(err)
	}
	return netstate.NewState(l)
}

func TestGoldenWindow(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	g.in(message(10, "x"))
	g.want("window_too_high")
	g.in(message(9, "j"))
	g.want("window_top")
	g.in(message(9, "j"))
	g.want("window_top_dup")
	for n := range 9 {
		g.in(message(n, "x"))
	}
	g.want("window_fill")
	g.in(message(5, "d"))
	g.want("old_duplicate")
	for n := 10; n < 65535; n++ {
		g.in(message(n, "1"))
	}
	g.out = nil // the vector leaves the acknowledgements out
	g.want("wrap_at_65534")
	for n := range 5 {
		g.in(message(n, "2"))
	}
	g.want("stale_redelivery")
	if last := g.c.Messages[65540]; string(last.Data) != "d" || g.c.Stats.Stale != 1 {
		t.Errorf("after the lap %q came, %d stale; want the stale d", last.Data, g.c.Stats.Stale)
	}
}

func TestGoldenNearWrap(t *testing.T) {
	vectors := loadVectors(t)
	g := newGolden(t, Cpp(), vectors, App{})
	g.connect(Cpp(), App{}, 65530)
	g.in(message(65529, "x"))
	g.want("near_wrap")
	g.in(message(65530, "x"))
	g.want("near_wrap")
	g.in(message(65533, "x"), message(65534, "x")) // the recorded run had queued two more
	g.out = nil
	g.in(message(5, "x"))
	g.want("near_wrap")
}

func TestGoldenReplacement(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	g.in(message(3, "EVIL"))
	for n := range 5 {
		g.in(message(n, fmt.Sprintf("real%d", n)))
	}
	g.want("content_replacement")
	if got := string(g.c.Messages[3].Data); got != "EVIL" {
		t.Errorf("message 3 is %q; the first queued copy wins", got)
	}

	g.connect(Cpp(), App{}, 0)
	for range 10001 {
		g.in(message(0, "x"))
	}
	g.out = nil // the vector leaves the acknowledgements out
	g.want("old_duplicate_memory")
}

func TestGoldenLinkState(t *testing.T) {
	layout := wire.ValueType(3)
	app := App{Offered: func(o Offer) Answer {
		if len(o.Types) != 1 || o.Types[0] != layout {
			return Mismatch
		}
		return Accept
	}}
	g := newGolden(t, Cpp(), loadVectors(t), app)
	g.in("05 0000 0700 01 0100 41 0100 02 0500")
	g.want("link_state_type_mismatch")
	g.in(message(1, "x"))
	g.out = nil
	g.in("05 0000 0700 01 0100 41 0100 03 0500")
	g.want("unstick")

	g.connect(Cpp(), app, 0)
	g.in("05 0000 0700 03 0100 41 0100 03 0500")
	g.want("link_flags_3")
	if g.c.Link(7).ReadOnly {
		t.Error("flags 3 made the link read-only")
	}

	g.connect(Cpp(), app, 0)
	g.in("05 0000 0700 01 0100 41 0100 03 0500", "08 0700", "05 0100 0700 01 0100 41 0100 03 0600")
	g.want("link_id_reuse_after_down")
	if l := g.c.Link(7); l.Phase != LinkIsDown {
		t.Error("the link came up again")
	}

	g.connect(Cpp(), app, 0)
	g.in("0b 0000 0700 06 0200 4142 0100 03 0500")
	g.want("long_link_single")
	if got := string(g.c.Link(7).Message); got != "AB" {
		t.Errorf("link message %q", got)
	}
}

func TestGoldenOffers(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	s := state(t, 3)
	offer := func() (*Link, error) { return g.c.Offer(g.now, s, []byte("M"), false) }
	if _, err := offer(); err != nil {
		t.Fatal(err)
	}
	g.in(ack(0), "08 0000")
	g.out = nil
	if _, err := offer(); err != ErrLinked {
		t.Errorf("offered again: %v, want ErrLinked", err)
	}
	g.want("link_down_after_offer")

	g.connect(Cpp(), App{}, 0)
	if _, err := offer(); err != nil {
		t.Fatal(err)
	}
	g.in(ack(0), "07 0000", "08 0000")
	g.out = nil
	if _, err := offer(); err != nil {
		t.Errorf("offered again after it was up: %v", err)
	}
	g.want("link_down_after_up")

	g.connect(Cpp(), App{}, 0)
	if _, err := offer(); err != nil {
		t.Fatal(err)
	}
	g.out = nil
	g.in("05 0000 0000 01 0100 41 0100 03 0500")
	g.want("link_id_collision")
}

func TestGoldenUpdates(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	g.in("05 0000 0000 00 0100 41 0200 03 0500 03 0600")
	g.out = nil
	g.in("09 01 0000 01 0500 0700")
	g.want("update_bad_index")

	g.connect(Cpp(), App{}, 0)
	g.in("05 0000 0000 00 0100 41 0100 03 0000")
	l := g.c.Link(0)
	g.out = nil
	g.c.Set(l, 0, unhex("4d00"))
	g.in("09 01 0000 01 0000 6300")
	if len(g.out) > 0 {
		t.Errorf("the local write was sent: %s", g.out)
	}
	g.c.Set(l, 0, unhex("4e00"))
	g.tick()
	g.want("double_modified")

	g.connect(Cpp(), App{}, 0)
	a, b := g.link(state(t, 3)), g.link(state(t, 3))
	g.out = nil
	g.c.Set(a, 0, unhex("0100"))
	g.c.Set(b, 0, unhex("0200"))
	g.c.Free(a)
	g.tick()
	g.want("dropped_state_update")
}

// link offers s and accepts it for the peer.
func (g *golden) link(s *netstate.State) *Link {
	g.Helper()
	n := g.c.queue.next
	l, err := g.c.Offer(g.now, s, []byte("M"), false)
	if err != nil {
		g.Fatal(err)
	}
	g.in(ack(n), hex.EncodeToString(wire.LinkUp{Link: l.ID}.Append(nil)))
	return l
}

func TestGoldenPrecision(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	layout, err := netstate.NewLayout([]netstate.Value{{Type: 33, Precision: 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	l := g.link(netstate.NewState(layout))
	g.out = nil
	sent := ""
	for _, v := range []string{ // 0.05,0,0  0.2,0,0  0.2,0.09,0.09  0.2,0.11,0
		"cdcc4c3d 00000000 00000000", "cdcc4c3e 00000000 00000000",
		"cdcc4c3e ec51b83d ec51b83d", "cdcc4c3e ae47e13d 00000000"} {
		g.c.Set(l, 0, unhex(v))
		g.tick()
		sent += fmt.Sprint(len(g.out))
		g.out = nil
	}
	if sent != "0101" {
		t.Errorf("precision_vector: sent %s, want 0101: one component beyond the precision sends all", sent)
	}
}

func TestGoldenAcks(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	for i := range 12 {
		if err := g.c.Send(g.now, []byte{'a' + byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.out) != 10 {
		t.Errorf("%d in flight, want the window of 10", len(g.out))
	}
	g.out = nil
	g.in("06 0000 02")
	g.want("ack_code_2")
	g.in(ack(40))
	g.want("ack_unknown_number")
	g.in(ack(3))
	g.want("ack_out_of_order")
	g.in(ack(0))
	g.want("ack_front")
	g.in("06 0100 01")
	if !slices.Equal(g.out, []string{message(1, "b")}) {
		t.Errorf("code 1 must repeat number 1 at once, sent %s", g.out)
	}

	g.connect(Cpp(), App{}, 0)
	g.in("0a 0000 00", message(1, "x"))
	g.want("invisible_ping")
}

// schedule runs the client in ticks of 50 ms, like the run that made the vectors, and
// returns what it sent and when.
func (g *golden) schedule(d time.Duration) string {
	start := g.now
	g.out = nil
	var b strings.Builder
	for at := 50 * time.Millisecond; at <= d; at += 50 * time.Millisecond {
		g.now = start.Add(at)
		g.c.Advance(g.now)
		for _, p := range g.out {
			fmt.Fprintf(&b, "%.2f:%s ", at.Seconds(), p)
		}
		g.out = nil
	}
	return b.String()
}

func TestGoldenSchedules(t *testing.T) {
	b := Cpp()
	b.Tick = 50 * time.Millisecond
	g := newGolden(t, b, loadVectors(t), App{})
	g.now = g.now.Add(time.Hour)
	if err := g.c.Send(g.now, []byte("r")); err != nil {
		t.Fatal(err)
	}
	const resends = "0.50:04000072 1.00:04000072 1.50:04000072 2.00:04000072 2.50:04000072 3.00:04000072 3.05:02 "
	if got := g.schedule(4 * time.Second); got != resends || g.c.Phase() != Closed {
		t.Errorf("reliable_resend_schedule: %s, %v\n want %s", got, g.c.Phase(), resends)
	}

	g.c.Restart(g.now)
	const requests = "1.00:0001000000 2.00:0001000000 3.00:0001000000 4.00:0001000000 "
	start := g.now
	if got := g.schedule(4950 * time.Millisecond); got != requests || g.c.Phase() != Connecting {
		t.Errorf("connect_resend_schedule: %s, %v", got, g.c.Phase())
	}
	if g.c.Advance(start.Add(5 * time.Second)); g.c.Phase() != Closed {
		t.Errorf("after 5 s: %v, want closed", g.c.Phase())
	}

	g.c.Restart(g.now)
	g.in("01 05")
	if g.c.Phase() != Closed {
		t.Errorf("connect_ack_unknown_code: %v, want closed", g.c.Phase())
	}
}

// TestGoldenUsed fails when a behaviour vector appears that no test replays.
func TestGoldenUsed(t *testing.T) {
	src, err := os.ReadFile("golden_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range loadVectors(t) {
		if v.Group == "behaviour" && !strings.Contains(string(src), v.Name) {
			t.Errorf("vector %s is not replayed", v.Name)
		}
	}
}
