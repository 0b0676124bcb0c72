package protocol

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

var start = time.Unix(1_000_000, 0)

// A fakeState is a state of integers of 32 bits, and maybe a text behind them.
type fakeState struct {
	key      string
	names    []string
	values   []int32
	text     string
	hasText  bool
	readOnly bool
	refuse   error
}

func (s *fakeState) Key() string { return s.key }
func (s *fakeState) Len() int {
	if s.hasText {
		return len(s.values) + 1
	}
	return len(s.values)
}

func (s *fakeState) Type(i int) wire.ValueType {
	if i == len(s.values) {
		return wire.TypeString
	}
	t, _ := wire.ParseValueType("sint32")
	return t
}

func (s *fakeState) Name(i int) string {
	if i < len(s.names) {
		return s.names[i]
	}
	return ""
}

func (s *fakeState) Index(name string) (int, bool) {
	for i, n := range s.names {
		if n == name {
			return i, true
		}
	}
	return 0, false
}

func (s *fakeState) ReadOnly() bool { return s.readOnly }

func (s *fakeState) Append(b []byte, i int) []byte {
	if i == len(s.values) {
		return append(binary.LittleEndian.AppendUint16(b, uint16(len(s.text))), s.text...)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(s.values[i]))
}

func (s *fakeState) Set(i int, enc []byte) error {
	switch {
	case s.refuse != nil:
		return s.refuse
	case i == len(s.values):
		s.text = string(enc[2:])
	default:
		s.values[i] = int32(binary.LittleEndian.Uint32(enc))
	}
	return nil
}

// A fakeClient is a DNP client that notes what it is told to do.
type fakeClient struct {
	hello    *Hello
	messages []string
	loose    []string
	offers   map[int64][]Field
	busy     bool
}

func (c *fakeClient) Hello(h Hello) { c.hello = &h }

func (c *fakeClient) Send(data []byte, reliable bool) error {
	switch {
	case c.busy:
		return ErrBusy
	case reliable:
		c.messages = append(c.messages, string(data))
	default:
		c.loose = append(c.loose, string(data))
	}
	return nil
}

func (c *fakeClient) Offer(id int64, message string, fields []Field) (State, error) {
	if message == "" {
		return nil, errors.New("a state needs a message")
	}
	if c.offers == nil {
		c.offers = map[int64][]Field{}
	}
	c.offers[id] = fields
	s := &fakeState{key: message}
	for _, f := range fields {
		s.names, s.values = append(s.names, f.Name), append(s.values, int32(binary.LittleEndian.Uint32(f.Value)))
	}
	return s, nil
}

func (c *fakeClient) Withdraw(id int64) { delete(c.offers, id) }

// encode returns the Variant of a Go value: nil, bool, int, string, []byte, []any, or [][2]any for a Dictionary.
func encode(d variant.Dialect, v any) []byte {
	w := variant.NewWriter(d, nil)
	write(&w, v)
	if w.Err() != nil {
		panic(w.Err())
	}
	return w.Bytes()
}

func write(w *variant.Writer, v any) {
	switch v := v.(type) {
	case nil:
		w.Nil()
	case bool:
		w.Bool(v)
	case int:
		w.Int(int64(v))
	case int64:
		w.Int(v)
	case float64:
		w.Float(v)
	case string:
		w.String(v)
	case []byte:
		w.Data(v)
	case []any:
		m := w.Begin(variant.Array)
		for _, x := range v {
			write(w, x)
		}
		w.End(m, len(v))
	case dict:
		m := w.Begin(variant.Dictionary)
		for _, x := range v {
			write(w, x)
		}
		w.End(m, len(v)/2)
	default:
		panic(fmt.Sprintf("%T", v))
	}
}

type list = []any

// A dict has keys and values in turn.
type dict []any

var hello = list{"hello", dict{"version", 1}}

// plain returns the Go value of a Variant; a Dictionary becomes a map.
func plain(v variant.Value) any {
	switch v.Type() {
	case variant.Bool:
		return v.Bool()
	case variant.Int:
		return v.Integer(0)
	case variant.String:
		return v.Text()
	case variant.PackedByteArray:
		return append([]byte{}, v.Bytes()...)
	case variant.Array:
		l := list{}
		for c := v.Elements(); c.Next(); {
			l = append(l, plain(c.Value()))
		}
		return l
	case variant.Dictionary:
		m := map[any]any{}
		for c := v.Elements(); c.Next(); {
			m[plain(c.Key())] = plain(c.Value())
		}
		return m
	}
	return nil
}

func decode(t testing.TB, d variant.Dialect, p []byte) any {
	t.Helper()
	v, err := variant.Decode(d, p)
	if err != nil {
		t.Fatalf("the edge sent %x, which is no Variant: %v", p, err)
	}
	return plain(v)
}

// A model is a client as INTERFACES.md describes it: what it sees of states and messages.
type model struct {
	t        testing.TB
	dialect  variant.Dialect
	states   map[int64]map[any]any
	keys     map[string]int64
	linked   map[int64]bool // ever
	messages []string
	parts    []byte
	bye      string
	welcome  bool
	refused  []string
	log      []string // names of messages
}

func newModel(t testing.TB, d variant.Dialect) *model {
	return &model{t: t, dialect: d, states: map[int64]map[any]any{}, keys: map[string]int64{}, linked: map[int64]bool{}}
}

