package natslease

import (
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// TestStoreGoesBack gives all servers back what they had stored some time ago, as machines do after a loss of power, while a
// relay runs: before it held its shard, and while it did. It holds the shard again in a higher epoch, with what it had, and the log says so.
func TestStoreGoesBack(t *testing.T) {
	t.Run("before", func(t *testing.T) { goBack(t, 1, false) })
	t.Run("while", func(t *testing.T) { goBack(t, 3, true) })
}

func goBack(t *testing.T, replicas int, held bool) {
	t.Parallel()
	c := natstest.Start(t, replicas)
	a := start(t, c, "a", replicas)
	restores := make([]func(), replicas)
	stopped := func(do func(i int)) {
		for i := range replicas {
			c.Stop(i)
		}
		for i := range replicas {
			do(i)
		}
		c.RestartAll(t)
	}
	save := func() { stopped(func(i int) { restores[i] = c.Save(t, i) }) }
	if !held {
		eventually(t, "the relay writes its lease", func() bool { return a.Stats().Answers[fence.OK] > 4 })
		save()
	}
	a.Want(true)
	first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	if err := a.store(0, first.Epoch, keyframes(10, "old")); err != nil {
		t.Fatal(err)
	}
	if held {
		save()
	}
	for range 3 {
		if err := a.store(0, first.Epoch, keyframes(10, "new")); err != nil {
			t.Fatal(err)
		}
	}
	stopped(func(i int) { restores[i]() })
	begin := time.Now()
	if e := a.want(cluster.ShardLost, 0, "the store lacks what it had"); e.Reason != lease.ReasonWiped || e.Epoch != first.Epoch {
		t.Errorf("the shard is lost with %+v, want epoch %d and %s", e, first.Epoch, lease.ReasonWiped)
	}
	again := a.want(cluster.ShardAcquired, 0, "only a has what was stored")
	t.Logf("held again after %v, in an epoch %d higher", time.Since(begin), again.Epoch-first.Epoch)
	if again.Epoch <= first.Epoch || again.Former != first.Epoch || !again.Wiped {
		t.Errorf("the shard is held again with %+v, want that nothing is newer than epoch %d", again, first.Epoch)
	}
	if err := a.store(0, again.Epoch, keyframes(10, "again")); err != nil {
		t.Fatal(err)
	}
	if s := a.log.String(); !strings.Contains(s, "lacks a write that it had confirmed") {
		t.Errorf("the log of a is\n%s", s)
	}
}
