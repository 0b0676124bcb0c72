package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/replication"
)

// A herd is a game server whose animals graze and jump in a field, among the eyes of the clients, which move as well. In
// the end every client has to have the animals that are near its eye, as they are.
//
// The eye of a client is a state that only this client gets, so that a client learns by its link who it is.
type herd struct {
	w       *world
	rng     *rand.Rand
	animals []animal
	eyes    map[string]spot // by client
	names   []string        // of the clients, in the order in which they were heard of
	heard   int             // of the names that ever joined
	bye     string          // farewell of the animals
	blind   map[string]bool // clients that get no eye
	idle    func() bool     // nothing is published while it reports true; may be nil
}

// A spot is a place in the field. Whole numbers are exact in every representation.
type spot struct{ x, z int }

type animal struct {
	spot
	moves int
}

const (
	herdSize  = 14
	herdField = 500
	herdNear  = 80
	herdFar   = 160 // where the outermost band ends
	herdNames = 12  // clients with a place that a step leaves: most of those that came before have left, and rest meets the others again
	herdKey   = "herd."
	eyeKey    = "eye."
)

// herdOffered is how long a carried client may have a link before the edge knows: LinkUp is lost with a connection, and the
// offers of a herd are many, each of which has to be acknowledged before the edge presumes it.
const herdOffered = 4 * time.Second

// herdEye is the eye that relays give to clients in a round with a herd.
var herdEye = replication.Eye{Key: eyeKey + replication.ClientInEye, Value: "pos"}

// hasHerd reports whether there is a herd in the round of a seed: in half of them, whether those are hostile, or have
// carried clients, or not.
func hasHerd(seed uint64) bool { return seed>>2&1 == 1 }

// ofHerd reports whether a state or link message belongs to a herd.
func ofHerd(key string) bool {
	return strings.HasPrefix(key, herdKey) || strings.HasPrefix(key, eyeKey)
}

// newHerd returns the herd of a round, or nil if the round has none. It must be made before the relays are.
func newHerd(w *world, seed uint64) *herd {
	if !hasHerd(seed) {
		return nil
	}
	w.eye = herdEye
	h := &herd{w: w, rng: rand.New(rand.NewPCG(seed, 23)), eyes: make(map[string]spot), animals: make([]animal, herdSize), bye: farewell}
	for i := range h.animals {
		h.animals[i].spot = h.anywhere()
	}
	return h
}

func (h *herd) anywhere() spot { return spot{h.rng.IntN(herdField), h.rng.IntN(herdField)} }

// walk returns a spot nearby, or, once in a while, anywhere.
func (h *herd) walk(from spot) spot {
	if h.rng.IntN(12) == 0 {
		return h.anywhere()
	}
	return spot{from.x + h.rng.IntN(41) - 20, from.z + h.rng.IntN(41) - 20}
}

// graze starts to move animals and eyes, until stop reports true.
func (h *herd) graze(stop func() bool) {
	if h == nil {
		return
	}
	h.w.net.Every(100*time.Millisecond, func() bool {
		if stop() {
			return false
		}
		if h.idle == nil || !h.idle() {
			h.step()
		}
		return true
	})
}

func (h *herd) step() {
	joined := h.w.joined()
	for _, name := range joined[h.heard:] {
		h.meet(name)
	}
	h.heard = len(joined)
	for ; len(h.names) > herdNames; h.names = h.names[1:] {
		delete(h.eyes, h.names[0])
	}
	for range 3 {
		i := h.rng.IntN(len(h.animals))
		a := &h.animals[i]
		if a.spot, a.moves = h.walk(a.spot), a.moves+1; a.moves%20 == 19 {
			h.w.fire("s", fmt.Sprintf(`{"op":"remove","key":"%s%d"}`, herdKey, i))
		}
		h.w.fire("s", h.put(i))
	}
	if len(h.names) > 0 {
		name := h.names[h.rng.IntN(len(h.names))]
		h.eyes[name] = h.walk(h.eyes[name])
		h.w.fire("s", h.putEye(name))
	}
}

