package gossip

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// TestWrongKey checks that a newcomer with another key is told why it cannot join, and that the cluster
// does not notice it.
func TestWrongKey(t *testing.T) {
	for name, c := range map[string]struct {
		cluster, newcomer []string
		want              refusalReason
		words             string
	}{
		"another key":  {[]string{keyA}, []string{keyB}, wrongKey, "wrong key"},
		"many keys":    {[]string{keyA}, []string{keyB, keyC}, wrongKey, "wrong key"},
		"no key here":  {[]string{keyA}, nil, noKeyHere, "this node has none"},
		"no key there": {nil, []string{keyA}, noKeyThere, "without a key"},
		// The cluster still knows the newcomer's old key, but answers with the new one.
		"old key": {[]string{keyB, keyA}, []string{keyA}, wrongKey, "wrong key"},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(lines []string) func(*Config) {
				if lines == nil {
					return func(*Config) {}
				}
				return keyed(t, lines...)
			}
			list := startAll(t, "relay", 3, with(c.cluster))
			newcomer := start(t, "newcomer", joining(list...), with(c.newcomer))
			err := newcomer.wait()
			if !slices.ContainsFunc(list, func(n *node) bool { return fmt.Sprint(err) == fmt.Sprintf(string(c.want), n.Addr()) }) {
				t.Fatalf("want refusal %q, got %v", c.want, err)
			}
			text := err.Error()
			if !strings.Contains(text, c.words) || strings.Contains(text, "\n") {
				t.Errorf("want one line with %q, got %q", c.words, text)
			}
			t.Log(text)
			for _, line := range append(c.newcomer, c.cluster...) {
				for _, n := range append(list, newcomer) {
					if strings.Contains(n.logs.String()+text, line) {
						t.Errorf("%s logged a key", n.cfg.Self.Name)
					}
				}
			}
			for _, n := range list {
				n.until("the cluster is as it was", sees(3))
			}
		})
	}
}

// TestStolenKey shows what a thief of the key can do: add members, and claim a name that is in use
// and say that its owner drains or has left. It cannot keep the owner of the name out, who is a
// member at its own address all the same.
func TestStolenKey(t *testing.T) {
	edge := func(c *Config) { c.Self.Role = cluster.RoleEdge }
	list := startAll(t, "edge", 2, keyed(t, keyA), edge)
	start(t, "ghost", joining(list...), keyed(t, keyA), edge)
	for _, n := range list {
		n.until("a ghost is a member, because it has the key", sees(3))
	}
	thief := start(t, "edge-0", joining(list[1]), keyed(t, keyA), edge, func(c *Config) {
		c.Self.Phase, c.Self.Incarnation = cluster.PhaseDraining, 2
	})
	thief.until("the thief talks to edge-1", sees(3))
	thief.leave() // announces that edge-0 has left
	_ = thief.wait()
	list[1].until("edge-0 is a member at its own address, and does not drain", func(r cluster.Roster) bool {
		m, ok := r.Member("edge-0")
		return ok && m.Gossip == list[0].Addr() && m.Phase == cluster.PhaseReady && m.Incarnation == 1
	})
}

// TestStartDuringRotation checks that a node which starts while the others change the key finds out which
// key they know.
func TestStartDuringRotation(t *testing.T) {
	list := startAll(t, "relay", 2, keyed(t, keyA))
	late := start(t, "late", joining(list...), keyed(t, keyB, keyA))
	late.until("the second key of the file is tried", sees(3))
}

// TestRotation changes the key of five nodes in three steps and in one, while all of them announce changes
// all the time. Every node sees a file at another time. A cluster of three whose keys do not change runs
// beside it.
func TestRotation(t *testing.T) {
	file := []func(*Config){func(c *Config) {
		keyed(t, keyA)(c)
		c.KeyPoll, c.KeyDelay = 5*time.Millisecond, 2*time.Second
	}}
	control := startAll(t, "control", 3, file...)
	list := startAll(t, "relay", 5, file...)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				list[i%5].SetSender(i)
				control[i%3].SetSender(i)
			}
		}
	}()
	for _, step := range [][]string{{keyA, keyB}, {keyB, keyA}, {keyB}, {keyC}} {
		want, err := parseKeys([]byte(strings.Join(step, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			writeKeys(t, n.cfg.KeyFile, step...)
			eventually(t, "the file is not read", func() bool { return n.wants(want) })
		}
		for _, n := range list {
			eventually(t, "the keys are not those of the file", func() bool { return n.ringIs(want) })
		}
	}
	close(stop)
	<-stopped
	for _, n := range list {
		s := n.Stats()
		if s.Undecipherable > 0 {
			t.Errorf("%s got %d messages under a key that it did not know", n.cfg.Self.Name, s.Undecipherable)
		}
		if strings.Contains(n.logs.String(), "member is gone") {
			t.Errorf("%s lost a member:\n%s", n.cfg.Self.Name, n.logs)
		}
	}
	// Suspicions depend on the machine, too, so they are logged and not judged.
	t.Logf("5 nodes, 4 changes of keys: %d suspicions; 3 nodes beside them: %d", suspected(list), suspected(control))
}

func suspected(list []*node) (sum uint64) {
	for _, n := range list {
		sum += n.Stats().Suspicions
	}
	return sum
}

func (n *node) wants(want []key) bool {
	n.keys.mu.Lock()
	defer n.keys.mu.Unlock()
	return slices.Equal(n.keys.rotation.wanted, want)
}

// ringIs reports whether memberlist has exactly these keys and sends with the first.
func (n *node) ringIs(want []key) bool {
	got := n.keys.keyring.GetKeys()
	return len(got) == len(want) && key(got[0]) == want[0] &&
		!slices.ContainsFunc(got, func(k []byte) bool { return !slices.Contains(want, key(k)) })
}

func TestBadKeyFileIsRepaired(t *testing.T) {
	n := start(t, "relay", keyed(t, keyA), func(c *Config) { c.KeyPoll, c.KeyDelay = 5*time.Millisecond, time.Millisecond })
	writeKeys(t, n.cfg.KeyFile, "what is this?")
	eventually(t, "a bad file is not reported", func() bool { return strings.Contains(n.logs.String(), "line 1: want a key") })
	writeKeys(t, n.cfg.KeyFile, keyB)
	want, _ := parseKeys([]byte(keyB))
	eventually(t, "a repaired file is not used", func() bool { return n.ringIs(want) })
	if strings.Contains(n.logs.String(), "what is this") || strings.Count(n.logs.String(), "line 1: want") != 1 {
		t.Errorf("want one log line without anything of the file:\n%s", n.logs)
	}
}
