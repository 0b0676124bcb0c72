package top

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

var update = flag.Bool("update", false, "write the screens of testdata and the recording of README.md anew")

// A screenTest is a screen in front of a deployment that lives a second longer with each reading.
type screenTest struct {
	*testing.T
	m       *Model
	waiting []tea.Cmd
	seconds uint64
	change  func(r *Reading)
	asked   []Want
	quit    bool
}

func newScreenTest(t *testing.T) *screenTest {
	s := &screenTest{T: t}
	s.m = New(s)
	s.await(s.m.Init())
	s.turn()
	s.turn() // rates need two readings
	return s
}

func (s *screenTest) await(c tea.Cmd) {
	if c != nil {
		s.waiting = append(s.waiting, c)
	}
}

// turn runs the commands that the model has returned.
func (s *screenTest) turn() {
	now := s.waiting
	s.waiting = nil
	for _, c := range now {
		s.run(c())
	}
}

func (s *screenTest) run(msg tea.Msg) {
	switch msg := msg.(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			if c != nil {
				s.run(c())
			}
		}
	case tea.QuitMsg:
		s.quit = true
	default:
		s.send(msg)
	}
}

func (s *screenTest) send(msg tea.Msg) {
	_, c := s.m.Update(msg)
	s.await(c)
}

// press presses keys, and after each of them the deployment lives on for a second.
func (s *screenTest) press(keys ...string) {
	for _, k := range keys {
		s.send(keyPress(k))
		s.turn()
	}
}

var special = map[string]rune{
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "tab": tea.KeyTab, "pgdown": tea.KeyPgDown,
	"pgup": tea.KeyPgUp, "home": tea.KeyHome, "end": tea.KeyEnd, "left": tea.KeyLeft, "right": tea.KeyRight, "space": tea.KeySpace,
}

func keyPress(k string) tea.KeyPressMsg {
	if code, ok := special[k]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	return tea.KeyPressMsg{Code: rune(k[0]), Text: k}
}

// text returns the screen without styles and without blanks at the ends of lines.
func (s *screenTest) text() string {
	return regexp.MustCompile(` +(?m:$)`).ReplaceAllString(ansi.Strip(s.m.View().Content), "") + "\n"
}

// Read is the deployment: two relays, three edges of which one is silent, four spaces.
func (s *screenTest) Read(w Want) Reading {
	s.asked = append(s.asked, w)
	s.seconds++
	n := s.seconds
	r := Reading{Round: w.Round, At: time.Date(2026, 5, 4, 14, 5, 6, 0, time.UTC).Add(time.Duration(n) * time.Second)}
	node := func(name, role string, clients, spaces, shards int) {
		head := inspect.NewHead(name, role, nil)
		facts := inspect.NodeFacts{Version: "1.4.0", Uptime: inspect.Millis(26 * time.Hour), Ready: true, Spaces: spaces, Clients: clients, Shards: shards}
		r.Nodes = append(r.Nodes, inspect.NodesAnswer{Head: head, NodeFacts: &facts})
	}
	node("relay-0", "relay", 412, 2, 33)
	node("relay-1", "relay", 97, 2, 31)
	node("edge-a", "edge", 301, 4, 0)
	node("edge-b", "edge", 208, 4, 0)
	r.Nodes[3].Draining = true
	r.Missing = []inspect.Member{{Node: "edge-c", Role: "edge", Phase: "ready", Version: "1.4.0"}}
	space := func(name, holder string, clients int, states, perSecond uint64) {
		r.Spaces = append(r.Spaces, inspect.Space{Space: name, Holder: holder, Shard: len(name), Serving: true, Durable: true, Epoch: 7, States: states,
			Clients: clients, Since: inspect.Millis(time.Duration(3600+n) * time.Second), Publishes: n * perSecond, Batches: 20 * n, BatchBytes: 61 * n * perSecond})
	}
	space("arena", "relay-0", 412, 1200, 2400)
	space("lobby", "relay-1", 90, 12, 4)
	space("market", "relay-1", 7, 340, 60)
	space("empty", "relay-0", 0, 1, 0)
	r.Spaces[3].Durable = false
	for _, x := range r.Spaces[:3] {
		if w.Space == "" || w.Space == x.Space {
			r.Clients = append(r.Clients, someClients(x.Space)...)
		}
	}
	if r.Followed = w.Space; w.Space == "" {
		r.Followed = "arena"
	}
	for i := range uint64(30) {
		r.States = append(r.States, State{Key: fmt.Sprintf("npc.%d", i), Changes: n * (30 - i) / 2, Bytes: 14 * n * (30 - i)})
	}
	if s.change != nil {
		s.change(&r)
	}
	return r
}

