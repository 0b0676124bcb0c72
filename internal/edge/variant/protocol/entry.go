package protocol

import (
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A State is a state of the DNP client behind a Core. Its methods do not block.
type State interface {
	// Key is the name of the state; it may be any text.
	Key() string

	// Len and Type tell of its values, by index. Name is the name of a value, empty if it has none. Index is the value with
	// a name.
	Len() int
	Type(i int) wire.ValueType
	Name(i int) string
	Index(name string) (i int, ok bool)

	ReadOnly() bool

	// Append appends the wire bytes of a value as it is now.
	Append(b []byte, i int) []byte

	// Set sets a value to wire bytes that are valid for its type. An error is for the person who wrote the client.
	Set(i int, enc []byte) error
}

// An entry is a state that the peer sees, or is going to see.
type entry struct {
	id    int64
	state State
	mine  bool // the peer offered it
	gone  bool

	// A state is told by a link message. Values are sent once it has arrived, because a peer ignores those of a state that
	// it does not know.
	link *item // that waits, or nil
	told bool

	dirty  netstate.Mask // values that are not sent
	set    *item         // that waits with values in order, or nil
	queued bool          // in Core.dirty
	next   *entry        // in Core.dirty
	prev   *entry

	// Of peers to which values get lost: those that changed in this period, and in the last one.
	fresh, aging netstate.Mask
	settling     bool // in Core.settling
}

func newEntry(id int64, s State, mine bool) *entry {
	return &entry{id: id, state: s, mine: mine, dirty: netstate.NewMask(s.Len())}
}

// label returns the name by which messages name a value, empty for its index.
func (e *entry) label(i int) string {
	name := e.state.Name(i)
	if j, ok := e.state.Index(name); name == "" || !ok || j != i {
		return ""
	}
	return name
}

// A ring is a list of entries in the order in which they are served.
type ring struct{ head, tail *entry }

func (r *ring) push(e *entry) {
	if e.queued {
		return
	}
	e.queued, e.prev, e.next = true, r.tail, nil
	if r.tail == nil {
		r.head = e
	} else {
		r.tail.next = e
	}
	r.tail = e
}

func (r *ring) remove(e *entry) {
	if !e.queued {
		return
	}
	if e.prev == nil {
		r.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		r.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.queued, e.prev, e.next = false, nil, nil
}

// An item is a message that the peer gets in order. It is encoded when it is sent, so that it has the values of then.
type item struct {
	kind itemKind
	e    *entry        // of a link and of values
	mask netstate.Mask // of values
	id   int64         // of an unlink
	data []byte        // of a message: the bytes of the Variant

	backlog bool // a message of a game server

	next, prev *item
}

type itemKind uint8

const (
	itemLink itemKind = iota
	itemSet
	itemUnlink
	itemReady // an encoded message
)

// A queue is a list of items. Items in the middle can be removed, so that states which come and go while the peer takes nothing
// leave nothing behind.
type queue struct{ head, tail *item }

func (q *queue) push(x *item) {
	x.prev, x.next = q.tail, nil
	if q.tail == nil {
		q.head = x
	} else {
		q.tail.next = x
	}
	q.tail = x
}

func (q *queue) remove(x *item) {
	if x.prev == nil {
		q.head = x.next
	} else {
		x.prev.next = x.next
	}
	if x.next == nil {
		q.tail = x.prev
	} else {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
}
