package systest

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/buildtest"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// A sightLog is what a game server knows from events alone: which clients see what.
type sightLog struct {
	sees  map[string]map[string]bool // keys by client
	anew  map[string]int             // by client: how often an edge told so
	again []string                   // what was told to be in sight twice
}

// sightLog begins to listen to a space.
func (w *world) sightLog(space string) *sightLog {
	w.Helper()
	l := &sightLog{sees: make(map[string]map[string]bool), anew: make(map[string]int)}
	w.on(w.subjects.Event(space), func(m bus.Msg) {
		var ev struct {
			Type, Client string
			Keys         []string
			Anew         bool
		}
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			w.Fatalf("event %s: %v", m.Data, err)
		}
		if ev.Anew {
			l.anew[ev.Client]++
			delete(l.sees, ev.Client)
		}
		if l.sees[ev.Client] == nil {
			l.sees[ev.Client] = make(map[string]bool)
		}
		for _, key := range ev.Keys {
			if l.sees[ev.Client][key] == (ev.Type == "sees") {
				l.again = append(l.again, ev.Type+" "+ev.Client+" "+key)
			}
			l.sees[ev.Client][key] = ev.Type == "sees"
		}
	})
	return l
}

// TestSightings lets a herd and the eyes of three clients wander. Events, `why`, and the clients that edges say are near, have to
// agree with where everything is.
func TestSightings(t *testing.T) {
	w := newWorld(t, *seed)
	h := newHerd(w, 4)
	w.startRelay()
	l := w.sightLog("s")
	e := w.startEdge(wire.Denetwork, nil)
	for range 3 {
		w.join(e, dnptest.Cpp(), dnptest.App{})
	}
	for _, name := range w.joined() {
		h.meet(name)
	}
	for range 200 {
		for range 3 {
			i := h.rng.IntN(len(h.animals))
			h.animals[i].spot = h.walk(h.animals[i].spot)
			w.fire("s", h.put(i))
		}
		name := h.names[h.rng.IntN(len(h.names))]
		h.eyes[name] = h.walk(h.eyes[name])
		w.fire("s", h.putEye(name))
		w.net.Run(100 * time.Millisecond)
	}
	h.rest()
	if len(l.again) > 0 || len(l.anew) > 0 {
		t.Errorf("told twice: %q; %v anew, want neither", l.again, l.anew)
	}
	told := 0
	for i, a := range h.animals {
		key := fmt.Sprintf("%s%d", herdKey, i)
		near := w.nearTo(key)
		for _, name := range h.names {
			d := math.Hypot(float64(a.x-h.eyes[name].x), float64(a.z-h.eyes[name].z))
			told += h.agrees(name, key, d, l.sees[name][key], near[name])
		}
	}
	if told < 3 {
		t.Errorf("%d sightings, want more, or the test says little", told)
	}
}

// nearTo asks edges which clients have an eye, and how near it is to a state.
func (w *world) nearTo(key string) map[string]*inspect.Nearness {
	w.Helper()
	near := make(map[string]*inspect.Nearness)
	for _, a := range askAll[inspect.ClientsAnswer](w, w.subjects.Clients("s"), inspect.Query{Near: &inspect.Place{Key: key}}) {
		for _, c := range a.Entries {
			near[c.Client] = c.Near
		}
	}
	return near
}

// agrees wants all to agree on a client and an animal, and returns 1 if the client sees it.
func (h *herd) agrees(name, key string, d float64, told bool, near *inspect.Nearness) (sees int) {
	h.w.Helper()
	band := []int{0, 0, 0} // the least and the greatest number that are right, with what an animal keeps that walked out of a band
	switch {
	case d <= herdNear:
		band = []int{1, 1}
	case d <= herdNear*1.1:
		band = []int{1, 2}
	case d <= herdFar:
		band = []int{2, 2}
	case d <= herdFar*1.1:
		band = []int{0, 2}
	}
	right := func(b int) bool { return b == band[0] || b == band[1] }
	if near == nil || near.Distance == nil || math.Abs(*near.Distance-d) > 1e-6 || near.Bands != 2 || !right(near.Band) || near.Sees != (near.Band > 0) {
		h.w.Errorf("%s is %.1f away from %s: near is %+v, want band %v", key, d, name, near, band)
		return 0
	}
	if told != near.Sees {
		h.w.Errorf("%s is %.1f away from %s: the edge has it in sight: %v, and events say %v", key, d, name, near.Sees, told)
	}
	codes, text := h.w.why(name, key)
	want := fmt.Sprintf("%.6g away from the nearest eye of the client, in band %d of 2", d, near.Band)
	if near.Band == 0 {
		want = fmt.Sprintf("%.6g away from the nearest eye of the client, and is seen within %d", d, herdFar)
	}
	if !strings.Contains(text, want) {
		h.w.Errorf("%s is %.1f away from %s: why says %v, want %q:\n%s", key, d, name, codes, want, text)
	}
	if near.Sees {
		return 1
	}
	return 0
}

