package publisher_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

var seed = flag.Uint64("seed", 0, "seed of random tests; 0 = a new one")

// A badHolder is a relay with the product's store that loses requests and answers, is
// busy, and forgets everything now and then, like a successor whose predecessor stored
// nothing. It never answered some of what it forgets.
type badHolder struct {
	nc       *nats.Conn
	subjects subject.Names

	mu        sync.Mutex // NATS and the test call from their goroutines
	rng       *rand.Rand
	store     *replication.Store
	epoch     uint64
	answers   map[string][]byte // by reply subject, since the store is new
	mute      bool              // all answers are lost
	faultless bool
}

func newBadHolder(t *testing.T, url string, rng *rand.Rand) *badHolder {
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	h := &badHolder{nc: nc, rng: rng}
	h.forget()
	for _, subject := range []string{h.subjects.PublishAll(), h.subjects.GetAll()} {
		if _, err := nc.Subscribe(subject, h.handle); err != nil {
			t.Fatal(err)
		}
	}
	must(nc.Flush())
	return h
}

func (h *badHolder) forget() {
	h.epoch++
	h.answers = map[string][]byte{}
	h.store = replication.NewStore(replication.StoreConfig{Space: "demo", Epoch: h.epoch})
}

func (h *badHolder) handle(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fate := h.rng.IntN(100)
	if h.faultless {
		fate = 99
	}
	switch {
	case fate < 10: // the request is lost
		return
	case fate < 14:
		h.forget()
		if h.rng.IntN(2) == 0 {
			event := fmt.Sprintf(`{"v":1,"type":"reassert","space":"demo","epoch":%d}`, h.epoch)
			must(h.nc.Publish(h.subjects.Event("demo"), []byte(event)))
		}
		return
	case fate < 18:
		must(m.Respond(payload.JSON.AppendAnswer(nil, &replication.Answer{Epoch: h.epoch, Err: &replication.Error{Code: replication.CodeBusy, RetryAfter: time.Millisecond}})))
		return
	}
	answer := h.answers[m.Reply]
	if answer == nil {
		answer = h.apply(m)
		h.answers[m.Reply] = answer
	}
	if fate >= 28 && !h.mute { // or the answer is lost
		must(m.Respond(answer))
	}
}

func (h *badHolder) apply(m *nats.Msg) []byte {
	epoch, seq := h.store.Position()
	if strings.Contains(m.Subject, ".get.") {
		return fmt.Appendf(nil, `{"epoch":%d,"seq":%d,"states":[]}`, epoch, seq)
	}
	if m.Header[subject.HeaderAgain] != nil {
		return payload.JSON.AppendAnswer(nil, &replication.Answer{Epoch: h.epoch, Err: &replication.Error{Code: replication.CodeBusy}})
	}
	p, problem := payload.JSON.Parse(m.Data, "")
	if problem != nil {
		panic(problem)
	}
	p.Token = 1
	now := time.Now()
	h.store.Publish(now, p)
	for range 100 {
		for _, o := range h.store.Advance(now) {
			if o.Kind == replication.OutputAnswer {
				return payload.JSON.AppendAnswer(nil, &o.Answer)
			}
		}
		now = now.Add(time.Second)
	}
	panic("the store never answers")
}

// states returns what the store holds.
func (h *badHolder) states() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faultless = true
	l := h.store.List("", 1000)
	var form struct {
		States []struct {
			Key    string
			Values []struct {
				Name  string
				Value json.RawMessage
			}
		}
	}
	must(json.Unmarshal(payload.JSON.AppendListing(nil, &l, 1<<20), &form))
	all := map[string]string{}
	for _, st := range form.States {
		for _, v := range st.Values {
			all[st.Key] += string(v.Value) + " "
		}
	}
	return all
}

