package natslease

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// listed returns what the store has of a shard, in order.
func (r *relay) listed(shard int) (all []string) {
	r.t.Helper()
	done := make(chan error, 1)
	r.Stored(shard, func(list []cluster.Keyframe, err error) {
		for _, k := range list {
			all = append(all, fmt.Sprintf("%s/%d", k.Space, k.Number))
		}
		done <- err
	})
	if err := r.wait(done); err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestStored lists states, those that were removed and a record that no relay wrote, of one of two shards in a stream, and leaves the
// records of holders and leases out.
func TestStored(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		a := start(t, c, "a", replicas)
		a.Want(true)
		for _, shard := range []int{0, 2} {
			e := a.want(cluster.ShardAcquired, shard, "the shard never had a holder")
			if shard == 2 && len(a.listed(2)) > 0 {
				t.Error("a shard without states has some")
			}
			if err := a.store(shard, e.Epoch, keyframes(3+shard, "x")); err != nil {
				t.Fatal(err)
			}
			if err := a.store(shard, e.Epoch, []cluster.Keyframe{{Space: "demo", Number: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		input := a.cfg.Subjects.StoreInput(a.cfg.Subjects.StoreKeyframe(0, "demo", 1), *a.secrets[0].Load())
		if _, err := c.Connect(t).Request(input+".x", []byte("?"), patience); err != nil {
			t.Fatal(err)
		}
		if got, want := a.listed(0), []string{"/0", "demo/1", "demo/2", "demo/3"}; !slices.Equal(got, want) {
			t.Errorf("shard 0 has %v, want %v", got, want)
		}
		if got, want := a.listed(2), []string{"demo/1", "demo/2", "demo/3", "demo/4", "demo/5"}; !slices.Equal(got, want) {
			t.Errorf("shard 2 has %v, want %v", got, want)
		}
	})
}

// TestStoredEnds refuses lists beyond a bound, and returns from Run while NATS does not answer one.
func TestStoredEnds(t *testing.T) {
	c := natstest.Start(t, 1)
	p := natstest.NewProxy(t, c)
	r := &relay{t: t, Leases: open(t, p.Connect(t, c), Config{Node: "a", Shards: 4, Streams: 2})}
	refused := make(chan error, 2*listsMax)
	for range listsMax + 1 {
		r.Stored(0, func(_ []cluster.Keyframe, err error) { refused <- err })
	}
	if err := r.wait(refused); err != cluster.ErrQueueFull {
		t.Errorf("one list too many: %v, want %v", err, cluster.ErrQueueFull)
	}
	p.SetDeaf(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { r.Run(ctx); ended <- nil }()
	eventually(t, "a list was asked for", func() bool { return len(r.lists) < listsMax })
	cancel()
	_ = r.wait(ended)
}
