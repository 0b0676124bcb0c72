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

	dirty             netstate.Mask // values that are not sent
	set               *item         // that waits with values in order, or nil
	neighbours[entry]               // in Core.dirty

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

// A queue is a list in the order in which its members are served. Members in the middle can be removed, so that states which come
// and go while the peer takes nothing leave nothing behind.
type queue[T any, P interface {
	*T
	place() *neighbours[T]
}] struct{ head, tail *T }

// neighbours are what a member of a queue embeds.
type neighbours[T any] struct {
	next, prev *T
	queued     bool
}

func (n *neighbours[T]) place() *neighbours[T] { return n }

// push adds a member at the end, unless it is in the queue already.
func (q *queue[T, P]) push(x P) {
	n := x.place()
	if n.queued {
		return
	}
	n.queued, n.prev = true, q.tail
	if q.tail == nil {
		q.head = x
	} else {
		P(q.tail).place().next = x
	}
	q.tail = x
}

// remove removes a member. It does nothing to what is not in the queue.
func (q *queue[T, P]) remove(x P) {
	n := x.place()
	if !n.queued {
		return
	}
	if n.prev == nil {
		q.head = n.next
	} else {
		P(n.prev).place().next = n.next
	}
	if n.next == nil {
		q.tail = n.prev
	} else {
		P(n.next).place().prev = n.prev
	}
	*n = neighbours[T]{}
}

// An item is a message that the peer gets in order. It is encoded when it is sent, so that it has the values of then.
type item struct {
	kind itemKind
	e    *entry        // of a link and of values
	mask netstate.Mask // of values
	id   int64         // of an unlink
	data []byte        // of a message: the bytes of the Variant

	backlog bool // a message of a game server

	neighbours[item] // in Core.order
}

type itemKind uint8

const (
	itemLink itemKind = iota
	itemSet
	itemUnlink
	itemReady // an encoded message
)