// TestSightingsAnew: the edge that takes a session over tells anew what its client sees.
func TestSightingsAnew(t *testing.T) {
	for _, dies := range []bool{false, true} {
		w, p, first := silentClientOf(newTakeoverWorldOf(t, 1, takeoverPlan{name: "no fault"}))
		l := w.sightLog("s")
		for i := range 3 {
			w.mustPublish("s", put(fmt.Sprintf("npc.%d", i), float64(10*i), `{"at":"pos","bands":[{"within":100}],"events":true}`))
		}
		w.mustPublish("s", fmt.Sprintf(`{"op":"eye","client":%q,"at":[0,0,0]}`, p.name))
		w.within(time.Second, "the client sees all", func() bool { return l.count(p.name) == 3 })
		if len(l.anew) > 0 {
			t.Error("the first edge tells anew")
		}
		if dies {
			w.fire("s", move("npc.2", 5000)) // of which the first edge has no time to tell
			first.ends()
		} else {
			first.drain()
		}
		want := 3
		if dies {
			want = 2
		}
		w.within(30*time.Second, "the next edge tells anew", func() bool { return l.anew[p.name] == 1 && l.count(p.name) == want })
		w.mustPublish("s", move("npc.0", 5000))
		w.within(time.Second, "and goes on", func() bool { return l.count(p.name) == want-1 })
		if l.anew[p.name] != 1 {
			t.Errorf("edges told %d times anew, want once", l.anew[p.name])
		}
	}
}

// count returns how many states a client sees.
func (l *sightLog) count(client string) (n int) {
	for _, seen := range l.sees[client] {
		if seen {
			n++
		}
	}
	return n
}

// TestNearCommands uses dnpctl with a relay, an edge and NATS, as an operator does.
func TestNearCommands(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 2)
	start(t, "relay", "dev", "--listen", "udp://"+ports[0], "--nats-listen", ports[1], "--http", "").says("dnpctl watch")
	dnpctl := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), buildtest.Program(t, "dnpctl"), append(args, "--nats-url=nats://"+ports[1])...).Output()
		if err != nil {
			t.Fatalf("dnpctl %q: %v in %s", args, err, out)
		}
		return string(out)
	}
	start(t, "dnpctl", "watch", ports[0], "--json").says(`"linked"`)
	var found struct{ Client string }
	for _, line := range strings.Split(strings.TrimSpace(dnpctl("clients", "demo", "--json")), "\n") {
		if err := json.Unmarshal([]byte(line), &found); err != nil {
			t.Fatalf("clients: %v in %s", err, line)
		}
	}
	events := start(t, "dnpctl", "events", "demo", "--nats-url=nats://"+ports[1])
	dnpctl("publish", "demo", "npc.1", "pos:vector3f32=[3,0,4]", `--interest={"at":"pos","bands":[{"within":1},{"within":100}],"events":true}`)
	dnpctl("eye", "demo", found.Client, "0,0,0")
	for !strings.Contains(events.output.String(), `"type":"sees"`) { // dnpctl does not say when it listens
		dnpctl("eye", "demo", found.Client, "5000,0,0")
		dnpctl("eye", "demo", found.Client, "0,0,0")
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	events.says(`"client":"` + found.Client + `"`)
	events.says(`"keys":["npc.1"]`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"who", "demo", "--near", "npc.1"}, " 5.0       2 of 2  1\n"},
		{[]string{"who", "demo", "--sees", "npc.1", "--near=-5,0,0", "--json"}, `"near":{"eyes":1,"distance":5,"band":2,"bands":2,"sees":true}`},
		{[]string{"why", "demo", found.Client, "npc.1"}, "5 away from the nearest eye of the client, in band 2 of 2 of its interest, which ends at 100"},
	} {
		// The edge looks at what is near the client a moment after its eye has moved.
		eventually(t, fmt.Sprintf("dnpctl %q prints %q", c.args, c.want), func() bool { return strings.Contains(dnpctl(c.args...), c.want) })
	}
	if out := dnpctl("who", "demo", "--near=-5,0,0", "--within", "4.9"); strings.Count(out, "\n") != 1 {
		t.Errorf("within 4.9, there is\n%s", out)
	}
}
