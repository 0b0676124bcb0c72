package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// A mirror is a game server that remembers the truth.
//
// The first value of every state is a number that only grows, so that older values can be told
// from newer ones.
type mirror struct {
	w      *world
	rng    *rand.Rand
	kinds  []kind // of its states
	level  string // priority and levels of detail of its states, as JSON that ends with a comma; may be empty
	states map[string]*mirrored
	dead   []string // link messages of removed states; no client may have a link with them
	gone   []string // keys that were removed
	next   int
	number uint16
}

// A kind is the shape of a state's values.
type kind int

const (
	kindPair     kind = iota // two numbers
	kindNullable             // a number that may be null, for which 0 stands, and a text
	kindWide                 // 130 values in two views, too many for one LinkUpdate
)

// farewell is the message that clients get about a state that ends.
const farewell = "bye"

// wideValues is the number of values of a wide state. A view takes 128.
const wideValues = 130

// A mirrored is one state as it must be.
type mirrored struct {
	kind    kind
	key     string
	changes int // of its link message
	hidden  bool
	level   string
	number  uint16
	null    bool
	other   uint16 // the second value, or the last of a wide state
}

func newMirror(w *world, rng *rand.Rand, kinds ...kind) *mirror {
	return &mirror{w: w, rng: rng, kinds: append(kinds, kindPair), states: make(map[string]*mirrored)}
}

func (m *mirror) keys() (keys []string) {
	for i := range m.next {
		if k := fmt.Sprintf("k%d", i); m.states[k] != nil {
			keys = append(keys, k)
		}
	}
	return keys
}

func (m *mirror) count() uint16 {
	m.number++
	return m.number
}

// change publishes a random change. Publishes can be lost like everything on the bus; repeat
// publishes the truth again.
func (m *mirror) change() {
	keys := m.keys()
	r := m.rng.IntN(100)
	if len(keys) < 5 || r < 3 && len(keys) < 20 {
		s := &mirrored{kind: m.kinds[m.rng.IntN(len(m.kinds))], key: fmt.Sprintf("k%d", m.next), level: m.level, number: m.count(), other: m.count()}
		m.next++
		m.states[s.key] = s
		m.w.fire("s", s.put())
		return
	}
	s := m.states[keys[m.rng.IntN(len(keys))]]
	switch {
	case r < 5:
		m.remove(s)
	case r < 8 && len(m.kinds) > 1:
		m.redescribe(s)
	default:
		m.w.fire("s", s.set(m))
	}
}

func (m *mirror) remove(s *mirrored) {
	delete(m.states, s.key)
	m.gone = append(m.gone, s.key)
	m.dead = append(m.dead, s.message())
	m.w.fire("s", fmt.Sprintf(`{"op":"remove","key":%q}`, s.key))
}

// redescribe changes a state's link message or its audience.
func (m *mirror) redescribe(s *mirrored) {
	if m.rng.IntN(2) == 0 {
		s.hidden = !s.hidden
		m.w.fire("s", fmt.Sprintf(`{"op":"audience","key":%q,"audience":%s}`, s.key, s.audience()))
		return
	}
	m.dead = append(m.dead, s.message())
	s.changes++
	m.w.fire("s", s.put())
}

// message returns the link message.
func (s *mirrored) message() string { return fmt.Sprintf("%s#%d", s.key, s.changes) }

func (s *mirrored) audience() string {
	if s.hidden {
		return `{"groups":["nobody-is-in-it"]}`
	}
	return `{"all":true}`
}

// set changes one value.
func (s *mirrored) set(m *mirror) string {
	set := func(i int, json string) string {
		return fmt.Sprintf(`{"op":"set","key":%q,"values":{"%d":%s}}`, s.key, i, json)
	}
	if m.rng.IntN(2) == 0 {
		s.other = m.count()
		return set(s.last(), s.literal(s.last()))
	}
	s.number, s.null = m.count(), s.kind == kindNullable && m.rng.IntN(3) == 0
	return set(0, s.literal(0))
}

// last returns the index of the second value that changes.
func (s *mirrored) last() int {
	if s.kind == kindWide {
		return wideValues - 1
	}
	return 1
}

