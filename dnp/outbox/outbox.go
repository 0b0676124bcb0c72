// Package outbox is the client's side of numbered writes (wire.Trailer): which of the values that a program set the edge
// has not acknowledged, when they are sent again, and which values of the edge may be shown meanwhile.
//
//	var o outbox.Outbox[key]
//	o.Set(k, nil)                              // the program set the value k
//	o.Sent(now, send(o.Next(), o.Unsent(nil, ready))) // those that went with a datagram of that number
//	number, keys := o.Due(now, nil)            // values to be sent again, with the number that they had
//	if o.Receive(k, order, value) { show() }   // the edge has this value for k
//	o.Acknowledge(now, ack, order, refusal, ended)
//
// The values themselves are the caller's. A value of the edge that crossed a write on its way is kept aside until the
// edge says that the write has ended: what comes with that datagram, or with a later one, is newer than the write. So
// nothing depends on how long a round trip takes. A repeat overwrites nothing, because the holder of the state applies each
// number once.
//
// An Outbox has no clock, goroutine or lock.
package outbox

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Times after which a write is sent again. The first is repeatUnknown while no write was acknowledged, and
// then what acknowledgements take, with a margin. It doubles with each repeat up to repeatMost, because an edge
// that does not answer may wait for its relay.
const (
	repeatLeast   = 60 * time.Millisecond
	repeatUnknown = 300 * time.Millisecond
	repeatMost    = 2 * time.Second
)

// A Result is how a write ended. The zero value stands for one that was applied, or that a later one replaced.
type Result struct {
	Refused bool // it will never be applied
	Code    wire.RefusalCode
	Lost    bool // the link or the connection ended before the edge said anything
}

// An Outbox has the values, under keys K, that are not acknowledged. The zero value is empty. It holds as many values as
// the states of the client have, because a value that is set again replaces itself.
type Outbox[K comparable] struct {
	// Reliable says that the carrier loses nothing while the connection lasts: writes are repeated after repeatMost.
	Reliable bool

	pending map[K]*write
	unsent  []K    // in the order in which they were set; may contain keys that have ended
	last    uint32 // number that was given
	sent    []sending[K]

	generation uint64 // of the newest edge that the client has heard

	mean, deviation time.Duration // of the time until a write is acknowledged; 0 before the first
}

// A write is a value that the program set, while it is not acknowledged.
type write struct {
	number uint32 // 0 until it is sent
	done   []func(Result)

	// The newest value that the edge sent meanwhile. value is nil if there is none.
	value []byte
	order wire.Order
}

// A sending is a datagram of which some values may not be acknowledged.
type sending[K comparable] struct {
	number   uint32
	keys     []K
	first    time.Time
	due      time.Time
	interval time.Duration
	repeated bool
}

// Set notes that the program set a value. done, which may be nil, is called with the result of this write, or of a later one
// that replaces it.
func (o *Outbox[K]) Set(k K, done func(Result)) {
	w := o.pending[k]
	if w == nil {
		if o.pending == nil {
			o.pending = map[K]*write{}
		}
		w = &write{}
		o.pending[k] = w
		o.unsent = append(o.unsent, k)
	} else if w.number != 0 {
		w.number = 0
		o.unsent = append(o.unsent, k)
	}
	if done != nil {
		w.done = append(w.done, done)
	}
}

// Wait has done called with the result of a write that is pending.
func (o *Outbox[K]) Wait(k K, done func(Result)) { o.pending[k].done = append(o.pending[k].done, done) }

// Pending reports whether a value is not acknowledged.
func (o *Outbox[K]) Pending(k K) bool { return o.pending[k] != nil }

// Len returns how many values are not acknowledged.
func (o *Outbox[K]) Len() int { return len(o.pending) }

// Next returns the number of the next datagram with values that were not sent yet.
func (o *Outbox[K]) Next() uint32 { return o.last + 1 }

