package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/outbox"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edgetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen, on a machine of any speed.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, to netip.AddrPort, cfg Config) *Client {
	t.Helper()
	c, err := Dial(patient(t), "udp://"+to.String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func await(t *testing.T, c *Client, key string) *State {
	t.Helper()
	s, err := c.Await(patient(t), key)
	if err != nil {
		t.Fatalf("no state %q: %v", key, err)
	}
	return s
}

// until fails the test if something does not happen.
func until(t *testing.T, c *Client, what string, reached func() bool) {
	t.Helper()
	if err := c.Until(patient(t), reached); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
	}
	return v
}

// A journal notes events, which the client's goroutine brings.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) has(line string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.lines, line)
}

func (j *journal) all() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

func (j *journal) config() Config {
	return Config{
		Link:   func(_ *Client, s *State) { j.note("+ %s", s.Key()) },
		Unlink: func(_ *Client, s *State) { j.note("- %s", s.Key()) },
		Change: func(_ *Client, s *State, changed []int) {
			for _, i := range changed {
				j.note("~ %s %d %v", s.Key(), i, s.At(i))
			}
		},
		Message: func(_ *Client, m Message) { j.note("< %s %v", m.Data, m.Reliable) },
		End:     func(_ *Client, err error) { j.note("end: %v", err) },
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{Describe: true})
	var seen journal
	a, b := connect(t, edge, Config{}), connect(t, edge, seen.config())
	tower, other := await(t, a, "tower"), await(t, b, "tower")
	if tower.Name(0) != "hp" || tower.Name(2) != "" || tower.Len() != 2 || tower.ReadOnly() || tower.Own() || !tower.Linked() {
		t.Errorf("tower has names %q, %d values, read-only %v, own %v, linked %v", tower.names, tower.Len(), tower.ReadOnly(), tower.Own(), tower.Linked())
	}
	for name, v := range map[string]any{"hp": 93.5, "name": "Ada"} {
		if err := tower.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	if tower.Value("hp").Float() != 93.5 {
		t.Error("the client does not show what it wrote")
	}
	until(t, b, "the writes reach another client", func() bool { return other.Value("hp").Float() == 93.5 && other.At(1).String() == "Ada" })
	if !seen.has("~ tower 0 93.5") || !seen.has("~ tower 1 Ada") {
		t.Errorf("events, want the changes of both values:\n%s", seen.all())
	}
	if v := tower.Value("none"); v.Valid() || v.Float() != 0 || v.String() != "<no value>" {
		t.Errorf("a value that does not exist is %v", v)
	}
	if a.State("cellar") != nil || len(a.States()) != 2 {
		t.Errorf("the client has %d states, want tower and door", len(a.States()))
	}
	door := await(t, a, "door")
	for what, err := range map[string]error{
		"read-only":             door.Set("open", 1),
		"no value \"none\"":     tower.Set("none", 1),
		"no value 7":            tower.SetAt(7, 1),
		"no value -1":           tower.SetAt(-1, 1),
		"want string":           tower.Set("name", 1),
		"want a number":         tower.Set("hp", true),
		"out of range":          tower.Set("hp", 1e300),
		"want 1 numbers":        tower.Set("hp", []int{1, 2}),
		"got a string":          tower.Set("hp", "high"),
		"16001 bytes, at most ": tower.Set("name", strings.Repeat("x", 16_001)),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got error %v, want one about %q", err, what)
		}
	}
}

// TestRefusedWrite: the edge sends the true value, although it is the one that the write replaced.
func TestRefusedWrite(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	c := connect(t, edge, Config{})
	tower := await(t, c, "tower")
	if tower.Key() != "tower" || tower.Name(0) != "" || tower.Value("hp").Valid() {
		t.Error("a message without description has names")
	}
	if err := tower.SetAt(0, 1000); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the true value comes back", func() bool { return tower.At(0).Float() == 0 })
}

