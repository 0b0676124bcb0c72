package gossip

import (
	"bytes"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// TestKeys checks that Keys returns a copy of the ring, in the order in which gossip uses it.
func TestKeys(t *testing.T) {
	k := []byte("0123456789abcdef")
	next := []byte("fedcba9876543210")
	g := &Gossip{keys: &keys{file: "x", rotation: newRotation([]key{key(k)}, time.Minute)}}
	list := g.Keys()
	if len(list) != 1 || !bytes.Equal(list[0], k) {
		t.Fatalf("got %q", list)
	}
	list[0][0] = 'x'
	now := time.Unix(0, 0)
	g.keys.rotation.read(now, []key{key(next), key(k)})
	if list = g.Keys(); len(list) != 2 || !bytes.Equal(list[0], k) || !bytes.Equal(list[1], next) {
		t.Errorf("the ring is %q, want a new key that is known and not used yet", list)
	}
	g.keys.rotation.advance(now.Add(time.Minute))
	if list = g.Keys(); !bytes.Equal(list[0], next) {
		t.Errorf("the ring is %q, want the new key first", list)
	}
	if (&Gossip{keys: &keys{}}).Keys() != nil {
		t.Error("there are keys without a file")
	}
}

// TestSetSender checks that the id of the process is announced.
func TestSetSender(t *testing.T) {
	table := newTable(cluster.Member{Name: "a", Role: cluster.RoleEdge, Phase: cluster.PhaseReady, Shards: 64})
	g := &Gossip{table: table, announcing: turn.NewWake()}
	g.SetSender(77)
	m, err := cluster.ParseMetadata(table.NodeMeta(0))
	if err != nil || m.Sender != 77 || len(g.announcing) != 1 {
		t.Errorf("the metadata has %+v, %v; %d announcements wait", m, err, len(g.announcing))
	}
}
