package fanout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

var start = time.Unix(1000, 0)

// A fakeHost is a Host that records what is published.
type fakeHost struct {
	published []string
	requested []bus.Msg
}

func (h *fakeHost) Publish(m bus.Msg) error {
	h.published = append(h.published, m.Subject+" "+string(m.Data))
	return nil
}

func (h *fakeHost) Request(m bus.Msg, _ time.Duration, _ func(time.Time, bus.Msg, error)) {
	h.requested = append(h.requested, m)
}
func (*fakeHost) Repair(_ time.Time, _ string, _ int, request []byte) (replication.Asked, error) {
	return replication.Asked{ID: replication.RequestID(request)}, nil
}
func (*fakeHost) Subscribe(string, func(time.Time, bus.Msg)) func() { return func() {} }
func (*fakeHost) Follow(string, int)                                {}
func (*fakeHost) Unfollow(string, int)                              {}

func newPeer(h Host) *peer {
	return &peer{spaceInfo: &spaceInfo{base: &base{Config: Config{Host: h}}, spaceName: "arena"}, SessionConfig: SessionConfig{ID: "m", Claims: newClaims(), Began: start}}
}

// newClaims returns the claims of a client that needs no login, and may write.
func newClaims() auth.Claims { return auth.Claims{Client: "alice", Space: "arena", Write: true} }

func TestRepeater(t *testing.T) {
	var r repeater
	next := start.Add(time.Hour)
	if r.ready(start, &next) || r.pending() || next != start.Add(time.Hour) {
		t.Fatal("the zero repeater is due, or has a deadline")
	}
	r.want(start)
	now := start
	for i, wait := range []time.Duration{100, 200, 400, 500, 500} {
		if !r.ready(now, &next) {
			t.Fatalf("sending %d is not due at %v", i, now.Sub(start))
		}
		if again := r.again(); again != (i > 0) {
			t.Fatalf("sending %d counts as a repetition: %v", i, again)
		}
		next = now.Add(time.Hour)
		if r.sent(now, &next); next.Sub(now) != wait*time.Millisecond {
			t.Fatalf("sending %d makes the worker look again after %v, want %d ms", i, next.Sub(now), wait)
		}
		if next = now.Add(time.Hour); r.ready(now, &next) || next.Sub(now) != wait*time.Millisecond {
			t.Fatalf("sending %d is repeated after %v, want %d ms", i, next.Sub(now), wait)
		}
		now = next
	}
	if r.stop(); r.pending() {
		t.Error("the repeater goes on after the answer")
	}
}

func TestReplaced(t *testing.T) {
	announcement := func(id string, began time.Time) bus.Msg {
		return bus.Msg{Header: map[string]string{subject.HeaderSession: id, subject.HeaderBegan: fmt.Sprint(began.UnixMicro())}}
	}
	for _, c := range []struct {
		why      string
		other    string
		began    time.Duration // of the other session, after this one
		age      time.Duration // of this session
		known    bool
		replaced bool
	}{
		{"the session hears its own announcement", "m", 0, 0, true, false},
		{"an old session ends when a new one announces itself", "z", 10 * time.Second, 10 * time.Second, true, true},
		{"an old session ends even if the clock of the other edge is behind", "z", -time.Second, 10 * time.Second, true, true},
		{"of two young sessions the earlier one ends", "z", time.Millisecond, time.Second, true, true},
		{"of two young sessions the later one stays", "z", -time.Millisecond, time.Second, true, false},
		{"of two sessions of the same moment the one with the greater name stays", "a", 0, time.Second, true, false},
		{"of two sessions of the same moment the one with the smaller name ends", "z", 0, time.Second, true, true},
		{"without claims the name of the client proves nothing", "z", 10 * time.Second, 10 * time.Second, false, false},
	} {
		r := rights{peer: newPeer(nil)}
		if c.known {
			r.Claims.Expires = start.Add(time.Hour)
		}
		if got := r.replaced(start.Add(c.age), announcement(c.other, start.Add(c.began))); got != c.replaced {
			t.Errorf("replaced = %v, want %v: %s", got, c.replaced, c.why)
		}
	}
	r := rights{peer: newPeer(nil)}
	r.Claims.Expires = start.Add(time.Hour)
	if !r.replaced(start, bus.Msg{Header: map[string]string{subject.HeaderSession: "z"}}) {
		t.Error("an announcement without a time replaces nothing, want that it counts as later")
	}
}