// TestLostAnswer: an op whose answer gets lost is not applied again, so what a client wrote since stays, in the copy, too.
func TestLostAnswer(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	h := newBadHolder(t, srv.URL(), rand.New(rand.NewPCG(1, 1)))
	h.answer(false)
	p, err := publisher.Connect(t.Context(), publisher.Config{URL: srv.URL(), Timeout: 20 * time.Millisecond, Retry: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	space, err := p.Space("demo")
	if err != nil {
		t.Fatal(err)
	}
	must(space.Post(publisher.Put{Key: "k", Values: []publisher.Value{{Name: "n", Type: publisher.Uint32, Value: 1}}, Access: publisher.Access{All: true}}))
	for end := time.Now().Add(patience); h.wrote("c", 7) == nil; {
		if time.Now().After(end) {
			t.Fatal("the relay gets no put")
		}
	}
	must(h.nc.Publish(h.subjects.Event("demo"), h.wrote("c", 9)))
	must(h.nc.Flush())
	h.answer(true)
	must(space.Flush(t.Context()))
	if got := h.states()["k"]; got != "9 " {
		t.Errorf("the relay has %q, want what the client wrote, 9", got)
	}
	for end := time.Now().Add(patience); ; {
		st, _ := space.State("k")
		if len(st.Values) == 1 && fmt.Sprint(st.Values[0].Value) == "9" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the copy has %v, want 9", st)
		}
	}
}

// answer has the holder lose nothing but all of its answers, or nothing.
func (h *badHolder) answer(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faultless, h.mute = true, !on
}

// wrote has a client write the value of k, and returns the event; nil if there is no such state.
func (h *badHolder) wrote(client string, n byte) (event []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, problem := h.store.Get("k")
	if problem != nil {
		return nil
	}
	now := time.Now()
	h.store.Write(now, replication.Write{
		Kind: replication.WriteValues, State: l.States[0].Number, Client: client, Session: "s", Number: uint32(n),
		Values: []replication.WriteValue{{Type: l.States[0].Values.Layout().Type(0), Value: []byte{n, 0, 0, 0}}},
	})
	for range 100 {
		for _, o := range h.store.Advance(now) {
			if o.Kind == replication.OutputEvent {
				event = payload.JSON.AppendEvent(nil, o.Event)
			}
		}
		now = now.Add(time.Second)
	}
	return event
}

// TestModel requires that the relay holds what was published last, whatever is lost.
func TestModel(t *testing.T) {
	for range 3 {
		s := *seed
		if s == 0 {
			s = rand.Uint64()
		}
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) { model(t, s) })
	}
}

func model(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	h := newBadHolder(t, srv.URL(), rand.New(rand.NewPCG(seed, 2)))
	p, err := publisher.Connect(t.Context(), publisher.Config{
		URL: srv.URL(), Timeout: 20 * time.Millisecond, Retry: time.Millisecond, Window: 1 + rng.IntN(8),
		Refused: func(_ string, err error) { t.Errorf("refused: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	space, err := p.Space("demo")
	if err != nil {
		t.Fatal(err)
	}
	twin := map[string][]int{} // the values of each state
	for range 300 {
		key := fmt.Sprint("k", rng.IntN(6))
		must(space.Post(randomOps(rng, key, twin)...))
		if rng.IntN(8) == 0 {
			must(space.Flush(t.Context()))
		}
	}
	must(space.Flush(t.Context()))
	want := map[string]string{}
	for key, values := range twin {
		for _, v := range values {
			want[key] += fmt.Sprint(v, " ")
		}
	}
	var got map[string]string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if got = h.states(); maps.Equal(got, want) {
			return
		}
		must(space.Post()) // lets the goroutine of the space run
	}
	t.Fatalf("the relay holds %v, want %v", got, want)
}

// randomOps returns ops about a key, and applies them to the twin.
func randomOps(rng *rand.Rand, key string, twin map[string][]int) []publisher.Op {
	switch values := twin[key]; {
	case values == nil || rng.IntN(20) == 0: // also another layout
		put := publisher.Put{Key: key}
		values = nil
		for range 1 + rng.IntN(3) {
			values = append(values, rng.IntN(1000))
			put.Values = append(put.Values, publisher.Value{Type: "uint16", Value: values[len(values)-1]})
		}
		twin[key] = values
		return []publisher.Op{put}
	case rng.IntN(20) == 0:
		delete(twin, key)
		return []publisher.Op{publisher.Remove{Key: key}}
	default:
		i := rng.IntN(len(values))
		values[i] = rng.IntN(1000)
		return []publisher.Op{set(key, fmt.Sprint(i), values[i])}
	}
}
