package gossip

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

func TestParseKeys(t *testing.T) {
	k16, k24, k32 := bytes.Repeat([]byte{0xfb}, 16), bytes.Repeat([]byte{0xff}, 24), bytes.Repeat([]byte{7}, 32)
	for name, c := range map[string]struct {
		text string
		want [][]byte
		err  string
	}{
		"hex":         {hex.EncodeToString(k16) + "\n" + strings.ToUpper(hex.EncodeToString(k32)), [][]byte{k16, k32}, ""},
		"base64":      {base64.StdEncoding.EncodeToString(k16) + "\r\n" + base64.RawURLEncoding.EncodeToString(k24), [][]byte{k16, k24}, ""},
		"32 digits":   {strings.Repeat("0", 32), [][]byte{make([]byte, 16)}, ""},
		"comments":    {"# one\n\n  " + hex.EncodeToString(k16) + "  \n#two", [][]byte{k16}, ""},
		"twice":       {hex.EncodeToString(k16) + "\n" + hex.EncodeToString(k32) + "\n" + base64.StdEncoding.EncodeToString(k16), [][]byte{k16, k32}, ""},
		"empty":       {"\n# nothing\n", nil, "holds no key"},
		"not a key":   {"#\nhello, world", nil, "line 2: want a key in hex or base64"},
		"bad length":  {base64.StdEncoding.EncodeToString(make([]byte, 20)), nil, "line 1: has a key of 20 bytes, want 16, 24 or 32"},
		"hex, short":  {strings.Repeat("ab", 15), nil, "line 1: "},
		"too many":    {nineKeys(), nil, "holds 9 keys, at most 8"},
		"a huge file": {strings.Repeat("\n", keyFileMax+1), nil, "more than"},
	} {
		got, err := parseKeys([]byte(c.text))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want an error with %q", name, err, c.err)
			}
			continue
		}
		if err != nil || !slices.EqualFunc(got, c.want, func(a key, b []byte) bool { return a == key(b) }) {
			t.Errorf("%s: got %x, %v, want %x", name, got, err, c.want)
		}
	}
}

func nineKeys() string {
	var lines []string
	for i := range 9 {
		lines = append(lines, hex.EncodeToString(bytes.Repeat([]byte{byte(i)}, 16)))
	}
	return strings.Join(lines, "\n")
}

func TestKeyFileErrors(t *testing.T) {
	if _, err := readKeys(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := readKeys(t.TempDir()); err == nil {
		t.Error("a folder is read as a key file")
	}
	err := openError("/etc/gossip.key", 65532, &fs.PathError{Op: "open", Path: "/etc/gossip.key", Err: fs.ErrPermission})
	if !strings.Contains(err.Error(), "/etc/gossip.key: user 65532 has no permission to read it") {
		t.Errorf("a file without permission: %v", err)
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(keyA + "\n#\n" + keyB))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseKeys(text)
		if err == nil && (len(keys) == 0 || len(keys) > keysMax) {
			t.Fatalf("%q: %d keys", text, len(keys))
		}
		for _, k := range keys {
			if memberlist.ValidateKey([]byte(k)) != nil {
				t.Fatalf("%q: a key of %d bytes", text, len(k))
			}
		}
	})
}

