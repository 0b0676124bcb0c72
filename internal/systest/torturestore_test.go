package systest

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/subject"
)

var (
	storeTries   = flag.Int("store-tries", 0, "tries of TestTortureStore, four at a time; 0 skips it")
	storeServers = flag.Int("store-servers", 1, "NATS servers of each try of TestTortureStore: 1 or 3")
	storeStop    = flag.Duration("store-stop", 0, "for how long TestTortureStore stops NATS servers; 0 for 16 s in every third try, and 5 to 60 s in the others")
)

// The states of a try of TestTortureStore.
const (
	tortureSpaces = 300
	tortureStates = 2 // of each space
	tortureShards = 64
)

// TestTortureStore kills a relay that has stored states, starts it again, and stops or slows down NATS servers while it acquires and
// loads its shards, so that it loses its leases in the middle of a load. It must serve what was acknowledged: no state may be missing, and no
// value older, neither then nor after every state has a new value and the relay was started anew in order.
func TestTortureStore(t *testing.T) {
	if *storeTries == 0 {
		t.Skip("it takes -store-tries, because each try takes half a minute or more; make torture-store runs it")
	}
	for try := range *storeTries {
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			t.Parallel()
			tortureStore(t, rand.New(rand.NewPCG(*seed, uint64(try))), try)
		})
	}
}

func tortureStore(t *testing.T, rng *rand.Rand, try int) {
	t.Logf("repeat the same moments with -seed=%d", *seed)
	between := func(most time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(most))) }
	x := newStoreTrial(t, *storeServers)
	x.startRelay()
	x.serves()
	x.change()
	x.relay.kill()

	how, stop := storeTrouble(try%3), *storeStop
	switch {
	case stop > 0:
	case how == stopAtFirst:
		stop = 16 * time.Second
	default:
		stop = 5*time.Second + between(55*time.Second)
	}
	hurt := rng.Perm(*storeServers)[:1+rng.IntN(*storeServers)]
	signs := map[storeTrouble]string{
		stopAtFirst: x.subjects.HeadAll(),                                            // the relay serves a shard
		stopNear:    strings.Replace(x.subjects.StoreAllShards(), ">", "*.*.own", 1), // it acquires one
		throttle:    x.subjects.RelayAll(),
	}
	begun := x.sign(signs[how])
	began := time.Now()
	x.startRelay()
	<-begun
	switch how {
	case stopNear:
		time.Sleep(between(150 * time.Millisecond))
		fallthrough
	case stopAtFirst:
		x.pause(hurt)
		time.Sleep(stop)
		x.resume(hurt)
	case throttle:
		for end := time.Now().Add(stop); time.Now().Before(end); time.Sleep(throttleRun) {
			x.pause(hurt)
			time.Sleep(throttleStop)
			x.resume(hurt)
		}
	}
	trouble := fmt.Sprintf("%d of %d servers %v for %v, %v after the relay began", len(hurt), *storeServers, how,
		stop.Round(time.Millisecond), time.Since(began.Add(stop)).Round(time.Millisecond))
	x.serves()
	first, log := x.compare(), x.relay.output
	x.change() // as game servers do that say their states again
	x.relay.term()
	x.relay.ends(0)
	x.startRelay()
	x.serves()
	second := x.compare()
	t.Logf("%s: then %v; after new values and a restart %v", trouble, first, second)
	if !first.right() || !second.right() {
		t.Errorf("not everything that was acknowledged was served: %v, then %v\n%s", first, second, log)
	}
}

// A storeTrouble is what happens to NATS servers.
type storeTrouble int

const (
	stopAtFirst storeTrouble = iota // stopped when the relay serves its first shard
	stopNear                        // stopped while it acquires and loads shards
	throttle                        // given a twelfth of the time from the beginning of the relay on
)

func (s storeTrouble) String() string {
	return [...]string{"stopped at the first shard", "stopped near it", "throttled"}[s]
}

// Times of throttle.
const (
	throttleStop = 110 * time.Millisecond
	throttleRun  = 10 * time.Millisecond
)

// A storeTrial is NATS servers and a relay, each a process, and a game server.
type storeTrial struct {
	*testing.T
	nats     *natstest.Processes
	relay    *process
	web      string
	game     *natsbus.Bus
	subjects subject.Names
	value    int // that every state has
}

