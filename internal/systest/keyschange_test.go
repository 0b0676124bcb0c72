package systest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// keyFile returns a file with one key of gossip, of 32 equal bytes.
func keyFile(t *testing.T, b byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	writeKey(t, file, b)
	return file
}

func writeKey(t *testing.T, file string, b byte) {
	t.Helper()
	if err := os.WriteFile(file, []byte(hex.EncodeToString(bytes.Repeat([]byte{b}, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKeysChange replaces the key of gossip while two edges forward a client's datagrams to
// each other, until they have forgotten the old one. What the client says arrives, and an
// edge that comes then, and never knew the old key, forwards to them as well: datagrams are
// sealed with the key that gossip has.
func TestKeysChange(t *testing.T) {
	const delay = 2 * time.Second // forwarding looks at the keys of gossip each second
	keys := keyFile(t, 0)
	p := newPairWith(t, keys, delay)
	p.client.GiveUp = patience // a slow machine knows a key too late, which costs repetitions
	b, peer := p.balance(anyOf(p.addrs))
	said := 0
	pace := time.NewTicker(50 * time.Millisecond) // a client that says more is taken for one that floods
	defer pace.Stop()
	sayUntil := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !done(); <-pace.C {
			if time.Now().After(end) {
				t.Fatalf("not within %v: %s", patience, what)
			}
			p.until(peer, "connected", func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected && c.Queued() < 5 })
			p.say(peer, fmt.Sprint("m ", said))
			said++
		}
	}
	sayUntil("the client's datagrams are forwarded", func() bool { return p.taken() > 0 })
	writeKey(t, keys, 1)
	sayUntil("both edges have another key", func() bool { return p.onlyKey(1) })
	before := p.taken()
	sayUntil("they forward on", func() bool { return p.taken() >= before+5 })
	p.add("e3", keyFile(t, 1))
	p.meet()
	b.spread(p.addrs)
	sayUntil("the third edge takes answers for its clients, or datagrams of clients that it serves", func() bool {
		stats := p.forwards[2].Stats()
		return stats.Client+stats.Owner >= 5
	})
	p.inOrder("the game has what the client said", p.game.await(p, 1, said)[0].texts, said)
}

// onlyKey reports whether both edges know this key and no other.
func (p *pair) onlyKey(b byte) bool {
	for _, g := range p.gossips {
		if keys := g.Keys(); len(keys) != 1 || keys[0][0] != b {
			return false
		}
	}
	return true
}

// taken returns how many datagrams of clients the edges took from each other.
func (p *pair) taken() (n uint64) {
	for _, f := range p.forwards {
		n += f.Stats().Owner
	}
	return n
}