func (c *model) handle(m list) {
	name := m[0].(string)
	c.log = append(c.log, name)
	switch name {
	case "welcome":
		c.welcome = true
	case "link":
		id, names, values := m[1].(int64), m[3].(list), map[any]any{}
		for i, v := range m[4].(list) {
			if i < len(names) && names[i] != "" {
				values[names[i]] = v
			} else {
				values[int64(i)] = v
			}
		}
		if c.states[id] != nil {
			c.t.Errorf("state %d is linked twice", id)
		}
		c.linked[id] = true
		c.states[id], c.keys[m[2].(string)] = values, id
	case "set":
		s := c.states[m[1].(int64)]
		if s == nil {
			if !c.linked[m[1].(int64)] {
				c.t.Errorf("values of state %d come before its link", m[1])
			}
			return
		}
		for k, v := range m[2].(map[any]any) {
			if _, ok := s[k]; !ok {
				c.t.Errorf("state %d has no value %v", m[1], k)
			}
			s[k] = v
		}
	case "unlink":
		if c.states[m[1].(int64)] == nil && m[1].(int64) > 0 {
			c.t.Errorf("state %d was not linked", m[1])
		}
		delete(c.states, m[1].(int64))
	case "msg":
		c.messages = append(c.messages, string(m[1].([]byte)))
	case "part":
		c.parts = append(c.parts, m[1].([]byte)...)
		if m[2].(bool) {
			p := c.parts
			c.parts = nil
			c.handle(decode(c.t, c.dialect, p).(list))
		}
	case "bye":
		c.bye = m[1].(string)
	case "refused":
		c.refused = append(c.refused, m[3].(string))
	default:
		c.t.Errorf("the edge sent %v", m)
	}
}

var peerAddr = netip.MustParseAddrPort("192.0.2.1:5000")

// A network carries datagrams between a Channel and a model, and loses, doubles and delays some.
type network struct {
	t       testing.TB
	r       *rand.Rand
	loss    float64
	delay   time.Duration // at most
	now     time.Time
	flights []flight

	channel *Channel
	client  *fakeClient
	dialect variant.Dialect

	model    *model
	cookie   Cookie
	waiting  []list
	first    int64
	received int64
	newest   int64
	sendAt   time.Time
	silent   bool

	toPeer, toEdge int // datagrams
	bytes          int // to the peer
}

type flight struct {
	at     time.Time
	toEdge bool
	data   []byte
}

func newNetwork(t testing.TB, seed uint64, d variant.Dialect, loss float64) *network {
	n := &network{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), loss: loss, delay: 60 * time.Millisecond, now: start, dialect: d,
		client: &fakeClient{}, model: newModel(t, d), first: 1, waiting: []list{hello},
	}
	n.cookie = NewCookies([]byte("secret"), start).New(start, peerAddr)
	n.channel = NewChannel(Config{Dialect: d, Client: n.client}, n.cookie, start)
	return n
}

func (n *network) send(toEdge bool, p []byte) {
	if len(p) > 1200 && !toEdge { // as INTERFACES.md says
		n.t.Errorf("the edge sent %d bytes", len(p))
	}
	for range 1 + n.r.IntN(20)/19 { // one in twenty comes twice
		if n.r.Float64() >= n.loss {
			n.flights = append(n.flights, flight{n.now.Add(time.Duration(n.r.Int64N(int64(n.delay)))), toEdge, append([]byte(nil), p...)})
		}
	}
}

// step lets a millisecond pass.
func (n *network) step() {
	n.now = n.now.Add(time.Millisecond)
	due := n.flights
	n.flights = nil
	for _, f := range due {
		switch {
		case f.at.After(n.now):
			n.flights = append(n.flights, f)
		case f.toEdge:
			if p, ok := ParseFrame(f.data); ok && n.channel.Owns(&p) {
				n.channel.Receive(n.now, &p)
			}
		default:
			n.peerReceives(f.data)
		}
	}
	if !n.channel.NextTimeout(n.now).After(n.now) {
		n.channel.Advance(n.now, func(p []byte) {
			n.toPeer++
			n.bytes += len(p)
			n.send(false, p)
		})
	}
	if !n.silent && !n.now.Before(n.sendAt) {
		n.peerSends()
	}
}

func (n *network) peerSends() {
	n.sendAt = n.now.Add(100 * time.Millisecond)
	frame := list{n.cookie[:], n.received, 0}
	if len(n.waiting) > 0 {
		frame = list{n.cookie[:], n.received, n.first, n.waiting[0]}
	}
	n.toEdge++
	n.send(true, encode(n.dialect, frame))
}

// peerReceives is what variant_udp.gd does.
func (n *network) peerReceives(p []byte) {
	f := decode(n.t, n.dialect, p).(list)
	for len(n.waiting) > 0 && n.first <= f[1].(int64) {
		n.waiting, n.first = n.waiting[1:], n.first+1
		n.sendAt = n.now
	}
	number := f[2].(int64)
	if number < 0 && number >= n.newest {
		return
	}
	n.newest = min(n.newest, number)
	for i, m := range f[3:] {
		switch {
		case number <= 0:
			n.model.handle(m.(list))
		case number+int64(i) == n.received+1:
			n.received++
			n.model.handle(m.(list))
		}
		if number > 0 {
			n.sendAt = n.now
		}
	}
}

// until lets time pass until ok, at most limit.
func (n *network) until(limit time.Duration, why string, ok func() bool) time.Duration {
	n.t.Helper()
	for begin := n.now; ; n.step() {
		if ok() {
			return n.now.Sub(begin)
		}
		if n.now.Sub(begin) > limit {
			n.t.Fatalf("%s: not within %v; %d messages wait at the client, %d at the edge, states %v, bye %q", why, limit, len(n.waiting), len(n.channel.sent), n.model.states, n.model.bye)
		}
	}
}

func (n *network) join() {
	n.t.Helper()
	n.until(20*time.Second, "hello arrives", func() bool { return n.client.hello != nil })
	n.channel.core.Welcome()
	n.until(20*time.Second, "welcome arrives", func() bool { return n.model.welcome })
}