// TestRotationSteps changes [A] to [B] in one step, with a delay of 10 s.
func TestRotationSteps(t *testing.T) {
	a, b, c := key("a"), key("b"), key("c")
	start := time.Unix(0, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	r := newRotation([]key{a}, 10*time.Second)
	ring := func(why string, want ...key) {
		t.Helper()
		if !slices.Equal(r.ring, want) {
			t.Errorf("%s: the ring is %q, want %q", why, r.ring, want)
		}
	}
	step := func(second int, wantSwitched, wantDropped bool) {
		t.Helper()
		if s, d := r.advance(at(second)); s != wantSwitched || d != wantDropped {
			t.Errorf("at %d s: switched %v, dropped %v", second, s, d)
		}
	}
	if !r.read(at(0), []key{b}) || r.read(at(1), []key{b}) {
		t.Error("the same keys count as a change")
	}
	ring("B is known at once, A is sent with, because others may not know B", a, b)
	step(9, false, false)
	step(10, true, false)
	ring("all know B; some may still send with A", b, a)
	step(19, false, false)
	step(20, false, true)
	ring("no node sends with A", b)
	step(100, false, false)

	r.read(at(100), []key{b, c})
	ring("one more key", b, c)
	step(110, false, true)
	r.read(at(110), []key{c, b})
	r.read(at(115), []key{a, c})
	ring("a change during a change forgets nothing", b, c, a)
	step(120, false, false)
	step(125, true, false)
	ring("A is in use 10 s after the last change", a, b, c)
	step(135, false, true)
	ring("B has gone", a, c)
}

func TestRotationTriesKeys(t *testing.T) {
	a, b := key("a"), key("b")
	now := time.Unix(0, 0)
	r := newRotation([]key{b, a}, time.Second)
	if !r.useNext(now) || r.ring[0] != a || r.useNext(now) {
		t.Errorf("the ring is %q, want A first and no further key to try", r.ring)
	}
	if s, _ := r.advance(now.Add(time.Second)); !s || r.ring[0] != b {
		t.Errorf("the ring is %q, want the first key of the file in the end", r.ring)
	}
}

// TestInstall changes a keyring while other goroutines decrypt with it, for the race detector.
func TestInstall(t *testing.T) {
	k := func(i int) key { return key(bytes.Repeat([]byte{byte(i)}, 16)) }
	ring, err := memberlist.NewKeyring(nil, []byte(k(0)))
	if err != nil {
		t.Fatal(err)
	}
	stop, readers := make(chan struct{}), sync.WaitGroup{}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, got := range ring.GetKeys() {
				if len(got) != 16 {
					t.Error("the ring has an invalid key")
				}
			}
		}
	})
	for range 300 {
		for _, want := range [][]int{{0, 1, 2}, {2, 1}, {2, 0, 3}, {3, 1}, {1, 3, 0, 2}, {1, 2}, {5}, {5, 6, 7, 8}, {8, 5}, {0}} {
			var keys []key
			for _, i := range want {
				keys = append(keys, k(i))
			}
			install(ring, keys)
			got := ring.GetKeys()
			unknown := slices.ContainsFunc(got, func(g []byte) bool { return !slices.Contains(keys, key(g)) })
			if len(got) != len(keys) || key(got[0]) != keys[0] || unknown {
				t.Errorf("%v became %x", want, got)
			}
		}
	}
	close(stop)
	readers.Wait()
}