func TestMessages(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	var seen journal
	c := connect(t, edge, seen.config())
	long := strings.Repeat("0123456789", 5_000)
	for _, text := range []string{"echo one", "echo " + long, "echo two"} {
		if err := c.Send([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, c, "the echoes come", func() bool { return seen.has("< two true") })
	all := seen.all()
	if one, middle, two := strings.Index(all, "< one"), strings.Index(all, "< "+long+" true"), strings.Index(all, "< two"); one < 0 || middle < one || two < middle {
		t.Errorf("the echoes are not in order: at %d, %d, %d", one, middle, two)
	}
	if err := c.Flush(patient(t)); err != nil || c.Undelivered() != 0 {
		t.Errorf("Flush: %v, %d bytes are undelivered", err, c.Undelivered())
	}
	until(t, c, "one of many unreliable messages comes back", func() bool {
		if err := c.SendUnreliable([]byte("echo once")); err != nil {
			t.Error(err)
		}
		return seen.has("< once false")
	})
}

// TestSendBounds: what waits has a bound, and Send says so instead of waiting or ending the connection.
func TestSendBounds(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{DeafTo: 1})
	c := connect(t, edge, Config{})
	for _, data := range [][]byte{nil, make([]byte, 1<<20+1)} {
		if err := c.Send(data); !errors.Is(err, ErrSize) {
			t.Errorf("a message of %d bytes: %v, want ErrSize", len(data), err)
		}
	}
	if err := c.SendUnreliable(make([]byte, 65_500)); !errors.Is(err, ErrSize) {
		t.Errorf("an unreliable message of 65,500 bytes: %v", err)
	}
	for name, size := range map[string]int{"many": 1, "large": 60_000} {
		c := connect(t, edge, Config{})
		sent, err := 0, error(nil)
		for ; err == nil && sent < 2*queuedMessagesMax; sent++ {
			err = c.Send(make([]byte, size))
		}
		if !errors.Is(err, ErrFull) {
			t.Errorf("%s: %d messages to an edge that acknowledges nothing, then %v, want ErrFull", name, sent, err)
		}
		if err := c.Err(); err != nil {
			t.Errorf("%s: the connection ended: %v", name, err)
		}
	}
}

func TestOwnState(t *testing.T) {
	t.Parallel()
	wrote := make(chan edgetest.Write, 1000)
	edge := edgetest.Start(t, edgetest.Config{Wrote: wrote})
	var seen journal
	c := connect(t, edge, seen.config())
	me, err := c.Offer("me", Field{Name: "hp", Type: "uint16", Value: 7}, Field{Name: "pos", Type: "vector3f32"})
	if err != nil {
		t.Fatal(err)
	}
	if w := receive(t, wrote, "the offer"); w.State != "me" || string(w.Value) != "\x07\x00" {
		t.Errorf("the edge got %+v", w)
	}
	until(t, c, "the edge takes the state", me.Linked)
	if !seen.has("+ me") || !me.Own() {
		t.Errorf("events, want one about the own state:\n%s", seen.all())
	}
	if err := errors.Join(me.Set("hp", 99), me.Set("pos", [3]float32{1, 2, 3})); err != nil {
		t.Fatal(err)
	}
	for w := receive(t, wrote, "hp"); string(w.Value) != "\x63\x00"; w = receive(t, wrote, "hp") {
	}
	c.Withdraw(me)
	if me.Linked() || me.Value("hp").Uint() != 99 {
		t.Errorf("linked %v, hp %v: want an end, and the last values", me.Linked(), me.Value("hp"))
	}
	if err := me.Set("hp", 1); err == nil {
		t.Error("a state that was withdrawn can be set")
	}
	if _, err := c.Offer("refuse", Field{Type: "uint8"}); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the edge refuses a state", func() bool { return seen.has("- refuse") })
	for what, fields := range map[string][]Field{
		"no type":     {{Type: "float33"}},
		"out of":      {{Type: "uint8", Value: 256}},
		"no values":   nil,
		"want uint8,": {{Type: "uint8", Value: "x"}},
	} {
		if _, err := c.Offer("bad", fields...); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got error %v, want one about %q", err, what)
		}
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{Login: func(m string) bool {
		token, ok := auth.Token([]byte(m))
		return ok && string(token) == "ada" || m == "callout"
	}})
	for _, cfg := range []Config{{Token: "ada"}, {Login: []byte("callout")}} {
		await(t, connect(t, edge, cfg), "tower")
	}
	_, err := Dial(patient(t), "udp://"+edge.String(), Config{Token: "eve"})
	if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != Refused || !strings.Contains(err.Error(), "refused the login") {
		t.Errorf("a bad token: %v, want %s", err, Refused)
	}
}