// TestTokens repeats messages with a game's token, as a game server does whose answer is lost.
func TestTokens(t *testing.T) {
	h := &fakeHost{}
	c := messages{peer: newPeer(h), replies: make(map[uint64]string)}
	want := func(why string, answers ...string) {
		t.Helper()
		if got := h.published; !slices.Equal(got, answers) {
			t.Fatalf("%s: the edge answers %q, want %q", why, got, answers)
		}
		h.published = nil
	}
	message := func(token, reply string) bus.Msg {
		return bus.Msg{Reply: reply, Header: map[string]string{subject.HeaderToken: token}}
	}
	take := func(m bus.Msg, known bool, why string) uint64 {
		t.Helper()
		game := gameToken(&m)
		if got := c.repeated(game, m.Reply); got != known {
			t.Fatalf("known = %v, want %v: %s", got, known, why)
		}
		if known {
			return 0
		}
		return c.newToken(game, m.Reply)
	}
	first := take(message("7", "r1"), false, "token 7 is new")
	want("the message has no number yet")
	take(message("7", "r2"), true, "token 7 is repeated")
	want("the repetition is answered with the first, when it has its number")
	c.sent(&dnp.Event{Token: first, Number: 3})
	want("the number goes to the reply subject of the repetition", `r2 {"number":3}`)
	take(message("7", "r3"), true, "token 7 is repeated again")
	want("the message is sent", `r3 {"duplicate":true}`)
	take(message("6", "r4"), true, "token 6 is below one that came before")
	want("its answer was lost with an edge", `r4 {"duplicate":true}`)
	if token := take(message("", ""), false, "no token and no reply"); token != 0 {
		t.Fatalf("a message whose number no sender wants has token %d", token)
	}
	second := take(message("8", "r5"), false, "token 8 is new")
	take(message("", "r6"), false, "no token, but a reply")
	if c.clientLeft(); len(h.published) != 2 || !strings.HasPrefix(h.published[0], "r5 ") || !strings.Contains(h.published[0], "unknown_client") {
		t.Fatalf("the client left: the edge answers %q, want an error for r5 and r6 in this order", h.published)
	}
	if second>>tokenShift != 8 {
		t.Errorf("token %x does not carry the token of the game", second)
	}
}

// TestTokensWrap gives tokens to more messages than the count of a token can tell apart.
func TestTokensWrap(t *testing.T) {
	c := messages{peer: newPeer(&fakeHost{}), replies: make(map[uint64]string), lastToken: 1<<tokenShift - 1}
	if token := c.newToken(0, "r"); token == 0 {
		t.Error("a message whose sender wants its number has token 0, which no event reports")
	}
}

// TestWriteBounds stores values until there is no room.
func TestWriteBounds(t *testing.T) {
	w := &writes{peer: newPeer(nil), bySource: make(map[*dnp.Source]*writer)}
	sources := make([]dnp.Source, sessionBytesMax/writerBytesMax+1)
	value := make([]byte, writerBytesMax/2-writtenOverhead)
	for i := range sources[:len(sources)-1] {
		wr := w.writer(&sources[i], nil)
		if !wr.store(0, 0, 0, value) || !wr.store(1, 0, 0, value) {
			t.Fatalf("writer %d is full before its bound", i)
		}
		if wr.store(2, 0, 0, nil) {
			t.Fatalf("writer %d stores %d bytes, want %d at most", i, wr.size, writerBytesMax)
		}
		if !wr.store(1, 0, 0, value[:8]) || !wr.store(1, 0, 0, value) {
			t.Fatalf("writer %d refuses newer bytes of a value that it has", i)
		}
	}
	last := &sources[len(sources)-1]
	if w.writer(last, nil).store(0, 0, 0, value) {
		t.Fatalf("the session stores %d bytes, want %d at most", w.total, sessionBytesMax)
	}
	w.discard(&sources[0])
	if !w.writer(last, nil).store(0, 0, 0, value) {
		t.Error("there is no room after a writer was discarded")
	}
	if got, ok := w.bySource[last].newest(0); !ok || len(got) != len(value) {
		t.Errorf("the newest bytes are %d, %v, want %d", len(got), ok, len(value))
	}
	if w.discardAll(); w.total != 0 || len(w.bySource) > 0 || len(w.list) > 0 {
		t.Errorf("%d bytes of %d writers are left, want none", w.total, len(w.bySource))
	}
}

// TestWideWriteNumbers: a request has its wide number in a header as soon as the number in it
// says too little, a repetition the same one.
func TestWideWriteNumbers(t *testing.T) {
	h := &fakeHost{}
	p := newPeer(h)
	for _, c := range []struct {
		epoch  uint64
		made   uint32
		number uint32
		wide   string
	}{
		{0, 0, 1, ""},
		{127, 7, 127<<24 + 8, ""},
		{128, 7, 128<<24 + 8, "549755813896"},
		{1000, 7, 232<<24 + 8, "4294967296008"},
		{2, 1<<24 - 2, 3<<24 - 1, ""},
		{2, 1<<24 - 1, 3 << 24, "8606711808"},
	} {
		p.SessionEpoch, p.made = c.epoch, c.made
		w := replication.Write{Kind: replication.WriteValues, Number: p.nextWrite()}
		p.request(&w, nil)
		p.made += 5
		p.request(&w, nil)
		for _, m := range h.requested {
			if got := m.Header[subject.HeaderWrite]; w.Number != c.number || got != c.wide {
				t.Errorf("request %d of epoch %d has the numbers %#x and %q, want %#x and %q", c.made+1, c.epoch, w.Number, got, c.number, c.wide)
			}
		}
		h.requested = nil
	}
}

// TestWriteNumbers begins the writes of a durable session above those of its earlier epochs.
func TestWriteNumbers(t *testing.T) {
	p := newPeer(nil)
	if a, b := p.nextWrite(), p.nextWrite(); a != 1 || b != 2 {
		t.Errorf("writes are numbered %d, %d, want 1, 2", a, b)
	}
	p.writeNumber = 1<<32 - 1
	if n := p.nextWrite(); n != 1 {
		t.Errorf("the number behind the greatest one is %d, want 1: 0 stands for none", n)
	}
	p.SessionEpoch = 3
	if n := p.nextWrite(); n != 3<<24+1 {
		t.Errorf("the first write of epoch 3 has number %#x", n)
	}
}