func TestAdvertised(t *testing.T) {
	machine := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd00::1"),
	}
	for _, c := range []struct {
		asked, bound string
		machine      []netip.Addr
		want         string
	}{
		{"", "127.0.0.2:7", machine, "127.0.0.2:7"},
		{"", "0.0.0.0:7", machine, "10.1.2.3:7"},
		{"", "0.0.0.0:7", machine[:5], "192.0.2.7:7"},
		{"", "0.0.0.0:7", machine[:4], "[2001:db8::1]:7"},
		{"", "0.0.0.0:7", machine[:3], ""},
		{"", "[::]:7", machine, "[fd00::1]:7"},
		{"", "[::]:7", machine[4:6], "10.1.2.3:7"},
		{"192.0.2.1", "0.0.0.0:7", nil, "192.0.2.1:7"},
		{"192.0.2.1:8", "0.0.0.0:7", nil, "192.0.2.1:8"},
		{"fd00::2", "0.0.0.0:7", nil, "[fd00::2]:7"},
		{"[fd00::2]:9", "0.0.0.0:7", nil, "[fd00::2]:9"},
		{"::", "0.0.0.0:7", machine, ""},
		{"relay", "0.0.0.0:7", machine, ""},
	} {
		got, err := advertised(c.asked, netip.MustParseAddrPort(c.bound), c.machine)
		text := ""
		if err == nil {
			text = got.String()
		}
		if text != c.want {
			t.Errorf("asked %q, bound %s: got %q, %v, want %q", c.asked, c.bound, text, err, c.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	for text, want := range map[string]refusalReason{
		"failed to join 1.2.3.4:5: no installed keys could decrypt the message":                      wrongKey,
		"x: remote error: no installed keys could decrypt the message":                               wrongKey,
		"x: encryption is configured but remote state is not encrypted":                              noKeyThere,
		"x: remote state is encrypted and encryption is not configured":                              noKeyHere,
		"x: remote error: encryption is configured but remote state is not encrypted from=1.2.3.4:5": noKeyHere,
		"x: remote error: remote state is encrypted and encryption is not configured":                noKeyThere,
		"failed to join 1.2.3.4:5: dial tcp 1.2.3.4:5: connect: connection refused":                  "",
		"failed to join 1.2.3.4:5: read tcp 1.2.3.4:6->1.2.3.4:5: i/o timeout":                       "",
	} {
		if got := refusal(errors.New(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestJoinWait(t *testing.T) {
	for _, c := range []struct {
		attempt     int
		established bool
		random      float64
		want        time.Duration
	}{
		{0, false, 0.5, 250 * time.Millisecond}, {1, false, 0.5, 500 * time.Millisecond}, {5, false, 0.5, 5 * time.Second},
		{1_000_000, false, 0, 4 * time.Second}, {0, true, 0.5, 10 * time.Second}, {9, true, 1, 12 * time.Second},
	} {
		if got := joinWait(c.attempt, c.established, 10*time.Second, c.random); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	l := newLogger(slog.New(slog.NewTextHandler(&out, nil)))
	log := l.standard()
	for range 1000 {
		log.Printf("[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=1.2.3.4:5")
	}
	log.Printf("[INFO] memberlist: Suspect relay-1 has failed, no acks received")
	log.Printf("[WARN] memberlist: Refuting a suspect message (from: relay-1)")
	log.Printf("[DEBUG] memberlist: Stream connection from=1.2.3.4:5")
	log.Printf("[ERR] memberlist: Failed to receive: %s", strings.Repeat("é", 1000))
	if l.undecipherable.Load() != 1000 || l.suspicions.Load() != 1 || l.refutations.Load() != 1 {
		t.Errorf("counted %d undecipherable messages, %d suspicions and %d refutations", l.undecipherable.Load(), l.suspicions.Load(), l.refutations.Load())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "hint=") ||
		!strings.Contains(lines[1], "level=INFO") || len(lines[2]) > 500 {
		t.Errorf("want three log lines, one of each kind:\n%s", out.String())
	}
	if missed, ok := l.allow("Decrypt packet failed: x", time.Now().Add(logInterval)); !ok || missed != 999 {
		t.Errorf("the next line of a kind left out %d, logged: %v", missed, ok)
	}
	for i := range 10 * logKindsMax {
		l.allow(strings.Repeat("x", i), time.Now())
	}
	if len(l.kinds) > logKindsMax {
		t.Errorf("the logger remembers %d kinds", len(l.kinds))
	}
}

// TestMemberOfOtherFormat checks that members which read other formats, and say more than this program
// knows, are members like all others, and that the roster has the format that all of them read.
func TestMemberOfOtherFormat(t *testing.T) {
	member := cluster.Member{Name: "a", Role: cluster.RoleRelay, Phase: cluster.PhaseReady, Shards: 64, Format: 3}
	table := newTable(member)
	want := func(why string, members int, format uint8) {
		t.Helper()
		if r := table.snapshot(); r.Len() != members || r.Format() != format {
			t.Errorf("%s: %d members with format %d, want %d with %d", why, r.Len(), r.Format(), members, format)
		}
	}
	node := func(name string, format uint8, rest ...byte) *memberlist.Node {
		m := member
		m.Format = format
		return &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: 7946, Meta: append(m.AppendMetadata(nil), rest...)}
	}
	want("a node alone writes its newest format", 1, 3)
	newer, old := node("b", 4, 1, 2, 3), node("c", 1)
	for _, n := range []*memberlist.Node{newer, old} {
		if err := table.NotifyAlive(n); err != nil {
			t.Errorf("member %s is refused: %v", n.Name, err)
		}
	}
	table.NotifyJoin(newer)
	want("a newer member does not matter", 2, 3)
	table.NotifyJoin(old)
	want("an older member does", 3, 1)
	table.NotifyLeave(old)
	want("until it leaves", 2, 3)
}
