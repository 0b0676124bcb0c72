package replication

import (
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A ValueDef is what one value of a state is.
type ValueDef struct {
	Name string // unique in the state; empty for a value that only has an index
	Type wire.ValueType

	// Precision is how far a floating point component may move from what was
	// last emitted without being emitted. 0 emits every change.
	Precision float64

	// Nullable says that the value may be absent. DNP knows no absent values,
	// so its clients get Null instead: an encoded value, nil for the type's zero.
	Nullable bool
	Null     []byte

	// Bounds are what clients may write. nil lets them write whatever is finite.
	Bounds *Bounds
}

// Substitute returns the encoded value that stands for null.
func (d ValueDef) Substitute() []byte {
	if d.Null != nil {
		return d.Null
	}
	return d.Type.Zero()
}

// A Description is everything about a state but its values. Its slices are
// shared and must not be changed.
type Description struct {
	Key      string
	Access   Access
	Audience Audience
	Message  []byte // link message, tells clients what the state is
	Farewell []byte // reliable message before the link goes down; empty for none
	Values   []ValueDef

	// Priority is the weight of the state where a client's budget does not reach
	// for all, 1 to PriorityMax. 0 stands for 1.
	Priority uint8

	// Details are the levels of detail of those clients that are not told
	// everything. The first that names a client counts.
	Details []Detail

	// ValueMax is the most bytes of a string or data value, without its length.
	// It is part of the description because it decides where views end.
	ValueMax int
}

// Layout returns types and precisions of d.
func (d *Description) Layout() (*netstate.Layout, error) {
	values := make([]netstate.Value, len(d.Values))
	for i, v := range d.Values {
		values[i] = netstate.Value{Type: v.Type, Precision: v.Precision}
	}
	return netstate.NewLayout(values)
}

// Index returns the index of the value with this name.
func (d *Description) Index(name string) (int, bool) {
	i := slices.IndexFunc(d.Values, func(v ValueDef) bool { return v.Name == name })
	return i, i >= 0
}

// An AccessKind says who among the clients may write.
type AccessKind uint8

const (
	AccessReadOnly  AccessKind = iota // nobody
	AccessReadWrite                   // everybody who is linked
	AccessWriters                     // the named clients
)

// Access says which clients may write a state. The zero value is read-only.
type Access struct {
	Kind    AccessKind
	Writers []string // of AccessWriters
}

// MayWrite reports whether client may write.
func (a Access) MayWrite(client string) bool {
	return a.Kind == AccessReadWrite || a.Kind == AccessWriters && slices.Contains(a.Writers, client)
}

func (a Access) equal(b Access) bool {
	return a.Kind == b.Kind && slices.Equal(a.Writers, b.Writers)
}

// An AudienceKind says how an audience is put together.
type AudienceKind uint8

const (
	AudienceNobody AudienceKind = iota
	AudienceAll
	AudienceListed // members of Groups, and Clients
	AudienceAllBut // everybody but those
)

// An Audience is the clients that are offered a link to a state. The zero value
// is nobody.
type Audience struct {
	Kind    AudienceKind
	Groups  []string
	Clients []string
}

// Includes reports whether a client that is in these groups belongs to a.
func (a Audience) Includes(client string, groups []string) bool {
	switch a.Kind {
	case AudienceAll:
		return true
	case AudienceListed:
		return a.lists(client, groups)
	case AudienceAllBut:
		return !a.lists(client, groups)
	}
	return false
}

func (a Audience) lists(client string, groups []string) bool {
	if slices.Contains(a.Clients, client) {
		return true
	}
	return slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(a.Groups, g) })
}

func (a Audience) equal(b Audience) bool {
	return a.Kind == b.Kind && slices.Equal(a.Groups, b.Groups) && slices.Equal(a.Clients, b.Clients)
}
