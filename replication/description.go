package replication

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A ValueDef defines one value of a state.
type ValueDef struct {
	Name string // unique in the state; empty for a value without a name
	Type wire.ValueType

	// Precision is the distance that a floating point component may move from the emitted value
	// without a new emission. 0 emits every change.
	Precision float64

	// Nullable says that the value may be absent. DNP has no absent values, so its clients get
	// Null instead: an encoded value, or nil for the zero of the type.
	Nullable bool
	Null     []byte

	// Bounds limit what clients may write. With nil they may write any finite value.
	Bounds *Bounds
}

// Substitute returns the encoded value that stands for null.
func (d ValueDef) Substitute() []byte {
	if d.Null != nil {
		return d.Null
	}
	return d.Type.Zero()
}

// A Description is everything about a state but its values. States share its slices, which must
// not be changed.
type Description struct {
	Key      string
	Access   Access
	Audience Audience
	Message  []byte // link message; tells clients what the state is
	Farewell []byte // reliable message before the link ends; empty for none
	Values   []ValueDef

	// Priority is the weight of the state, 1 to PriorityMax, when the budget of a client does
	// not suffice for all states. 0 stands for 1.
	Priority uint8

	// Details are the reduced levels of detail for some clients. The first level that lists a
	// client applies.
	Details []Detail

	// ValueMax is the most bytes of a string or data value, without its length. It is part of
	// the description because it decides where views end.
	ValueMax uint16
}

// Layout returns the types and precisions of d.
func (d *Description) Layout() (*netstate.Layout, error) {
	values := make([]netstate.Value, len(d.Values))
	for i, v := range d.Values {
		values[i] = netstate.Value{Type: v.Type, Precision: v.Precision}
	}
	return netstate.NewLayout(values)
}

// An AccessKind says which clients may write.
type AccessKind uint8

const (
	AccessReadOnly  AccessKind = iota // no client
	AccessReadWrite                   // every linked client
	AccessWriters                     // the named clients
)

// Access says which clients may write a state. The zero value is read-only.
type Access struct {
	Kind    AccessKind
	Writers []string // of AccessWriters
}

// MayWrite reports whether the client may write.
func (a Access) MayWrite(client string) bool {
	return a.Kind == AccessReadWrite || a.Kind == AccessWriters && slices.Contains(a.Writers, client)
}

// An AudienceKind says how an audience is composed.
type AudienceKind uint8

const (
	AudienceNone AudienceKind = iota
	AudienceAll
	AudienceListed // the members of Groups, and Clients
	AudienceAllBut // all clients except those
)

// An Audience is the set of clients that are offered a link to a state. The zero value is
// empty.
type Audience struct {
	Kind    AudienceKind
	Groups  []string
	Clients []string
}

// Includes reports whether a client in these groups belongs to a.
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
	return slices.Contains(a.Clients, client) ||
		slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(a.Groups, g) })
}

func (a Audience) check() *Error {
	if a.Kind > AudienceAllBut {
		return Errorf(CodeBadRequest, "unknown audience")
	}
	if err := checkTokens("group", a.Groups); err != nil {
		return err
	}
	return checkTokens("client", a.Clients)
}

// Limits of priorities and levels of detail.
const (
	PriorityMax        = 16        // of a state; the least is 1
	DetailsMax         = 8         // levels of detail of a state
	DetailPrecisionMax = 1_000_000 // factor; the least is 1
	DetailRateMin      = 0.01      // changes a second
	DetailRateMax      = 1_000
)

// A Detail is a reduced level of detail for some clients. A zero Precision stands for 1, a zero
// Rate for no limit.
type Detail struct {
	Groups    []string
	Clients   []string
	Precision float64 // factor on the precision of every value
	Rate      float64 // changes a second
}

// Detail returns the first level of detail that applies to a client in these groups, or false
// if the client gets everything.
func (d *Description) Detail(client string, groups []string) (Detail, bool) {
	i := slices.IndexFunc(d.Details, func(x Detail) bool { return x.members().lists(client, groups) })
	if i < 0 {
		return Detail{}, false
	}
	return d.Details[i], true
}

// Within reports whether every component of the encoded value b is at most precision away from
// that of a. Only floating point types have a precision; a value of any other type is within if
// it is equal.
func Within(t wire.ValueType, precision float64, a, b []byte) bool {
	return string(a) == string(b) || within(t, precision, a, b)
}

// members returns the clients to whom d applies.
func (d Detail) members() Audience {
	return Audience{Kind: AudienceListed, Groups: d.Groups, Clients: d.Clients}
}

func (d Detail) check() *Error {
	switch {
	case len(d.Groups)+len(d.Clients) == 0:
		return Errorf(CodeBadRequest, "lod: want groups or clients")
	case d.Precision == 0 && d.Rate == 0:
		return Errorf(CodeBadRequest, "lod: want precision or rate")
	case !d.inRange():
		return Errorf(CodeBadRequest, "lod: precision %v and rate %v: want 1 to %d and %v to %d", d.Precision, d.Rate, DetailPrecisionMax, DetailRateMin, DetailRateMax)
	}
	return d.members().check()
}

func (d Detail) inRange() bool {
	return (d.Precision == 0 || d.Precision >= 1 && d.Precision <= DetailPrecisionMax) &&
		(d.Rate == 0 || d.Rate >= DetailRateMin && d.Rate <= DetailRateMax)
}

func checkDetails(all []Detail) *Error {
	if len(all) > DetailsMax {
		return Errorf(CodeBadRequest, "lod: %d entries, at most %d are allowed", len(all), DetailsMax)
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// appendDetails appends levels of detail:
//
//	count   uint8
//	entries count × {precision float64, rate float64, members as in an audience}
func appendDetails(b []byte, all []Detail) []byte {
	b = append(b, byte(len(all)))
	for i := range all {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(all[i].Precision))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(all[i].Rate))
		b = appendMembers(b, all[i].Groups, all[i].Clients)
	}
	return b
}

func readDetails(r *wire.Reader) (all []Detail) {
	for range int(r.Uint8()) {
		if r.Err() != nil {
			return nil
		}
		var d Detail
		d.Precision, d.Rate = readFloat(r), readFloat(r)
		d.Groups, d.Clients = readMembers(r)
		all = append(all, d)
	}
	return all
}