// literal returns value i as JSON.
func (s *mirrored) literal(i int) string {
	switch {
	case i == 0 && s.null:
		return "null"
	case i == 0:
		return fmt.Sprint(s.number)
	case i == s.last() && s.kind == kindNullable:
		return fmt.Sprintf("%q", s.text())
	case i == s.last():
		return fmt.Sprint(s.other)
	}
	return fmt.Sprint(i)
}

func (s *mirrored) text() string {
	return "text:" + strings.Repeat("x", int(s.other%40)) + fmt.Sprint(s.other)
}

// put returns the operation that publishes the whole state.
func (s *mirrored) put() string {
	var values []string
	for i := range s.last() + 1 {
		typ := `"uint16"`
		switch {
		case i == 0 && s.kind == kindNullable:
			typ = `"uint16","nullable":true,"null":0`
		case i == 1 && s.kind == kindNullable:
			typ = `"string"`
		}
		values = append(values, fmt.Sprintf(`{"type":%s,"value":%s}`, typ, s.literal(i)))
	}
	return fmt.Sprintf(`{"op":"put","key":%q,"message":%q,"farewell":%q,%s"audience":%s,"values":[%s]}`,
		s.key, s.message(), farewell, s.level, s.audience(), strings.Join(values, ","))
}

// value returns value i as a client has it.
func (s *mirrored) value(i int) []byte {
	switch {
	case i == 0 && s.null:
		return u16(0)
	case i == 0:
		return u16(s.number)
	case i == s.last() && s.kind == kindNullable:
		return append(binary.LittleEndian.AppendUint16(nil, uint16(len(s.text()))), s.text()...)
	case i == s.last():
		return u16(s.other)
	}
	return u16(uint16(i))
}

// repeat makes sure that the relay has the truth. It waits for answers, because a publish can be
// lost.
func (m *mirror) repeat() {
	for _, key := range m.keys() {
		m.insist(m.states[key].put(), "")
	}
	for _, key := range m.gone {
		m.insist(fmt.Sprintf(`{"op":"remove","key":%q}`, key), "unknown_state")
	}
}

// insist publishes until the answer is as it should be.
func (m *mirror) insist(body, asGood string) {
	m.w.Helper()
	for try := 0; ; try++ {
		a := m.w.publish("s", body)
		if strings.HasPrefix(a, `{"epoch"`) || asGood != "" && strings.Contains(a, asGood) {
			return
		}
		if try > 20 { // no relay answers for long although all trouble is over
			m.w.Fatalf("a publish was not accepted %d times: %s", try, a)
		}
	}
}

// checkAll wants all clients to see the truth, and nothing else.
func (m *mirror) checkAll(t *testing.T, players []*player) {
	t.Helper()
	for i, p := range players {
		m.check(t, p, i)
		m.checkGone(t, p, i)
	}
}

// check wants a client to see the truth.
func (m *mirror) check(t *testing.T, p *player, n int) {
	t.Helper()
	for _, problem := range m.wrong(p, n) {
		t.Error(problem)
	}
}

// wrong lists the values that a client sees and that are not the truth.
func (m *mirror) wrong(p *player, n int) (problems []string) {
	for _, key := range m.keys() {
		s := m.states[key]
		if s.hidden {
			continue
		}
		for _, i := range []int{0, s.last(), s.last() / 2} {
			if got := p.Value(s.message(), i); !bytes.Equal(got, s.value(i)) {
				problems = append(problems, fmt.Sprintf("client %d (%s): %s[%d] is % x, want % x", n, p.Behaviour().Name, s.message(), i, got, s.value(i)))
			}
		}
	}
	return problems
}

// checkGone wants the client to have no link to a state that was removed, that is hidden from
// it, or that has another link message.
func (m *mirror) checkGone(t *testing.T, p *player, n int) {
	t.Helper()
	if p.Behaviour().LinkDown == dnptest.DownWhileListening {
		return // the engine keeps links that are up forever
	}
	for _, l := range p.Links() {
		key, _, _ := strings.Cut(string(l.Message), "#")
		if p.LinkNamed(string(l.Message)) == nil {
			continue // it went down
		}
		if s := m.states[key]; slices.Contains(m.dead, string(l.Message)) || s != nil && s.hidden {
			t.Errorf("client %d (%s): %s was removed and is linked", n, p.Behaviour().Name, l.Message)
		}
	}
}
