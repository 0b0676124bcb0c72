package systest

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/buildtest"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A servedTrial is a relay whose only shard has states, and the stream with them.
type servedTrial struct {
	storeTrial
	js     jetstream.JetStream
	stream jetstream.Stream
	rounds int // of publishes
}

func newServedTrial(t *testing.T) *servedTrial {
	x := &servedTrial{storeTrial: *newStoreTrial(t, 1)}
	x.begin()
	conn, err := nats.Connect(x.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if x.js, err = jetstream.New(conn); err == nil {
		x.stream, err = x.js.Stream(t.Context(), "DNP_STORE_0")
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// begin starts the relay and waits until it serves the shard.
func (x *servedTrial) begin() {
	x.Helper()
	x.relay = start(x.T, "relay", "serve", "--node", "r", "--nats-url", x.nats.URL(), "--http", x.web, "--ingress", "wildcard", "--shards", "1")
	eventually(x.T, "the relay serves the shard", func() bool { return x.metrics()["dnp_relay_shards"] == 1 })
}

// looks returns what /readyz says, and what dnpctl prints of the relay.
func (x *servedTrial) looks() (ready bool, missing, nodes string) {
	x.Helper()
	h, status := readiness(x.T, x.web)
	out, err := exec.Command(buildtest.Program(x.T, "dnpctl"), "nodes", "--nats-url", x.nats.URL()).CombinedOutput()
	if err != nil {
		x.Fatalf("dnpctl nodes: %v\n%s", err, out)
	}
	return status == http.StatusOK, strings.Join(h.Missing, ", "), string(out)
}

// play puts and removes states until the relay has compared its shard so many times, and wants it to serve what is stored all the time.
func (x *servedTrial) play(why string, comparisons float64) {
	x.Helper()
	begun := x.metrics()["dnp_relay_store_comparisons_total"]
	eventually(x.T, why+": the relay compares its shard", func() bool {
		for space := range 3 {
			for range 2 {
				x.rounds++
				subject := x.subjects.Publish(fmt.Sprint("s", space), "")
				x.insist(subject, fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"name":"n","type":"uint32","value":%d}]}`, x.rounds, x.rounds))
				// the space has one of two rounds ago, unless the relay died before it was stored
				_ = x.game.Publish(bus.Msg{Subject: subject, Data: fmt.Appendf(nil, `{"op":"remove","key":"k%d"}`, x.rounds-12)})
			}
		}
		m := x.metrics()
		if m["dnp_relay_store_unserved"] != 0 || strings.Contains(x.relay.output.String(), "does not serve") {
			x.Fatalf("%s: %v stored states are not served\n%s", why, m["dnp_relay_store_unserved"], x.relay.output)
		}
		if h, _ := readiness(x.T, x.web); slices.ContainsFunc(h.Missing, func(s string) bool { return strings.HasPrefix(s, "states") }) {
			x.Fatalf("%s: %v are missing", why, h.Missing)
		}
		return m["dnp_relay_store_comparisons_total"] >= begun+comparisons
	})
}

// TestServedIsStored runs a relay that stores and removes states, ends, and is killed. No comparison may find a stored state that it does not serve.
// Then the test stores a record that no relay can read. Metrics, /readyz, the log and dnpctl say so until the test deletes the record, also after a
// restart.
func TestServedIsStored(t *testing.T) {
	t.Parallel()
	x := newServedTrial(t)
	x.play("a new store", 2)
	x.relay.term()
	x.relay.ends(0)
	x.begin()
	x.play("started again", 2)
	x.relay.kill()
	x.begin()
	x.play("after its death", 3)
	m := x.metrics()
	info, err := x.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if removed := float64(info.State.NumSubjects) - m["dnp_relay_states"]; removed < 50 || m["dnp_relay_store_states"] == 0 {
		t.Errorf("the stream remembers %v removed states; the relay counts %v stored ones", removed, m["dnp_relay_store_states"])
	}

	record := x.subjects.StoreKeyframe(0, "s1", 7)
	if _, err := x.js.Publish(t.Context(), x.subjects.StoreInput(record, info.Config.Metadata["dnprelay-store-secret"]), []byte("?")); err != nil {
		t.Fatal(err)
	}
	lacks := func(why string) {
		t.Helper()
		eventually(t, why+": the relay says that it lacks a state", func() bool { return x.metrics()["dnp_relay_store_unserved"] == 1 })
		ready, missing, nodes := x.looks()
		if ready || missing != "states of shards 0" || !strings.Contains(nodes, "not ready: no states of shards 0") {
			t.Errorf("%s: ready %v, missing %s\n%s", why, ready, missing, nodes)
		}
		x.relay.says("one=s1/7")
	}
	lacks("behind its back")
	x.relay.term()
	x.relay.ends(0)
	x.begin()
	x.relay.says("leaving out a stored state that cannot be read")
	lacks("started again")
	if err := x.stream.Purge(t.Context(), jetstream.WithPurgeSubject(record)); err != nil {
		t.Fatal(err)
	}
	x.relay.says("this relay serves all states that the durable store has of its shards")
	if ready, missing, nodes := x.looks(); !ready || missing != "" || !strings.Contains(nodes, " ready") {
		t.Errorf("deleted: ready %v, missing %s\n%s", ready, missing, nodes)
	}
}
