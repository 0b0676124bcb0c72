package systest

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

var (
	leaseTries   = flag.Int("lease-tries", 0, "relays that TestLeaseTimes kills, and relays that it stops; 0 skips it")
	leaseServers = flag.Int("lease-servers", 1, "NATS servers of TestLeaseTimes: 1 or 3")
	leaseShards  = flag.Int("lease-shards", 64, "shards of TestLeaseTimes")
	leaseAlive   = flag.Duration("lease-alive", 0, "how long TestLeaseTimes/alive runs beside busy loops, and as long beside writers that sync; 0 skips it")
)

// TestLeaseTimes measures what relays and NATS servers, each a process, take to serve all shards: after a relay is killed or stands still, after NATS
// servers are stopped, and with NATS servers that have a tenth of a core. It bounds what is promised and prints the rest. Its times are those of an
// idle machine.
func TestLeaseTimes(t *testing.T) {
	if *leaseTries == 0 {
		t.Skip("it takes -lease-tries, minutes, and a machine of its own; make lease-times runs it")
	}
	t.Run("killed", func(t *testing.T) {
		x := newLeaseTrial(t, 3)
		x.takeovers(1300*time.Millisecond, 2*time.Second, func(r *leaseRelay) { r.kill() }, func(r *leaseRelay) {
			x.start(r)
		})
	})
	t.Run("silent", func(t *testing.T) {
		x := newLeaseTrial(t, 3)
		x.takeovers(4500*time.Millisecond, 4500*time.Millisecond, func(r *leaseRelay) { r.signal(syscall.SIGSTOP) }, func(r *leaseRelay) {
			r.signal(syscall.SIGCONT)
		})
	})
	for stop, within := range map[time.Duration]time.Duration{16 * time.Second: 4 * time.Second, time.Minute: 8 * time.Second} {
		t.Run(fmt.Sprint("stopped/", stop), func(t *testing.T) { newLeaseTrial(t, 2).stopped(stop, within) })
	}
	t.Run("cold", func(t *testing.T) { newLeaseTrial(t, 2).cold() })
	t.Run("alive", func(t *testing.T) {
		if *leaseAlive == 0 {
			t.Skip("it takes -lease-alive")
		}
		x := newLeaseTrial(t, 3)
		x.alive("busy loops", 40, "while :; do :; done")
		x.alive("writers that sync", 8, fmt.Sprintf("while :; do dd if=/dev/zero of=$(mktemp -p %s) bs=1M count=16 conv=fsync status=none; rm -f %[1]s/tmp.*; done", t.TempDir()))
	})
}

// A leaseTrial is NATS servers and relays, each a process, and a listener to the heads of the relays.
type leaseTrial struct {
	*testing.T
	nats   *natstest.Processes
	relays []*leaseRelay

	mu    sync.Mutex
	heads map[int]leaseHead // by shard, of the highest epoch
}

type leaseHead struct {
	epoch uint64
	since time.Time // when the first head of the epoch arrived
}

type leaseRelay struct {
	*process
	name, web string
	silent    bool
}