// Unsent appends the values to keys that were not sent yet and for which ready holds, in the order in which they were set.
func (o *Outbox[K]) Unsent(keys []K, ready func(K) bool) []K {
	o.unsent = slices.DeleteFunc(o.unsent, func(k K) bool { return !o.waits(k) })
	for _, k := range o.unsent {
		if ready(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (o *Outbox[K]) waits(k K) bool {
	w := o.pending[k]
	return w != nil && w.number == 0
}

// Sent notes that these values were sent in a datagram with the number that Next returned.
func (o *Outbox[K]) Sent(now time.Time, keys []K) {
	if len(keys) == 0 {
		return
	}
	o.last++
	for _, k := range keys {
		o.pending[k].number = o.last
	}
	o.unsent = slices.DeleteFunc(o.unsent, func(k K) bool { return !o.waits(k) })
	o.sent = append(o.sent, sending[K]{number: o.last, keys: slices.Clone(keys), first: now, interval: o.repeatAfter(), due: now.Add(o.repeatAfter())})
}

// Forget ends the writes of these values, of which no acknowledgement will come.
func (o *Outbox[K]) Forget(keys []K) {
	for _, k := range keys {
		o.end(k, Result{Lost: true})
	}
}

// repeatAfter returns after what time without an acknowledgement a write is sent again.
func (o *Outbox[K]) repeatAfter() time.Duration {
	switch {
	case o.Reliable:
		return repeatMost
	case o.mean == 0:
		return repeatUnknown
	}
	return min(max(repeatLeast, o.mean+o.mean/2+4*o.deviation), repeatMost)
}

// Due appends the values of one datagram that is due to be sent again, and returns its number; 0 if none is.
func (o *Outbox[K]) Due(now time.Time, keys []K) (number uint32, _ []K) {
	for i := range o.sent {
		s := &o.sent[i]
		if s.due.After(now) {
			continue
		}
		before := len(keys)
		for _, k := range s.keys {
			if o.carries(s, k) {
				keys = append(keys, k)
			}
		}
		s.repeated = true
		s.interval = min(2*s.interval, repeatMost)
		s.due = now.Add(s.interval)
		if len(keys) > before {
			return s.number, keys
		}
	}
	return 0, keys
}

// carries reports whether a datagram has the newest write of a value.
func (o *Outbox[K]) carries(s *sending[K], k K) bool {
	w := o.pending[k]
	return w != nil && w.number == s.number
}

// NextTimeout returns when Due has something; the zero time for never.
func (o *Outbox[K]) NextTimeout() (at time.Time) {
	o.sent = slices.DeleteFunc(o.sent, func(s sending[K]) bool {
		return !slices.ContainsFunc(s.keys, func(k K) bool { return o.carries(&s, k) })
	})
	for i := range o.sent {
		if s := &o.sent[i]; at.IsZero() || s.due.Before(at) {
			at = s.due
		}
	}
	return at
}

// Resume makes everything due that is not acknowledged: the connection was lost and is there again.
func (o *Outbox[K]) Resume(now time.Time) {
	for i := range o.sent {
		o.sent[i].due, o.sent[i].repeated = now, true
	}
}

// Receive takes a value of the edge. It reports whether the value may be shown. The caller has compared its order with that
// of the value before.
func (o *Outbox[K]) Receive(k K, order wire.Order, value []byte) bool {
	o.generation = max(o.generation, order.Generation())
	w := o.pending[k]
	if w == nil {
		return true
	}
	w.value, w.order = append(w.value[:0], value...), order
	return false
}

// An Ended is a value whose write has ended.
type Ended[K comparable] struct {
	Key    K
	Result Result
	Value  []byte // what the edge has instead; nil if what the program set stands, as far as is known
	done   []func(Result)
}

// Tell calls the functions that wait for the result.
func (e *Ended[K]) Tell() {
	for _, f := range e.done {
		f(e.Result)
	}
}

// Acknowledge takes the edge's word on a write, from a datagram of this order. refusal tells why a value was refused, if it
// was. Acknowledge appends the values that are ended by it, of which no value from a datagram of a lower order may be taken.
// The word of an edge from which another one took the session over does not count, because values of the new edge may be older
// than the write. The new edge acknowledges the next repeat.
func (o *Outbox[K]) Acknowledge(now time.Time, number uint32, order wire.Order, refusal func(K) (wire.RefusalCode, bool), list []Ended[K]) []Ended[K] {
	if order.Generation() < o.generation {
		return list
	}
	o.generation = order.Generation()
	at, ok := slices.BinarySearchFunc(o.sent, number, func(s sending[K], n uint32) int { return int(int64(s.number) - int64(n)) })
	if !ok {
		return list
	}
	s := o.sent[at]
	o.sent = slices.Delete(o.sent, at, at+1)
	if !s.repeated {
		o.sample(now.Sub(s.first))
	}
	for _, k := range s.keys {
		w := o.pending[k]
		if w == nil || w.number != number {
			continue
		}
		e := Ended[K]{Key: k, done: w.done}
		code, refused := refusal(k)
		if refused {
			e.Result = Result{Refused: true, Code: code}
		}
		if w.value != nil && (refused || w.order >= order) {
			e.Value = w.value
		}
		delete(o.pending, k)
		list = append(list, e)
	}
	return list
}

// sample learns how long an acknowledgement takes, as RFC 6298 has it for TCP.
func (o *Outbox[K]) sample(d time.Duration) {
	if d = max(d, time.Millisecond); o.mean == 0 {
		o.mean, o.deviation = d, d/2
		return
	}
	o.deviation += ((d - o.mean).Abs() - o.deviation) / 4
	o.mean += (d - o.mean) / 8
}

// Drop ends the writes of values whose link has ended.
func (o *Outbox[K]) Drop(gone func(K) bool) {
	for k := range o.pending {
		if gone(k) {
			o.end(k, Result{Lost: true})
		}
	}
}

func (o *Outbox[K]) end(k K, r Result) {
	if w := o.pending[k]; w != nil {
		delete(o.pending, k)
		for _, f := range w.done {
			f(r)
		}
	}
}