func someClients(space string) (list []Client) {
	for i, name := range []string{"alice", "bob", "carol"} {
		c := inspect.Client{Client: name, Session: "s1", Edge: []string{"edge-a", "edge-b"}[i%2], Address: "192.0.2.0/24", Carrier: "udp", Age: inspect.Millis(time.Hour)}
		c.Links = inspect.Links{Up: 900 - 100*i, Waiting: 10 * i}
		c.Path = inspect.PathFacts{Heard: inspect.Millis(120 * time.Millisecond), Loss: 0.02, RTT: inspect.Millis(time.Duration(31+i) * time.Millisecond), Used: 0.4 * float64(i)}
		list = append(list, Client{Space: space, Client: c})
	}
	return list
}

// Why is the deployment.
func (s *screenTest) Why(space, client, key string) (*inspect.Facts, error) {
	if space == "lobby" {
		return nil, errors.New("no relay and no edge answers")
	}
	edge := &inspect.EdgeFacts{
		Edge: "edge-a", Epoch: 7, Whole: true, State: &inspect.StateFacts{Audience: "listed", Groups: []string{"red"}, Member: []string{"red"}, Included: true},
		Link: &inspect.LinkFacts{ID: 0x2c, Phase: "up", ReadOnly: true, Held: 41, Newest: 43, Lacks: 1, Waits: true, Waiting: inspect.Millis(120 * time.Millisecond)},
		Path: inspect.PathFacts{Loss: 0.07, RTT: inspect.Millis(31 * time.Millisecond), Slowed: 1.5, Rate: 24_000},
	}
	return &inspect.Facts{Edge: edge, Holder: &inspect.HolderFacts{Relay: "relay-0", Known: true, State: true, Epoch: 7}}, nil
}

