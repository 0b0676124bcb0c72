//go:build linux

package upgrade

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
	"github.com/nats-io/nats.go"
)

// Sizes of the ledger.
const (
	spaces  = 4 // without clients
	writers = 5 // players that write

	changePace = 100 * time.Millisecond // between two changes of a value
	answerMost = time.Second
	insistMost = 20 * time.Second
)

// Keys of the states that players see.
const (
	teamKey   = "team"
	padPrefix = "pad." // each writer has one of its own
)

// A ledger changes states with plain NATS requests, because package publisher would tell a
// new relay everything again. It has what it said and what was acknowledged, and compares
// this with what relays serve. One goroutine calls its methods.
type ledger struct {
	nc       *nats.Conn
	players  []*play.Player
	subjects subject.Names
	floor    map[string]uint32 // what must have been stored, by value
	forms    map[string]string // of each space, when it was put

	mu   sync.Mutex        // of the following: the goroutines of a load change them
	said map[string]uint32 // the newest number of each value: the name of a space, or the key of a pad
	kept map[string]uint32 // the newest that was acknowledged
}

func newLedger(nc *nats.Conn, players []*play.Player) *ledger {
	return &ledger{nc: nc, players: players[:writers], floor: map[string]uint32{}, forms: map[string]string{}, said: map[string]uint32{}, kept: map[string]uint32{}}
}

func spaceName(i int) string    { return fmt.Sprint("stored", i) }
func padKey(i int) string       { return fmt.Sprint(padPrefix, i) }
func valueN(form string) string { return `"values":[{"name":"n","type":"uint32","value":1` + form }

// states returns one state of each kind that relays store. The first value of each is n.
func states() []string {
	where := `},{"name":"pos","type":"vector3f32","value":[1,2,3],"precision":0.01}]`
	return []string{
		`{"op":"interest","name":"walker","at":"pos","axes":"xz","bands":[{"within":100},{"within":300,"rate":5,"precision":4}]}`,
		`{"op":"put","key":"plain",` + valueN(`}]}`),
		`{"op":"put","key":"texts","message":"a message","farewell":"gone","access":"read-write",` + valueN(`},{"name":"owner","type":"string","value":null,"nullable":true,"null":"nobody"},{"name":"blob","type":"data","value":"AAEC"}]}`),
		`{"op":"put","key":"writers","access":{"writers":["c1","c2"]},"audience":{"groups":["red","blue"],"clients":["c1"]},"priority":4,` + valueN(`,"min":0,"max":4000000000,"rate":5}]}`),
		`{"op":"put","key":"levels","lod":[{"groups":["far"],"precision":8,"rate":5}],` + valueN(where) + `}`,
		`{"op":"put","key":"own","interest":{"at":"pos","bands":[{"within":100},{"within":300,"rate":5}],"beyond":"unlink","events":true},` + valueN(where) + `}`,
		`{"op":"put","key":"named","interest":"walker",` + valueN(where) + `}`,
		`{"op":"put","key":"mortal","ttl":"1h","describe":true,` + valueN(`}]}`),
		`{"op":"put","key":"fields",` + valueN(`},{"name":"f","type":"data","fields":[{"name":"aim","type":"vector3f32"},{"name":"shots","type":"uint16"}],"value":{"aim":[1,2,3],"shots":7}}]}`),
	}
}

var stateKeys = []string{"plain", "texts", "writers", "levels", "own", "named", "mortal", "fields"}

// put makes all states, and notes in which form the relay serves them.
func (l *ledger) put(ctx context.Context) error {
	match := []string{`{"op":"put","key":"` + teamKey + `","audience":{"groups":["red"]},` + valueN(`}]}`)}
	for i := range l.players {
		match = append(match, `{"op":"put","key":"`+padKey(i)+`","access":"read-write",`+valueN(`}]}`))
	}
	if err := l.insist(ctx, play.Space, `{"ops":[%s]}`, strings.Join(match, ",")); err != nil {
		return err
	}
	for i := range spaces {
		s := spaceName(i)
		if err := l.insist(ctx, s, `{"ops":[%s]}`, strings.Join(states(), ",")); err != nil {
			return err
		}
		l.said[s], l.kept[s] = 1, 1
		form, _, err := l.get(ctx, s)
		if err != nil {
			return err
		}
		l.forms[s] = form
	}
	return nil
}

// load changes all values until the returned function is called.
func (l *ledger) load(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range spaces {
		all.Go(func() { rig.Every(ctx, changePace, func() { l.change(spaceName(i)) }) })
	}
	for i, p := range l.players {
		all.Go(func() { rig.Every(ctx, changePace, func() { l.write(p, padKey(i)) }) })
	}
	return func() { cancel(); all.Wait() }
}

// change gives all states of a space the next number.
func (l *ledger) change(space string) {
	n := l.next(space)
	var ops []string
	for _, key := range stateKeys {
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":%q,"values":{"n":%d}}`, key, n))
	}
	if l.request(l.subjects.Publish(space, ""), fmt.Sprintf(`{"ops":[%s]}`, strings.Join(ops, ","))) == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.kept[space] = n
	}
}

