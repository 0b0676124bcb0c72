package redisaffinity

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// A journal is a log that a test can read.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// quick configures a node with the timeouts of the product, which logs into j.
func quick(j *journal) func(*Config) {
	return func(c *Config) {
		c.Timeout, c.Renew = 0, time.Hour
		c.Log = slog.New(slog.NewTextHandler(j, nil))
	}
}

// TestAbsent starts without Redis, starts it, kills it, and starts it again empty. All questions meanwhile are
// answered at once, and the claims are there afterwards.
func TestAbsent(t *testing.T) {
	s := startServer(t)
	s.stop()
	j := &journal{}
	a := start(t, s.url(), "a", func(c *Config) {
		quick(j)(c)
		c.LeaseTTL = time.Millisecond // so that a lost lease shows nothing
	})
	a.Claim("S", 1)
	if _, err := a.find(t, "S"); err != cluster.ErrAffinityAway {
		t.Errorf("the error without Redis is %v", err)
	}
	done := make(chan error, 1)
	a.Claimed("a", func([]string) {}, func(err error) { done <- err })
	if err := <-done; err != cluster.ErrAffinityAway {
		t.Errorf("the error without Redis is %v", err)
	}
	until(t, "the log does not say that Redis is away", func() bool { return strings.Contains(j.String(), "served without affinity") })
	for range 3 {
		s.start()
		a.ready(t)
		until(t, "the claim is not written when Redis is back", func() bool { got, _ := a.find(t, "S"); return got.Node == "a" })
		s.stop()
		until(t, "the node does not notice that Redis is gone", func() bool { return a.Err() != nil })
	}
}

// TestFlushed makes Redis lose its data and its scripts.
func TestFlushed(t *testing.T) {
	s := startServer(t)
	c := client(t, s.url())
	a := start(t, s.url(), "a", func(c *Config) {
		quick(&journal{})(c)
		c.Timeout = 10 * time.Second // so that a slow machine causes no failure
	}).ready(t)
	for i := range 1000 {
		a.Claim(fmt.Sprint(i), 1)
	}
	there := func() bool { n, _ := c.Keys(t.Context(), "dnp:s:*").Result(); return len(n) == 1000 }
	until(t, "claims are not written", there)
	for _, flush := range []func() error{
		func() error { return c.FlushAll(t.Context()).Err() },
		func() error { return c.ScriptFlush(t.Context()).Err() },
		func() error { return c.FlushAll(t.Context()).Err() },
	} {
		if err := flush(); err != nil {
			t.Fatal(err)
		}
		until(t, "claims do not come back", there)
	}
	if got, err := a.find(t, "7"); got.Node != "a" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if a.Stats().Forgotten == 0 || a.Stats().Failures > 0 {
		t.Errorf("%+v", a.Stats())
	}
}

// TestSlow checks that a stopped Redis delays no answer by more than two timeouts.
func TestSlow(t *testing.T) {
	s := startServer(t)
	a := start(t, s.url(), "a", quick(&journal{})).ready(t)
	s.signal(syscall.SIGSTOP)
	const n = 2 * asksMax
	answers := make(chan error, n)
	begin := time.Now()
	for i := range n {
		a.Find(fmt.Sprint(i), func(_ cluster.Served, err error) { answers <- err })
	}
	asked := time.Since(begin)
	for range n {
		select {
		case err := <-answers:
			if err == nil {
				t.Error("a stopped Redis answers")
			}
		case <-time.After(patience):
			t.Fatal("a question is not answered")
		}
	}
	if trips := a.Stats().Trips; trips > 2*askers+2 {
		t.Errorf("%d round trips to a stopped Redis: later ones should end with the first", trips)
	}
	t.Logf("%d questions asked in %v, answered in %v", n, asked, time.Since(begin))
	s.signal(syscall.SIGCONT)
	a.ready(t)
}

// TestSecrets uses passwords, and checks that no log and no error shows them.
func TestSecrets(t *testing.T) {
	const secret = "open-sesame"
	s := startServer(t, "--user", "default", "off", "--user", "edge", "on", ">"+secret, "~dnp:*", "+@hash", "+@string", "+@sortedset", "+@scripting", "+@keyspace", "+@connection")
	good := start(t, "redis://edge:"+secret+"@"+s.addr(), "a", quick(&journal{})).ready(t)
	good.Claim("S", 1)
	until(t, "the claim is never written", func() bool { got, _ := good.find(t, "S"); return got.Node == "a" })

	j := &journal{}
	bad := start(t, "redis://edge:"+secret+"x@"+s.addr(), "b", quick(j))
	until(t, "a refused password is not told", func() bool { return strings.Contains(j.String(), "WRONGPASS") })
	if err := bad.Err(); err == nil || strings.Contains(err.Error(), secret) || strings.Contains(j.String(), secret) {
		t.Errorf("%v, %s", err, j)
	}
	for _, url := range []string{"http://edge:" + secret + "@x", "redis://edge:" + secret + "@x:y:z/%", "redis://edge:" + secret + "@host/db"} {
		if _, err := Open(Config{URLs: []string{url}, Node: "a"}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
	if a, err := Open(Config{URLs: []string{"rediss://edge:" + secret + "@redis.example:6380/3"}, Node: "a"}); err != nil {
		t.Error(err)
	} else if o := a.servers[0].client.Options(); o.TLSConfig == nil || o.TLSConfig.ServerName != "redis.example" || o.Username != "edge" || o.DB != 3 {
		t.Errorf("options %v %q %d", o.TLSConfig, o.Username, o.DB)
	} else {
		a.servers[0].client.Close()
	}
}