func newStoreTrial(t *testing.T, servers int) *storeTrial {
	x := &storeTrial{T: t, nats: natstest.StartProcesses(t, servers), web: freePorts(t, 1)[0]}
	var err error
	if x.game, err = natsbus.Connect(natsbus.Config{URL: x.nats.URL()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.game.Close)
	return x
}

func (x *storeTrial) startRelay() {
	x.Helper()
	x.relay = start(x.T, "relay", "serve", "--node", "r", "--nats-url", x.nats.URL(), "--http", x.web, "--ingress", "wildcard",
		"--replicas", fmt.Sprint(*storeServers), "--shards", fmt.Sprint(tortureShards))
}

// sign returns a channel that gets something when the first message on a subject arrives.
func (x *storeTrial) sign(subject string) <-chan struct{} {
	x.Helper()
	begun := make(chan struct{})
	var once sync.Once
	if _, err := x.game.Subscribe(subject, func(bus.Msg) { once.Do(func() { close(begun) }) }); err != nil {
		x.Fatal(err)
	}
	return begun
}

func (x *storeTrial) pause(servers []int) {
	for _, i := range servers {
		x.nats.Pause(i)
	}
}

func (x *storeTrial) resume(servers []int) {
	for _, i := range servers {
		x.nats.Continue(i)
	}
}

// metrics returns what the relay shows; nothing while it does not answer.
func (x *storeTrial) metrics() map[string]float64 {
	all, _ := proc.Metrics(x.Context(), http.DefaultClient, x.web)
	return all
}

// serves waits until the relay serves all shards.
func (x *storeTrial) serves() {
	x.Helper()
	eventually(x.T, "the relay serves all shards", func() bool { return x.metrics()["dnp_relay_shards"] == tortureShards })
}

func tortureSpace(i int) string { return fmt.Sprint("space", i) }

// change gives every state of every space the next value, and waits until all of them are stored.
func (x *storeTrial) change() {
	x.Helper()
	x.value++
	before := x.metrics()["dnp_relay_stored_total"]
	for i := range tortureSpaces {
		var ops []string
		for k := range tortureStates {
			ops = append(ops, fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"name":"n","type":"uint16","value":%d}]}`, k, x.value))
		}
		x.insist(x.subjects.Publish(tortureSpace(i), ""), fmt.Sprintf(`{"ops":[%s]}`, strings.Join(ops, ",")))
	}
	eventually(x.T, "all values are stored", func() bool {
		m := x.metrics()
		return m["dnp_relay_unstored"] == 0 && m["dnp_relay_stored_total"] >= before+tortureSpaces*tortureStates
	})
}

// insist sends a request until a relay accepts it, and returns the answer.
func (x *storeTrial) insist(subject, body string) string {
	x.Helper()
	type result struct {
		data string
		err  error
	}
	for end := time.Now().Add(patience); ; {
		answer := make(chan result, 1)
		x.game.Request(bus.Msg{Subject: subject, Data: []byte(body)}, 5*time.Second, func(m bus.Msg, err error) { answer <- result{string(m.Data), err} })
		a := <-answer
		if a.err == nil && !strings.Contains(a.data, `"error"`) {
			return a.data
		}
		if time.Now().After(end) {
			x.Fatalf("%s: %s, %v", subject, a.data, a.err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A storeFinding is what a relay serves of what was acknowledged.
type storeFinding struct{ spaces, missing, old int }

func (f storeFinding) right() bool { return f == storeFinding{spaces: tortureSpaces} }

func (f storeFinding) String() string {
	return fmt.Sprintf("%d of %d spaces, %d states missing, %d of old values", f.spaces, tortureSpaces, f.missing, f.old)
}

// compare compares what the relay serves with what was acknowledged.
func (x *storeTrial) compare() (f storeFinding) {
	x.Helper()
	m := x.metrics()
	f.spaces, f.missing = int(m["dnp_relay_spaces"]), int(m["dnp_relay_store_unserved"])
	for i := range tortureSpaces {
		var a struct {
			States []struct {
				Key    string
				Values []struct{ Value int }
			}
		}
		if err := json.Unmarshal([]byte(x.insist(x.subjects.Get(tortureSpace(i), ""), "")), &a); err != nil {
			x.Fatal(err)
		}
		f.missing += max(0, tortureStates-len(a.States))
		for _, st := range a.States {
			if len(st.Values) != 1 || st.Values[0].Value != x.value {
				f.old++
			}
		}
	}
	return f
}