// TestLoss: with 30 % of all datagrams lost both ways, messages arrive once and in order, and values
// converge.
func TestLoss(t *testing.T) {
	t.Parallel()
	wrote := make(chan edgetest.Write, 10_000)
	edge := edgetest.Start(t, edgetest.Config{Loss: 0.3, Wrote: wrote, Describe: true})
	var seen journal
	c := connect(t, edge, seen.config())
	tower := await(t, c, "tower")
	me, err := c.Offer("me", Field{Type: "uint16", Name: "hp"})
	if err != nil {
		t.Fatal(err)
	}
	until(t, c, "the edge takes a state", me.Linked)
	const messages = 30
	for i := range messages {
		if err := errors.Join(c.Send(fmt.Appendf(nil, "echo %d", i)), me.Set("hp", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, c, "all echoes come", func() bool { return seen.has(fmt.Sprintf("< %d true", messages-1)) })
	var want, got []string
	for i := range messages {
		want = append(want, fmt.Sprintf("< %d true", i))
	}
	for _, line := range strings.Split(seen.all(), "\n") {
		if strings.HasPrefix(line, "< ") {
			got = append(got, line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("messages, want each once and in order:\n%s", strings.Join(got, "\n"))
	}
	for w := receive(t, wrote, "the last value"); w.State != "me" || w.Value[0] != messages; w = receive(t, wrote, "the last value") {
	}
	if err := c.Send([]byte("hp")); err != nil {
		t.Fatal(err)
	}
	until(t, c, "a value of the edge comes", func() bool { return tower.Value("hp").Float() == 50 })
}

// A deafCarrier loses the first LinkUpdates.
type deafCarrier struct {
	carrier
	left *int
}

func (c deafCarrier) Send(to netip.AddrPort, b []byte) {
	if wire.Command(b[0]) == wire.CommandLinkUpdate && *c.left > 0 {
		*c.left--
		return
	}
	c.carrier.Send(to, b)
}

// TestRepeats: a value arrives although the first four datagrams with it get lost: the client repeats it until the edge acknowledges it.
func TestRepeats(t *testing.T) {
	t.Parallel()
	wrote := make(chan edgetest.Write, 100)
	way, err := openUDP(edgetest.Start(t, edgetest.Config{Wrote: wrote}))
	if err != nil {
		t.Fatal(err)
	}
	left := 4
	c, err := dial(patient(t), deafCarrier{way, &left}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := await(t, c, "tower").SetAt(0, 93.5); err != nil {
		t.Fatal(err)
	}
	if w := receive(t, wrote, "the last repeat"); w.State != "tower" || w.Index != 0 {
		t.Errorf("the edge got %+v", w)
	}
}

// An echoCarrier keeps copies of the LinkUpdates of the edge, and delivers them once more when it is told.
type echoCarrier struct {
	carrier
	kept  [][]byte
	again *atomic.Bool
}

func (c *echoCarrier) read(due time.Time, receive func([]byte)) error {
	if c.again.CompareAndSwap(true, false) {
		for _, p := range c.kept {
			receive(p)
		}
	}
	return c.carrier.read(due, func(p []byte) {
		if p[0] == byte(wire.CommandLinkUpdate) {
			c.kept = append(c.kept, bytes.Clone(p))
		}
		receive(p)
	})
}

// TestOrder: a datagram that comes late replaces no newer value, neither one of the edge nor one that the client set.
func TestOrder(t *testing.T) {
	t.Parallel()
	way, err := openUDP(edgetest.Start(t, edgetest.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	var again atomic.Bool
	var j journal
	c, err := dial(patient(t), &echoCarrier{carrier: way, again: &again}, j.config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tower := await(t, c, "tower")
	for _, v := range []float64{60, 70} {
		if err := c.Send([]byte("hp")); err != nil {
			t.Fatal(err)
		}
		until(t, c, "the edge sets 50", func() bool { return tower.At(0).Float() == 50 })
		if err := tower.SetConfirmed(patient(t), "", v); err == nil {
			t.Error("a value without a name was set")
		}
		ended := make(chan outbox.Result, 1)
		if err := tower.set(0, v, func(r outbox.Result) { ended <- r }); err != nil {
			t.Fatal(err)
		}
		if r := receive(t, ended, "the end of the write"); r != (outbox.Result{}) {
			t.Errorf("the write ended with %+v", r)
		}
	}
	again.Store(true)
	if err := c.Send([]byte("echo ready")); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the answer behind the late datagrams", func() bool { return !again.Load() && j.has("< ready true") })
	if hp := tower.At(0).Float(); hp != 70 {
		t.Errorf("late datagrams make hp %v, want 70", hp)
	}
}

// TestSetConfirmed: a program can wait until the game has a value.
func TestSetConfirmed(t *testing.T) {
	t.Parallel()
	refused := make(chan error, 1)
	c := connect(t, edgetest.Start(t, edgetest.Config{Describe: true, Loss: 0.2}), Config{Refused: func(_ *Client, _ *State, err *WriteError) { refused <- err }})
	tower := await(t, c, "tower")
	for _, v := range []float64{1, 2, 2, 3} {
		if err := tower.SetConfirmed(patient(t), "hp", v); err != nil {
			t.Errorf("hp %v: %v", v, err)
		}
	}
	const want = `client: setting hp of state "tower" is refused: bounds`
	if err := tower.SetConfirmed(patient(t), "hp", 101); err == nil || err.Error() != want {
		t.Errorf("101 is beyond what the edge takes: %v, want %s", err, want)
	}
	if err := receive(t, refused, "the refusal"); err.Error() != want {
		t.Errorf("Config.Refused hears %v", err)
	}
	until(t, c, "the true value", func() bool { return tower.Value("hp").Float() == 3 })
	if err := tower.SetConfirmed(patient(t), "nothing", 1); err == nil {
		t.Error("a value that does not exist was set")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tower.SetConfirmed(ctx, "hp", 4); !errors.Is(err, context.Canceled) {
		t.Errorf("without patience: %v", err)
	}
}

// TestPlain: a client that is told so says nothing but DNP, and sends values once.
func TestPlain(t *testing.T) {
	t.Parallel()
	wrote, messages := make(chan edgetest.Write, 10), make(chan []byte, 10)
	c := connect(t, edgetest.Start(t, edgetest.Config{Describe: true, Wrote: wrote, Received: messages}), Config{Plain: true})
	tower := await(t, c, "tower")
	if err := tower.SetConfirmed(patient(t), "hp", 5); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("a server that confirms nothing: %v, want %v", err, ErrUnconfirmed)
	}
	if w := receive(t, wrote, "the value"); w.State != "tower" || w.Index != 0 {
		t.Errorf("the edge got %+v", w)
	}
	if err := c.Send([]byte{0xC5, 1}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, messages, "a message"); string(m) != "\xC5\x01" {
		t.Errorf("the first message is %x, want c501: no hello, no envelope", m)
	}
	if n := c.outbox.Len(); n != 0 {
		t.Errorf("%d writes wait", n)
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	var seen journal
	c := connect(t, edge, seen.config())
	tower := await(t, c, "tower")
	until(t, c, "both states", func() bool { return len(c.States()) == 2 })
	if err := c.Send([]byte("close")); err != nil {
		t.Fatal(err)
	}
	receive(t, c.Done(), "the edge closes the connection")
	end, ok := errors.AsType[*EndError](c.Err())
	if !ok || end.Reason != Peer || !end.Made || end.Address != edge.String() {
		t.Errorf("the end is %+v", c.Err())
	}
	if want := fmt.Sprintf("end: the connection to %s ended: peer", edge); !strings.HasSuffix(seen.all(), want) || !seen.has("- tower") || !seen.has("- door") {
		t.Errorf("events, want the end of each state and then %q:\n%s", want, seen.all())
	}
	if tower.Linked() || len(c.States()) != 0 {
		t.Error("states outlive the connection")
	}
	for what, err := range map[string]error{
		"Send": c.Send([]byte("x")), "SendUnreliable": c.SendUnreliable([]byte("x")), "Flush": c.Until(t.Context(), func() bool { return false }),
	} {
		if !errors.Is(err, c.Err()) {
			t.Errorf("%s after the end: %v, want the reason", what, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close after the end: %v", err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	closing := make(chan error, 1)
	c := connect(t, edge, Config{Link: func(c *Client, _ *State) {
		go c.Close() // as a function of Config may
	}, End: func(_ *Client, err error) { closing <- err }})
	if end, ok := errors.AsType[*EndError](receive(t, closing, "the end")); !ok || end.Reason != Closed {
		t.Errorf("the end is %v, want %s", c.Err(), Closed)
	}
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	url := "udp://" + silent.LocalAddr().String()
	_, err = Dial(t.Context(), url, Config{Timeout: time.Millisecond})
	if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != Timeout || end.Made {
		t.Errorf("no edge answers: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ended, url, Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx ended: %v", err)
	}
	for what, dial := range map[string]func() (*Client, error){
		"no carrier":    func() (*Client, error) { return Dial(t.Context(), "ftp://127.0.0.1", Config{}) },
		"no carrier ":   func() (*Client, error) { return Dial(t.Context(), "127.0.0.1:3413", Config{}) },
		"address":       func() (*Client, error) { return Dial(t.Context(), "udp://nowhere.invalid", Config{}) },
		"1351 bytes":    func() (*Client, error) { return Dial(t.Context(), url, Config{Token: strings.Repeat("x", 1351)}) },
		"1358 bytes":    func() (*Client, error) { return Dial(t.Context(), url, Config{Login: make([]byte, 1358)}) },
		"both set":      func() (*Client, error) { return Dial(t.Context(), url, Config{Token: "x", Login: []byte("x")}) },
		"StatesMax":     func() (*Client, error) { return Dial(t.Context(), url, Config{StatesMax: -1}) },
		"less than zer": func() (*Client, error) { return Dial(t.Context(), url, Config{UpdateInterval: -1}) },
	} {
		if _, err := dial(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("got error %v, want one about %q", err, what)
		}
	}
}

func TestResolve(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:1":        "127.0.0.1:1",
		"127.0.0.1":          "127.0.0.1:3413",
		":9":                 "127.0.0.1:9",
		"[::1]:9":            "[::1]:9",
		"[::1]":              "[::1]:3413",
		"::1":                "[::1]:3413",
		"[::ffff:1.2.3.4]:5": "1.2.3.4:5",
	} {
		if got, err := resolve(t.Context(), address); err != nil || got.String() != want {
			t.Errorf("%s is %v, %v, want %s", address, got, err, want)
		}
	}
}

// TestReplaced: while a state is replaced the client may have links to both, and State returns the one that came last, whichever LinkIds they have.
func TestReplaced(t *testing.T) {
	c := &Client{states: map[wire.LinkID]*State{}}
	for n, id := range []wire.LinkID{7, 9, 3} {
		last := &State{client: c, id: id, key: "k"}
		c.keep(last)
		c.keep(&State{client: c, id: id + 100, key: "another"})
		for range 50 { // a map has no order
			if s := c.State("k"); s != last {
				t.Fatalf("after %d links State returns the one with LinkId %d, want %d", n+1, s.id, id)
			}
		}
	}
}

// TestStatesMax: a client declines states beyond its bound, and goes on.
func TestStatesMax(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	c := connect(t, edge, Config{StatesMax: 1})
	await(t, c, "tower")
	if err := c.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(patient(t)); err != nil {
		t.Fatal(err)
	}
	if n := len(c.States()); n != 1 {
		t.Errorf("the client has %d states", n)
	}
	var drops uint64
	until(t, c, "the second offer is declined", func() bool {
		stats := c.Stats()
		drops = stats.Drops[dnp.DropLinksFull]
		return drops > 0
	})
}

// TestManyWritersConverge: clients that write the same value at the same time end with one value.
func TestManyWritersConverge(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	var clients []*Client
	var towers []*State
	r := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		c := connect(t, edge, Config{UpdateInterval: time.Millisecond})
		clients, towers = append(clients, c), append(towers, await(t, c, "tower"))
	}
	for range 100 {
		if err := towers[r.IntN(len(towers))].SetAt(0, r.IntN(100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := towers[0].SetAt(1, "last"); err != nil {
		t.Fatal(err)
	}
	for i, c := range clients {
		until(t, c, "the last write comes", func() bool { return towers[i].At(1).String() == "last" })
	}
	watcher := connect(t, edge, Config{})
	truth := await(t, watcher, "tower")
	for i, c := range clients {
		until(t, c, "all clients see one value", func() bool { return towers[i].At(0) == truth.At(0) })
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		typ  string
		set  any
		want string
		hex  string
	}{
		{"sint8", -128, "-128", "80"}, {"uint8", uint8(255), "255", "ff"},
		{"sint16", int16(-2), "-2", "feff"}, {"uint16", 513.0, "513", "0102"},
		{"sint32", math.MinInt32, "-2147483648", "00000080"}, {"uint32", uint32(math.MaxUint32), "4294967295", "ffffffff"},
		{"sint64", int64(math.MinInt64), "-9223372036854775808", "0000000000000080"},
		{"uint64", uint64(math.MaxUint64), "18446744073709551615", "ffffffffffffffff"},
		{"float16", 1.5, "1.5", "003e"}, {"float32", 93.5, "93.5", "0000bb42"}, {"float64", float32(0.5), "0.5", "000000000000e03f"},
		{"string", "Ada", "Ada", "0300416461"}, {"data", []byte{1, 2}, "0102", "02000102"},
		{"point2s8", []int{-1, 2}, "[-1 2]", "ff02"}, {"point3u16", [3]uint16{1, 2, 3}, "[1 2 3]", "010002000300"},
		{"vector2f32", []float64{1, 2}, "[1 2]", "0000803f00000040"}, {"quaternionf16", [4]float32{0, 0, 0, 1}, "[0 0 0 1]", "000000000000003c"},
		{"float32", math.Inf(1), "+Inf", "0000807f"},
	} {
		typ := typeNamed(t, c.typ)
		enc, err := encode(typ, c.set)
		if err != nil || fmt.Sprintf("%x", enc) != c.hex {
			t.Errorf("%s %v is %x, %v, want %s", c.typ, c.set, enc, err, c.hex)
			continue
		}
		v, ok := NewValue(typ, enc)
		if !ok || v.String() != c.want || v.Type() != typ || !bytes.Equal(v.Append(nil), enc) {
			t.Errorf("%s %v reads as %q", c.typ, c.set, v)
		}
		if again, err := encode(typ, v); err != nil || !bytes.Equal(again, enc) {
			t.Errorf("%s %v: a Value does not survive: %x, %v", c.typ, c.set, again, err)
		}
	}
	for _, c := range []struct {
		typ string
		set any
	}{
		{"uint8", 256}, {"uint8", -1}, {"uint8", 1.5}, {"sint8", 128}, {"sint8", -129}, {"sint64", uint64(1 << 63)}, {"uint64", -1.0},
		{"float16", 70_000}, {"float32", 1e39}, {"uint64", 1e20}, {"sint64", 1e19}, {"uint8", nil}, {"vector3f32", 1}, {"vector3f32", []float64{1}},
		{"string", []byte("x")}, {"data", "x"}, {"sint8", math.NaN()}, {"vector2f32", []string{"1", "2"}}, {"uint16", Value{}},
	} {
		if enc, err := encode(typeNamed(t, c.typ), c.set); err == nil {
			t.Errorf("%v is a %s: %x", c.set, c.typ, enc)
		}
	}
	v, _ := NewValue(typeNamed(t, "vector3f32"), binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, math.Float32bits(7.5)), 0))
	if v.Len() != 3 || v.Int() != 7 || v.Uint() != 7 || v.Component(3) != 0 || !slices.Equal(v.Floats(), []float64{7.5, 0, 0}) {
		t.Errorf("%v: Len %d, Int %d, Floats %v", v, v.Len(), v.Int(), v.Floats())
	}
	if n := testing.AllocsPerRun(100, func() { _ = v.Component(1) }); n != 0 {
		t.Errorf("reading a component allocates %v times", n)
	}
	if _, ok := NewValue(typeNamed(t, "string"), []byte{5, 0, 'x'}); ok {
		t.Error("a text that is cut off is a value")
	}
}

func typeNamed(t *testing.T, name string) wire.ValueType {
	t.Helper()
	typ, ok := wire.ParseValueType(name)
	if !ok {
		t.Fatalf("no type %s", name)
	}
	return typ
}

// TestFields: a link message may tell the components of data.
func TestFields(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{Gun: true})
	a, b := connect(t, edge, Config{}), connect(t, edge, Config{})
	gun, other := await(t, a, "gun"), await(t, b, "gun")
	show := func(s *State) string { return fmt.Sprint(s.Fields(0)) }
	if got, want := show(gun), "[{aim vector3f16 [1 2 -3]} {shots uint16 7}]"; got != want {
		t.Errorf("the components are %s, want %s", got, want)
	}
	for why, v := range map[string]any{
		`field "shots" is missing`: map[string]any{"aim": []int{1, 2, 3}},
		"3 components, it has 2":   map[string]any{"aim": []int{1, 2, 3}, "shots": 1, "x": 1},
		"out of range":             map[string]any{"aim": []int{1, 2, 3}, "shots": -1},
		"want 3 numbers":           map[string]any{"aim": 1, "shots": 1},
	} {
		if err := gun.Set("ammo", v); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("set to %v: %v, want an error that says %q", v, err, why)
		}
	}
	if err := gun.Set("ammo", map[string]any{"aim": []float64{0, 0.5, 0}, "shots": 8}); err != nil {
		t.Fatal(err)
	}
	until(t, b, "the write reaches another client", func() bool { return show(other) == "[{aim vector3f16 [0 0.5 0]} {shots uint16 8}]" })
	if err := gun.Set("ammo", []byte{1}); err != nil {
		t.Fatal(err)
	}
	if gun.Fields(0) != nil || gun.Fields(1) != nil || gun.Fields(-1) != nil {
		t.Errorf("one byte has the components %v", gun.Fields(0))
	}
	tower := await(t, a, "tower")
	if err := tower.SetAt(0, map[string]any{"x": 1}); tower.Fields(0) != nil || err == nil || !strings.Contains(err.Error(), "no components") {
		t.Errorf("a number has the components %v, and can be set to some: %v", tower.Fields(0), err)
	}
}