// meet gives a client a place.
func (h *herd) meet(name string) {
	if _, known := h.eyes[name]; known || h.blind[name] {
		return
	}
	h.eyes[name] = h.anywhere()
	h.names = append(h.names, name)
	h.w.fire("s", h.putEye(name))
}

// unlinks reports whether an animal is unlinked beyond its bands. The link of the others sleeps.
func unlinks(i int) bool { return i%2 == 1 }

func (h *herd) put(i int) string {
	beyond := "sleep"
	if unlinks(i) {
		beyond = "unlink"
	}
	return fmt.Sprintf(`{"op":"put","key":"%s%d","farewell":%q,"values":[{"name":"pos","type":"vector3f32","value":[%d,0,%d]}],`+
		`"interest":{"at":"pos","axes":"xz","bands":[{"within":%d},{"within":%d,"rate":4,"precision":2}],"beyond":%q,"events":true}}`,
		herdKey, i, h.bye, h.animals[i].x, h.animals[i].z, herdNear, herdFar, beyond)
}

func (h *herd) putEye(name string) string {
	return fmt.Sprintf(`{"op":"put","key":"%s%s","audience":{"clients":[%q]},"values":[{"name":"pos","type":"vector3f32","value":[%d,0,%d]}]}`,
		eyeKey, name, name, h.eyes[name].x, h.eyes[name].z)
}

// bytes returns a spot as clients get it.
func (s spot) bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(s.x)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(s.z)))
}

// rest makes sure that the relay has the truth, when all trouble is over: also about clients of whose arrival
// the event was lost.
func (h *herd) rest() {
	if h == nil {
		return
	}
	for _, a := range askAll[inspect.ClientsAnswer](h.w, h.w.subjects.Clients("s"), inspect.Query{}) {
		for _, c := range a.Entries {
			h.meet(c.Client)
		}
	}
	say := func(body string) {
		for try := 0; !strings.HasPrefix(h.w.publish("s", body), `{"epoch"`); try++ {
			if try > 20 {
				h.w.Fatalf("a publish was not accepted %d times: %s", try, body)
			}
		}
	}
	for i := range h.animals {
		say(h.put(i))
	}
	for _, name := range h.names {
		say(h.putEye(name))
	}
	h.w.net.Run(2 * time.Second) // a look, a second of rest, and the period of the second band
}

// check returns what is wrong with what a client sees of the herd.
func (h *herd) check(p library, name string) (problems []string) {
	if h == nil {
		return nil
	}
	eye, ok := h.eyeOf(p)
	switch {
	case h.blind[name]:
		for _, l := range p.Links() {
			if ofHerd(string(l.Message)) {
				problems = append(problems, fmt.Sprintf("client (%s) has no eye and was linked to %s", p.Behaviour().Name, l.Message))
			}
		}
		return problems
	case !ok:
		return []string{fmt.Sprintf("client (%s) has no link to its eye", p.Behaviour().Name)}
	}
	for i, a := range h.animals {
		key := fmt.Sprintf("%s%d", herdKey, i)
		d := math.Hypot(float64(a.x-eye.x), float64(a.z-eye.z))
		switch l := p.LinkNamed(key); {
		case d <= herdFar && !bytes.Equal(p.Value(key, 0), a.bytes()):
			problems = append(problems, fmt.Sprintf("client (%s) at %v: %s is at % x, want %v, which is %.0f away", p.Behaviour().Name, eye, key, p.Value(key, 0), a.spot, d))
		case d > herdFar*1.1 && unlinks(i) && l != nil && p.Behaviour().LinkDown != dnptest.DownWhileListening:
			problems = append(problems, fmt.Sprintf("client (%s) at %v has a link to %s, which is %.0f away", p.Behaviour().Name, eye, key, d))
		}
	}
	return problems
}

// eyeOf returns where a client sees from.
func (h *herd) eyeOf(p library) (spot, bool) {
	links := p.Links()
	i := slices.IndexFunc(links, func(l *dnptest.Link) bool {
		return strings.HasPrefix(string(l.Message), eyeKey) && l.Phase == dnptest.LinkIsUp
	})
	if i < 0 {
		return spot{}, false
	}
	at, ok := h.eyes[strings.TrimPrefix(string(links[i].Message), eyeKey)]
	return at, ok
}
