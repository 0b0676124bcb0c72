package lludp

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A network carries the datagrams of two circuits. It loses and repeats them, and delays each
// by its own time, so that it also reorders them.
type network struct {
	testing.TB
	rand      *rand.Rand
	now       time.Time
	loss, dup float64
	delay     time.Duration // at most
	queue     deliveries
	count     int
	ends      [2]*end
}

// An end is a circuit, the messages sent on it, and what the other end passed up.
type end struct {
	*network
	circuit  *Circuit
	to       *end
	messages map[uint64]*message // by token
	last     uint64              // token
	closed   Reason
}

// A message is a sent message and its fate.
type message struct {
	reliable                 bool
	body                     []byte
	arrived, delivered, lost int
}

type delivery struct {
	at  time.Time
	nth int // order of deliveries at one time
	to  *end
	b   []byte
}

type deliveries []delivery

func (q deliveries) Len() int { return len(q) }
func (q deliveries) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].nth < q[j].nth
	}
	return q[i].at.Before(q[j].at)
}
func (q deliveries) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *deliveries) Push(x any)   { *q = append(*q, x.(delivery)) }
func (q *deliveries) Pop() any {
	d := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return d
}

func newNetwork(t testing.TB, r *rand.Rand, cfg Config) *network {
	n := &network{TB: t, rand: r, now: time.Unix(1000, 0), delay: 200 * time.Millisecond}
	for i := range n.ends {
		c, err := New(n.now, cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.ends[i] = &end{network: n, circuit: c, messages: map[uint64]*message{}}
	}
	n.ends[0].to, n.ends[1].to = n.ends[1], n.ends[0]
	return n
}

func (e *end) Datagram(size int) []byte { return make([]byte, 0, size) }

func (e *end) Send(b []byte) {
	if len(b) > wire.PacketMax {
		e.Fatalf("a datagram of %d bytes", len(b))
	}
	copies := 1
	for e.rand.Float64() < e.dup {
		copies++
	}
	for range copies {
		if e.rand.Float64() < e.loss {
			continue
		}
		e.count++
		heap.Push(&e.queue, delivery{e.now.Add(time.Duration(e.rand.Int64N(int64(e.delay)))), e.count, e.to, b})
	}
}

// run processes everything that is due before the deadline.
func (n *network) run(d time.Duration) {
	for deadline := n.now.Add(d); ; {
		next, to := deadline, (*end)(nil)
		for _, e := range n.ends {
			if at, ok := e.circuit.NextTimeout(); ok && at.Before(next) {
				next, to = at, e
			}
		}
		switch {
		case len(n.queue) > 0 && !n.queue[0].at.After(next):
			m := heap.Pop(&n.queue).(delivery)
			n.now = m.at
			m.to.took(m.to.circuit.Receive(n.now, m.b, m.to))
		case to != nil:
			if next.After(n.now) {
				n.now = next
			}
			to.took(to.circuit.Advance(n.now, to))
		default:
			n.now = deadline
			return
		}
	}
}

// took records the events of a circuit.
func (e *end) took(events []Event) {
	for _, ev := range events {
		switch ev.Kind {
		case EventPacket:
			token := binary.LittleEndian.Uint64(ev.Packet.Body)
			m := e.to.messages[token]
			if m == nil || !bytes.Equal(m.body, ev.Packet.Body) || (ev.Packet.Flags&wire.FlagReliable != 0) != m.reliable {
				e.Fatalf("message %d arrived as %x flags %x, sent as %+v", token, ev.Packet.Body, ev.Packet.Flags, m)
			}
			m.arrived++
		case EventDelivered:
			e.messages[ev.Token].delivered++
		case EventLost:
			e.messages[ev.Token].lost++
		case EventClosed:
			e.closed = ev.Reason
		}
	}
}

// say sends a random message; the window may refuse it.
func (e *end) say() {
	e.last++
	token := e.last
	body := binary.LittleEndian.AppendUint64(nil, token)
	body = append(body, make([]byte, e.rand.IntN(40))...)
	m := &message{reliable: e.rand.IntN(2) == 0, body: body}
	numbers := []wire.Number{wire.AgentUpdate, wire.CoarseLocationUpdate, wire.ChatFromSimulator}
	err := e.circuit.Send(e.now, Message{
		Number: numbers[e.rand.IntN(3)], Body: body, Reliable: m.reliable, ZeroCode: e.rand.IntN(2) == 0, Token: token,
	}, e)
	if err == nil {
		e.messages[token] = m
	} else if err != ErrBacklog {
		e.Fatal(err)
	}
}

// talk makes both ends send n messages, about one in 5 ms.
func (n *network) talk(messages int) {
	for range messages {
		for _, e := range n.ends {
			e.say()
		}
		n.run(time.Duration(n.rand.IntN(10)) * time.Millisecond)
	}
}

// TestLossyNetwork has 30 % loss, repetition and reordering in both directions, across the wrap
// of the numbers. With unlimited retries every reliable message arrives exactly once and is
// acknowledged, and then nothing is repeated.
func TestLossyNetwork(t *testing.T) {
	r := random(t)
	for round := range 10 {
		n := newNetwork(t, r, Config{Retries: -1, ResendAfter: 300 * time.Millisecond})
		n.loss, n.dup = 0.3, 0.2
		for _, e := range n.ends {
			e.circuit.last = wire.Seq(wire.SeqModulus - 1 - r.IntN(400))
		}
		n.talk(500)
		n.run(20 * time.Second)
		for i, e := range n.ends {
			what := fmt.Sprintf("round %d, end %d", round, i)
			n.check(what, e, 0)
			if packets, bytes := e.circuit.InFlight(); packets != 0 || bytes != 0 || e.circuit.last > wire.SeqModulus/2 {
				t.Errorf("%s: %d packets, %d bytes are in flight, the last number was %d", what, packets, bytes, e.circuit.last)
			}
			before := e.circuit.Stats().Resends
			n.run(2 * time.Second)
			if after := e.circuit.Stats().Resends; after != before || before == 0 {
				t.Errorf("%s: %d repeats, then %d although everything was acknowledged", what, before, after)
			}
		}
	}
}

// check compares the fate of each message with the promises.
func (n *network) check(what string, e *end, lostMax int) {
	n.Helper()
	reliable, lost, arrived := 0, 0, 0
	for token, m := range e.messages {
		arrived += m.arrived
		switch {
		case m.arrived > 1:
			n.Errorf("%s: message %d (reliable %v) was passed up %d times", what, token, m.reliable, m.arrived)
		case !m.reliable && (m.delivered > 0 || m.lost > 0):
			n.Errorf("%s: message %d is not reliable, but %+v", what, token, m)
		case m.reliable && m.delivered+m.lost != 1:
			n.Errorf("%s: message %d was delivered %d times, given up %d times", what, token, m.delivered, m.lost)
		case m.delivered == 1 && m.arrived != 1:
			n.Errorf("%s: message %d was acknowledged, but never passed up", what, token)
		}
		if m.reliable {
			reliable++
			lost += m.lost
		}
	}
	if lost > lostMax || reliable == 0 || arrived == reliable {
		n.Errorf("%s: %d of %d reliable messages were given up, at most %d; %d of %d arrived", what, lost, reliable, lostMax, arrived, len(e.messages))
	}
	if s := e.circuit.Stats(); s.Lost != uint64(lost) || s.Delivered != uint64(reliable-lost) {
		n.Errorf("%s: counted %+v", what, s)
	}
}

// TestLossyNetworkByDefault has the three retries of the reference viewer, so some messages are
// given up. The owner is told of those, and every acknowledged message has arrived.
func TestLossyNetworkByDefault(t *testing.T) {
	n := newNetwork(t, random(t), Config{})
	n.loss, n.dup = 0.3, 0.2
	n.talk(1000)
	n.run(50 * time.Second)
	for i, e := range n.ends {
		if e.closed != 0 {
			t.Fatalf("the circuit ended with reason %d", e.closed)
		}
		// A message is given up with probability 0.51^4 = 7 %, if each arrival is
		// acknowledged once.
		n.check(fmt.Sprint("end ", i), e, len(e.messages)/8)
	}
}

// TestSilentPeer has a network that stops delivering.
func TestSilentPeer(t *testing.T) {
	n := newNetwork(t, random(t), Config{})
	n.talk(20)
	n.loss = 1
	n.talk(20)
	n.run(2 * time.Minute)
	for i, e := range n.ends {
		if e.closed != ClosedByTimeout || !e.circuit.Closed() {
			t.Errorf("end %d: closed %v, reason %d", i, e.circuit.Closed(), e.closed)
		}
	}
}