// write has the library of a player write the next number to its pad.
func (l *ledger) write(p *play.Player, key string) {
	_ = p.Do(func(now time.Time, c *dnptest.Client) { // a player that connects writes nothing
		if link := c.LinkNamed(key); c.Phase() == dnptest.Connected && link != nil && link.State != nil {
			c.Set(link, 0, binary.LittleEndian.AppendUint32(nil, l.next(key)))
		}
	})
}

func (l *ledger) next(name string) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[name]++
	return l.said[name]
}

// request sends a request once.
func (l *ledger) request(subject, body string) error {
	m, err := l.nc.Request(subject, []byte(body), answerMost)
	if err == nil && bytes.Contains(m.Data, []byte(`"error"`)) {
		err = errors.New(string(m.Data))
	}
	return err
}

// insist publishes to a space until a relay accepts it.
func (l *ledger) insist(ctx context.Context, space, format string, args ...any) (err error) {
	body := fmt.Sprintf(format, args...)
	for end := time.Now().Add(insistMost); ctx.Err() == nil && time.Now().Before(end); rig.Sleep(ctx, changePace) {
		if err = l.request(l.subjects.Publish(space, ""), body); err == nil {
			return nil
		}
	}
	return fmt.Errorf("publish to %s: %w", space, errors.Join(err, ctx.Err()))
}

// get asks for all states of a space until a relay answers. It returns their form, which is
// the answer without position and numbers, and the numbers by key.
func (l *ledger) get(ctx context.Context, space string) (form string, numbers map[string]uint32, err error) {
	var m *nats.Msg
	for end := time.Now().Add(insistMost); ctx.Err() == nil && time.Now().Before(end); rig.Sleep(ctx, changePace) {
		if m, err = l.nc.Request(l.subjects.Get(space, ""), nil, answerMost); err == nil && !bytes.Contains(m.Data, []byte(`"error"`)) {
			break
		}
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return "", nil, fmt.Errorf("get %s: %w", space, err)
	}
	var answer map[string]any
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return "", nil, fmt.Errorf("get %s: %w", space, err)
	}
	delete(answer, "epoch")
	delete(answer, "seq")
	numbers = map[string]uint32{}
	list, _ := answer["states"].([]any)
	for _, item := range list {
		state, _ := item.(map[string]any)
		key, _ := state["key"].(string)
		if values, _ := state["values"].([]any); len(values) > 0 {
			n, _ := values[0].(map[string]any)
			number, _ := n["value"].(float64)
			numbers[key] = uint32(number)
			delete(n, "value")
		}
	}
	text, err := json.Marshal(answer)
	return string(text), numbers, err
}

// acknowledged returns the newest number of each value that was acknowledged: publishes by
// their answers, and writes of clients because a relay serves them.
func (l *ledger) acknowledged(ctx context.Context) (map[string]uint32, error) {
	l.mu.Lock()
	mark := maps.Clone(l.kept)
	l.mu.Unlock()
	_, numbers, err := l.get(ctx, play.Space)
	for i := range l.players {
		mark[padKey(i)] = numbers[padKey(i)]
	}
	return mark, err
}

// awaitWrites waits until relays serve a newer number of each pad than before.
func (l *ledger) awaitWrites(ctx context.Context, before map[string]uint32) error {
	for i := range l.players {
		for end := time.Now().Add(insistMost); ; rig.Sleep(ctx, changePace) {
			_, numbers, err := l.get(ctx, play.Space)
			if err != nil {
				return err
			}
			if numbers[padKey(i)] > max(before[padKey(i)], 1) {
				break
			}
			if ctx.Err() != nil || time.Now().After(end) {
				return fmt.Errorf("no write to %s arrives, it is %d", padKey(i), numbers[padKey(i)])
			}
		}
	}
	return nil
}

// settle raises what must have been stored to all publishes that were answered.
func (l *ledger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.floor, l.kept)
}

// compare compares what relays serve with what must have been stored, and what was said.
func (l *ledger) compare(ctx context.Context) error {
	var wrong []error
	check := func(name, key string, n uint32, ok bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !ok || n < l.floor[name] || n > max(l.said[name], 1) {
			wrong = append(wrong, fmt.Errorf("%s of %s is %d (there: %t), %d is stored, %d was said", key, name, n, ok, l.floor[name], l.said[name]))
		}
	}
	for i := range spaces {
		s := spaceName(i)
		form, numbers, err := l.get(ctx, s)
		if err == nil && form != l.forms[s] {
			err = fmt.Errorf("%s is served as %s, and was %s", s, form, l.forms[s])
		}
		wrong = append(wrong, err)
		for _, key := range stateKeys {
			n, ok := numbers[key]
			check(s, key, n, ok)
		}
	}
	_, numbers, err := l.get(ctx, play.Space)
	wrong = append(wrong, err)
	for _, key := range append(padKeys(len(l.players)), teamKey) {
		n, ok := numbers[key]
		check(key, key, n, ok)
	}
	return errors.Join(wrong...)
}

func padKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, padKey(i))
	}
	return keys
}