func newLeaseTrial(t *testing.T, relays int) *leaseTrial {
	t.Helper()
	x := &leaseTrial{T: t, nats: natstest.StartProcesses(t, *leaseServers), heads: map[int]leaseHead{}}
	b, err := natsbus.Connect(natsbus.Config{URL: x.nats.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	var subjects subject.Names
	if _, err := b.Subscribe(subjects.HeadAll(), func(m bus.Msg) {
		shard, _ := subjects.ParseShard(m.Subject)
		epoch, _ := replication.HeadEpoch(m.Data)
		x.mu.Lock()
		defer x.mu.Unlock()
		if epoch > x.heads[shard].epoch {
			x.heads[shard] = leaseHead{epoch, time.Now()}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, web := range freePorts(t, relays) {
		r := &leaseRelay{name: fmt.Sprint("r", i), web: web}
		x.relays = append(x.relays, r)
		x.start(r)
	}
	x.settled(patience)
	return x
}

func (x *leaseTrial) start(r *leaseRelay) {
	r.process = start(x.T, "relay", "serve", "--node", r.name, "--nats-url", x.nats.URL(), "--http", r.web, "--ingress", "wildcard",
		"--replicas", fmt.Sprint(*leaseServers), "--shards", fmt.Sprint(*leaseShards))
}

func (r *leaseRelay) signal(s syscall.Signal) {
	_ = r.cmd.Process.Signal(s)
	r.silent = s == syscall.SIGSTOP
}

// metric sums a metric up over the relays that answer.
func (x *leaseTrial) metric(name string) (sum float64, all []float64) {
	for _, r := range x.relays {
		if r.silent {
			continue
		}
		m, _ := proc.Metrics(x.Context(), http.DefaultClient, r.web)
		of := 0.0
		for key, v := range m {
			if key == name || strings.HasPrefix(key, name+"{") {
				of += v
			}
		}
		sum += of
		all = append(all, of)
	}
	return sum, all
}

// served waits until the relays that answer serve all shards.
func (x *leaseTrial) served(within time.Duration) {
	x.Helper()
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		sum, all := x.metric("dnp_relay_shards")
		if int(sum) == *leaseShards {
			return
		}
		if time.Now().After(end) {
			x.Fatalf("not all of %d shards are served within %v: %v", *leaseShards, within, all)
		}
	}
}

// settled waits until the relays serve all shards, and each its share.
func (x *leaseTrial) settled(within time.Duration) {
	x.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		sum, all := x.metric("dnp_relay_shards")
		if int(sum) == *leaseShards && slices.Min(all) > 0 && len(all) == len(x.relays) {
			return
		}
		if time.Now().After(end) {
			x.Fatalf("the relays do not share %d shards within %v: %v", *leaseShards, within, all)
		}
	}
}

// epochs returns the epochs that were heard of.
func (x *leaseTrial) epochs() map[int]leaseHead {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.heads)
}

// changed returns how many shards have another epoch than before.
func (x *leaseTrial) changed(before map[int]leaseHead) (n int) {
	for shard, h := range x.epochs() {
		if h.epoch != before[shard].epoch {
			n++
		}
	}
	return n
}

// takeovers ends relays one after the other and measures until the others serve their shards.
func (x *leaseTrial) takeovers(median, most time.Duration, end, again func(*leaseRelay)) {
	var all []time.Duration
	for range *leaseTries {
		time.Sleep(time.Duration(rand.Int64N(int64(lease.AliveInterval))))
		before := x.epochs()
		r := x.relays[rand.IntN(len(x.relays))]
		_, shares := x.metric("dnp_relay_shards")
		share := shares[slices.Index(x.relays, r)]
		began := time.Now()
		end(r)
		x.served(patience)
		var took time.Duration
		taken := 0
		for n, h := range x.epochs() {
			if h.epoch != before[n].epoch {
				taken++
				took = max(took, h.since.Sub(began))
			}
		}
		if taken != int(share) {
			x.Logf("%d shards have new holders, the relay had %v", taken, share)
		}
		all = append(all, took)
		again(r)
		x.settled(patience)
	}
	slices.Sort(all)
	at := func(p int) time.Duration { return all[min(len(all)-1, len(all)*p/100)].Round(time.Millisecond) }
	x.Logf("%d takeovers with %d servers and %d shards: median %v, 90 %% %v, 99 %% %v, longest %v", len(all), *leaseServers, *leaseShards, at(50), at(90), at(99), at(100))
	if at(50) > median || at(99) > most {
		x.Errorf("want a median of %v and 99 %% of %v at most", median, most)
	}
}

// stopped stops all NATS servers.
func (x *leaseTrial) stopped(stop, within time.Duration) {
	before := x.epochs()
	asked, _ := x.metric("dnp_relay_store_answers_total")
	for i := range *leaseServers {
		x.nats.Pause(i)
	}
	time.Sleep(stop)
	for i := range *leaseServers {
		x.nats.Continue(i)
	}
	began := time.Now()
	x.served(patience)
	took := time.Since(began)
	answers, _ := x.metric("dnp_relay_store_answers_total")
	changed := x.changed(before)
	x.Logf("%d servers stopped for %v, %d shards: all served after %v, %v answers, %d new epochs", *leaseServers, stop, *leaseShards, took.Round(time.Millisecond), answers-asked, changed)
	if took > within || changed > 0 {
		x.Errorf("want %v at most, and no new epoch", within)
	}
}

// cold starts the relays anew while each NATS server has a tenth of a core, in turns of 100 ms.
func (x *leaseTrial) cold() {
	for _, r := range x.relays {
		r.kill()
	}
	quit := make(chan struct{})
	var throttled sync.WaitGroup
	end := sync.OnceFunc(func() { close(quit); throttled.Wait() })
	defer end()
	for i := range *leaseServers {
		if err := proctest.Pin(x.nats.PID(i), i%2); err != nil {
			x.Fatal(err)
		}
		throttled.Go(func() {
			for {
				x.nats.Pause(i)
				time.Sleep(9 * throttleRun)
				x.nats.Continue(i)
				select {
				case <-quit:
					return
				case <-time.After(throttleRun):
				}
			}
		})
	}
	began := time.Now()
	for _, r := range x.relays {
		x.start(r)
	}
	within := 30 * time.Second
	if *leaseShards > 64 {
		within = time.Minute
	}
	x.served(patience * 3)
	took := time.Since(began)
	end()
	x.Logf("%d servers with a tenth of a core, %d shards: all served after %v", *leaseServers, *leaseShards, took.Round(time.Millisecond))
	if took > within {
		x.Errorf("want %v at most", within)
	}
}

// alive runs commands beside the relays, none of which may lose its lease.
func (x *leaseTrial) alive(what string, n int, script string) {
	quit := make(chan struct{})
	var running sync.WaitGroup
	for range n {
		cmd := exec.Command("sh", "-c", script)
		if err := cmd.Start(); err != nil {
			x.Fatal(err)
		}
		running.Go(func() {
			<-quit
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	before := x.epochs()
	for end := time.Now().Add(*leaseAlive); time.Now().Before(end); {
		time.Sleep(time.Minute)
		load, _ := os.ReadFile("/proc/loadavg")
		x.Logf("load %.5s: %d new epochs", load, x.changed(before))
	}
	close(quit)
	running.Wait()
	x.served(patience)
	changed := x.changed(before)
	x.Logf("%v beside %d %s: %d new epochs", *leaseAlive, n, what, changed)
	if changed > 0 {
		x.Errorf("want none")
	}
}