// TestScreens compares screens with those of testdata; -update writes them.
func TestScreens(t *testing.T) {
	for _, c := range []struct {
		name string
		keys []string
		set  func(s *screenTest)
	}{
		{name: "overview"},
		{name: "spaces", keys: []string{"2", "down"}},
		{name: "spaces-by-clients-reverse", keys: []string{"2", "S", "S", "S", "r"}},
		{name: "nodes", keys: []string{"3"}},
		{name: "relay", keys: []string{"3", "down", "enter"}},
		{name: "edge", keys: []string{"3", "down", "down", "enter"}},
		{name: "clients", keys: []string{"4"}},
		{name: "clients-by-loss", keys: []string{"4", "s", "s"}},
		{name: "clients-of-space", keys: []string{"2", "c"}},
		{name: "states", keys: []string{"2", "enter"}},
		{name: "states-scrolled", keys: []string{"5", "end"}},
		{name: "states-of-client", keys: []string{"4", "enter", "down"}},
		{name: "why", keys: []string{"4", "enter", "down", "enter"}},
		{name: "why-unanswered", keys: []string{"2", "down", "down", "c", "enter", "enter"}},
		{name: "help", keys: []string{"?"}},
		{name: "overview-list", keys: []string{"tab", "tab", "enter"}},
		{name: "back", keys: []string{"2", "enter", "esc"}},
		{name: "paused", keys: []string{"p", "5", "down"}},
		{name: "narrow", keys: []string{"2"}, set: func(s *screenTest) { s.send(tea.WindowSizeMsg{Width: 40, Height: 12}) }},
		{name: "wide", keys: []string{"4"}, set: func(s *screenTest) { s.send(tea.WindowSizeMsg{Width: 132, Height: 12}) }},
		{name: "trouble", set: func(s *screenTest) {
			s.change = func(r *Reading) { *r = Reading{Round: r.Round, Err: errors.New("no relay and no edge answers")} }
			s.turn()
		}},
		{name: "nothing-yet", set: func(s *screenTest) { s.m = New(s) }},
		{name: "states-unknown", keys: []string{"5"}, set: func(s *screenTest) {
			s.change = func(r *Reading) { r.States, r.Unknown = nil, "the NATS user may not follow space arena" }
			s.turn()
		}},
		{name: "hostile", keys: []string{"2"}, set: func(s *screenTest) {
			s.change = func(r *Reading) {
				r.Spaces[0].Space, r.Spaces[0].Holder = "a\x1b[2Jb\r\n"+strings.Repeat("x", 60), "界界\u202e"
			}
			s.turn()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScreenTest(t)
			if c.set != nil {
				c.set(s)
			}
			s.press(c.keys...)
			file := filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(s.text()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.text(); got != string(want) {
				t.Errorf("after the keys %q the screen is\n%s\nwant, as %s has it,\n%s", c.keys, got, file, want)
			}
		})
	}
}

// recording is the block of README.md that has screens.
var recording = regexp.MustCompile("(?s)(<!-- readme: tested TestRecording -->\n```text\n)(.*?)(```\n)")

// TestRecording compares the screens of README.md with those that the model shows; -update writes them.
func TestRecording(t *testing.T) {
	s := newScreenTest(t)
	s.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	first := s.text()
	s.press("4", "enter", "down", "enter")
	lines := strings.Split(s.text(), "\n")
	second := strings.TrimRight(strings.Join(lines[:len(lines)-2], "\n"), "\n") // without the help at the bottom and blank lines before it
	want := first + "\n" + second + "\n"
	const file = "../../README.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := recording.FindSubmatchIndex(text)
	if at == nil {
		t.Fatal("README.md has no recording")
	}
	if got := string(text[at[4]:at[5]]); got != want && *update {
		if err := os.WriteFile(file, slices.Concat(text[:at[4]], []byte(want), text[at[5]:]), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("the recording of README.md is\n%s\nwant, which go test ./internal/top -update writes,\n%s", got, want)
	}
}

// TestAnySize presses random keys on screens of any size: no line is too wide, and none too many.
func TestAnySize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	keys := append(slices.Sorted(func(yield func(string) bool) {
		for k := range special {
			if !yield(k) {
				return
			}
		}
	}), "1", "2", "3", "4", "5", "s", "S", "r", "c", "?", "p", "j", "k", "g", "G")
	s := newScreenTest(t)
	s.change = func(r *Reading) {
		r.Spaces = r.Spaces[:rnd.IntN(len(r.Spaces)+1)]
		r.Clients, r.States = r.Clients[:rnd.IntN(len(r.Clients)+1)], r.States[:rnd.IntN(len(r.States)+1)]
	}
	for n := range 4000 {
		width, height := 1+rnd.IntN(100), 1+rnd.IntN(40)
		key := keys[rnd.IntN(len(keys))]
		s.send(tea.WindowSizeMsg{Width: width, Height: height})
		s.press(key)
		lines := strings.Split(s.m.View().Content, "\n")
		if len(lines) != height {
			t.Fatalf("step %d, key %s: %d lines on a screen of %d×%d", n, key, len(lines), width, height)
		}
		for _, line := range lines {
			if ansi.StringWidth(line) > width {
				t.Fatalf("step %d, key %s: line %q on a screen of %d×%d", n, key, line, width, height)
			}
		}
	}
	if len(s.m.back) > backMax {
		t.Errorf("the key esc finds %d places, want at most %d", len(s.m.back), backMax)
	}
}

// TestAsks: one reading is under way at a time, and a page about another space does not wait for its turn.
func TestAsks(t *testing.T) {
	s := newScreenTest(t)
	if len(s.asked) != 2 || !s.asked[0].Now || s.asked[1].Now || s.asked[1].Space != "" {
		t.Fatalf("asked %+v, want a first reading at once and a second in its turn", s.asked)
	}
	s.send(keyPress("2"))
	if len(s.waiting) != 1 {
		t.Errorf("%d commands after the page of spaces was opened, want the reading that waits and no other", len(s.waiting))
	}
	s.send(keyPress("enter"))
	s.turn()
	last := s.asked[len(s.asked)-1]
	if !last.Now || last.Space != "arena" {
		t.Errorf("the last question is %+v, want one about arena at once", last)
	}
	if len(s.waiting) != 1 {
		t.Errorf("%d commands wait after a question overtook another, want 1: the answer to the other is dropped", len(s.waiting))
	}
	s.press("q")
	if !s.quit {
		t.Error("the key q does not end the program")
	}
}

// TestStyles: what is wrong is red, and the row of the cursor is reversed.
func TestStyles(t *testing.T) {
	s := newScreenTest(t)
	s.press("3")
	lines := strings.Split(s.m.View().Content, "\n")
	if !strings.HasPrefix(lines[3], reversed+"relay-0") || !strings.HasPrefix(lines[6], red+"edge-b") || strings.Contains(lines[5], "\x1b") {
		t.Errorf("lines %q, want the first node reversed, the draining one red, and the one before it plain", lines[3:7])
	}
	if v := s.m.View(); !v.AltScreen {
		t.Error("the screen is not the alternate one, so it stays when the command ends")
	}
}

func TestFollow(t *testing.T) {
	rates := []SpaceRate{{Space: inspect.Space{Space: "a"}, ByteRate: 100}, {Space: inspect.Space{Space: "b"}, ByteRate: 60}, {Space: inspect.Space{Space: "c"}, ByteRate: 10}}
	for _, c := range []struct{ why, followed, want string }{
		{"nothing is followed", "", "a"},
		{"the followed space is almost as busy", "b", "b"},
		{"another is far busier", "c", "a"},
		{"the followed space is gone", "x", "a"},
	} {
		if got := Follow(rates, c.followed); got != c.want {
			t.Errorf("%s: follows %q, want %q", c.why, got, c.want)
		}
	}
	if got := Follow(nil, "a"); got != "" {
		t.Errorf("without spaces it follows %q", got)
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 12.3: "12", 9999: "9999", 10_000: "10k", 9_999_000: "9999k", 12_345_678: "12M", 3e10: "30G"} {
		if got := short(n); got != want {
			t.Errorf("%v is shown as %s, want %s", n, got, want)
		}
	}
}

// TestRates: counters that began anew give no rates.
func TestRates(t *testing.T) {
	before := inspect.Space{Space: "a", Epoch: 7, Since: inspect.Millis(time.Second), Publishes: 10}
	for _, c := range []struct {
		why  string
		now  inspect.Space
		want float64
	}{
		{"two seconds later", inspect.Space{Space: "a", Epoch: 7, Since: inspect.Millis(3 * time.Second), Publishes: 30}, 10},
		{"another epoch", inspect.Space{Space: "a", Epoch: 8, Since: inspect.Millis(3 * time.Second), Publishes: 30}, 0},
		{"the same moment", before, 0},
		{"another space", inspect.Space{Space: "b", Epoch: 7, Since: inspect.Millis(3 * time.Second), Publishes: 30}, 0},
	} {
		if got := SpaceRates([]inspect.Space{before}, []inspect.Space{c.now})[0].PublishRate; got != c.want {
			t.Errorf("%s: %v publishes a second, want %v", c.why, got, c.want)
		}
	}
	at := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	a := Reading{At: at, Followed: "a", States: []State{{Key: "k", Changes: 10}}}
	b := Reading{At: at.Add(2 * time.Second), Followed: "a", States: []State{{Key: "k", Changes: 30}, {Key: "new", Changes: 5}}}
	if got := stateRates(a, b); got[0].changeRate != 10 || got[1].changeRate != 0 {
		t.Errorf("rates of states: %+v, want 10 and 0", got)
	}
	a.At = b.At.Add(time.Second)
	if got := stateRates(b, a); got[0].changeRate != 0 {
		t.Errorf("rates of counters that went back: %+v, want 0", got)
	}
}
