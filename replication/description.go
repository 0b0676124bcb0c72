package replication

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
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

	// Struct are the components of a data value that has some. Only the Store of a space knows them;
	// others learn them from a describing link message.
	Struct []StructField
}

// Substitute returns the encoded value that stands for null.
func (d ValueDef) Substitute() []byte {
	if d.Null != nil {
		return d.Null
	}
	if len(d.Struct) > 0 {
		return zeroStruct(d.Struct)
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

	// TTL is how long the state lives after the last op of a publisher about it; 0 for ever. Only
	// the Store of a space knows it.
	TTL time.Duration

	// Details are the reduced levels of detail for some clients. The first level that lists a
	// client applies.
	Details []Detail

	// Interest is the name of the interest of the state; empty for none, and clients see the state wherever it is.
	// Those who are told of Details apply them in place of what the bands say.
	Interest string

	// ValueMax is the most bytes of a string or data value, without its length. It is part of
	// the description because it decides where views end.
	ValueMax uint16
}

// Describing returns the link message that tells clients the key of the state, the names of its
// values, and their components.
func (d *Description) Describing() []byte { return describing(d.Key, d.Values) }

func describing(key string, defs []ValueDef) []byte {
	told := linkmsg.Description{Key: key, Names: make([]string, len(defs))}
	for i := range defs {
		told.Names[i] = defs[i].Name
		if len(defs[i].Struct) > 0 {
			if told.Fields == nil {
				told.Fields = map[int][]linkmsg.Field{}
			}
			told.Fields[i] = described(defs[i].Struct)
		}
	}
	return linkmsg.Append(nil, told)
}

// isDescribed reports whether the link message is what Describing returns, and more than the key.
func (d *Description) isDescribed() bool {
	return len(d.Message) > 0 && d.Message[0] == '{' && bytes.Equal(d.Message, d.Describing())
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

const (
	describeVersion = 2    // without bounds
	describeBounded = 3    // with bounds
	describeStructs = 4    // with bounds, perhaps none, and components of values
	describeTTL     = 5    // with bounds and components, perhaps none, and a time to live
	nullableBit     = 0x80 // of a value's type byte
	memberGroup     = 0    // kinds of members of an audience
	memberClient    = 1
)

// appendDescribe appends the data of a Describe record for replicas:
//
//	version  uint8 = 2 (3 to 5 as in appendStoredDescribe); a reader refuses any other
//	key      {length uint8, bytes}
//	access   uint8; of writers: count uint16, count × {length uint8, bytes}
//	audience uint8; of listed and all-but: count uint16, count × {kind uint8, length uint8, bytes}
//	priority uint8
//	details  as appendDetails; the interest is one of them, see interestPrefix
//	message  {length uint16, bytes}
//	farewell {length uint16, bytes}
//	values   as appendDefs
func appendDescribe(b []byte, d *Description) []byte {
	b = append(b, describeVersion)
	b = appendDescription(b, d)
	return appendDefs(b, d.Values, d.ValueMax)
}

// appendDescription appends everything but the values.
func appendDescription(b []byte, d *Description) []byte {
	b = appendShort(b, d.Key)
	b = append(b, byte(d.Access.Kind))
	if d.Access.Kind == AccessWriters {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(d.Access.Writers)))
		for _, w := range d.Access.Writers {
			b = appendShort(b, w)
		}
	}
	b = append(b, byte(d.Audience.Kind))
	if d.Audience.Kind.hasMembers() {
		b = appendMembers(b, d.Audience.Groups, d.Audience.Clients)
	}
	b = append(b, d.Priority)
	b = appendDetails(b, d.wireDetails())
	b = appendLong(b, d.Message)
	return appendLong(b, d.Farewell)
}

// appendStoredDescribe appends the data of a Describe record for the durable store. With
// bounds, that is version 3 and ends with the output of appendBounds; if values have components,
// it is version 4 and ends with the output of appendBounds and appendStructs; with a time to
// live it is version 5, which ends with it in nanoseconds, uint64, behind those. Replicas get none of them, because only the authority applies them.
func appendStoredDescribe(b []byte, d *Description) []byte {
	start := len(b)
	b = appendDescribe(b, d)
	switch {
	case d.TTL > 0:
		b[start] = describeTTL
		b = appendStructs(appendBounds(b, d.Values), d.Values)
		b = binary.LittleEndian.AppendUint64(b, uint64(d.TTL))
	case structured(d.Values):
		b[start] = describeStructs
		b = appendStructs(appendBounds(b, d.Values), d.Values)
	case bounded(d.Values):
		b[start] = describeBounded
		b = appendBounds(b, d.Values)
	}
	return b
}

func appendMembers(b []byte, groups, clients []string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(groups)+len(clients)))
	for _, g := range groups {
		b = appendShort(append(b, memberGroup), g)
	}
	for _, c := range clients {
		b = appendShort(append(b, memberClient), c)
	}
	return b
}

func (k AudienceKind) hasMembers() bool { return k == AudienceListed || k == AudienceAllBut }

// appendDefs appends the value definitions:
//
//	value max uint16   bytes of a string or data value
//	count     uint16
//	values    count × {type uint8 | 0x80 if nullable, precision float64, name {length uint8, bytes},
//	          substitute {length uint16, bytes} if nullable}
//
// The value max is included because it decides where views end: the holder, its replicas, and a
// holder that restores the state under another configuration must all cut alike.
func appendDefs(b []byte, defs []ValueDef, valueMax uint16) []byte {
	b = binary.LittleEndian.AppendUint16(b, valueMax)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(defs)))
	for i := range defs {
		d := &defs[i]
		t := byte(d.Type)
		if d.Nullable {
			t |= nullableBit
		}
		b = append(b, t)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(d.Precision))
		b = appendShort(b, d.Name)
		if d.Nullable {
			b = appendLong(b, d.Substitute())
		}
	}
	return b
}

// parseDescribe parses the data of a Describe record. The result shares no bytes with p.
func parseDescribe(p []byte) (*Description, error) {
	r := wire.NewReader(p)
	version := r.Uint8()
	if version < describeVersion || version > describeTTL {
		return nil, errMessage
	}
	d := &Description{Key: readShort(&r)}
	d.Access.Kind = AccessKind(r.Uint8())
	if d.Access.Kind == AccessWriters {
		for range readCount(&r, 1) {
			d.Access.Writers = append(d.Access.Writers, readShort(&r))
		}
	}
	d.Audience.Kind = AudienceKind(r.Uint8())
	if d.Audience.Kind.hasMembers() {
		d.Audience.Groups, d.Audience.Clients = readMembers(&r)
	}
	d.Priority = r.Uint8()
	d.Details = readDetails(&r)
	d.Message = append([]byte(nil), r.Bytes(int(r.Uint16()))...)
	d.Farewell = append([]byte(nil), r.Bytes(int(r.Uint16()))...)
	d.ValueMax = r.Uint16()
	d.Values = readDefs(&r)
	if r.Err() != nil || !d.sound() {
		return nil, errMessage
	}
	d.takeInterest()
	if err := d.readStored(&r, version); err != nil {
		return nil, err
	}
	if _, err := finish(d, &r); err != nil {
		return nil, errMessage
	}
	return d, nil
}

// readStored reads what only stored descriptions have.
func (d *Description) readStored(r *wire.Reader, version uint8) error {
	switch {
	case version >= describeBounded && readBounds(r, d.Values) != nil,
		version >= describeStructs && readStructs(r, d.Values, d.ValueMax) != nil,
		version == describeBounded && !bounded(d.Values),
		version == describeStructs && !structured(d.Values):
		return errMessage
	case version < describeTTL:
		return nil
	}
	if d.TTL = time.Duration(r.Uint64()); d.TTL > TTLMax || d.TTL < TTLMin {
		return errMessage
	}
	return nil
}

func readMembers(r *wire.Reader) (groups, clients []string) {
	for range readCount(r, 2) {
		kind, name := r.Uint8(), readShort(r)
		if kind == memberGroup {
			groups = append(groups, name)
		} else {
			clients = append(clients, name)
		}
	}
	return groups, clients
}

func readDefs(r *wire.Reader) []ValueDef {
	defs := make([]ValueDef, readCount(r, 10))
	for i := range defs {
		t := r.Uint8()
		d := &defs[i]
		d.Type, d.Nullable = wire.ValueType(t&^nullableBit), t&nullableBit != 0
		d.Precision = readFloat(r)
		d.Name = readShort(r)
		if d.Nullable {
			d.Null = append([]byte(nil), r.Bytes(int(r.Uint16()))...)
		}
	}
	return defs
}

// sound reports whether code may rely on d: the kinds exist, the values make a layout of at
// most view.PerState views, and every substitute is a value of its type.
func (d *Description) sound() bool {
	if d.Access.Kind > AccessWriters || d.Audience.Kind > AudienceAllBut || d.ValueMax > valueMaxMax {
		return false
	}
	if d.Priority > PriorityMax || len(d.Details) > DetailsMax || slices.ContainsFunc(d.Details, func(x Detail) bool { return !x.inRange() }) {
		return false
	}
	if len(d.Values) == 0 || len(d.Values) > netstate.ValuesMax {
		return false
	}
	fields := make([]view.Field, len(d.Values))
	for i, v := range d.Values {
		if !v.Type.Valid() || v.Nullable && !d.substitutes(v) {
			return false
		}
		fields[i].Type = v.Type
	}
	return len(view.Split(fields, int(d.ValueMax))) <= view.PerState
}

// substitutes reports whether the substitute of v is a valid value of v.
func (d *Description) substitutes(v ValueDef) bool {
	p := v.Substitute()
	return wire.CheckValue(v.Type, p) && !(v.Type.Variable() && len(p)-2 > int(d.ValueMax))
}

// appendDescribeRecords appends a Describe for the view ref. A Describe larger than the VLQ of
// a record can say (32,767 bytes) is split into DescribePart records and a Describe.
func appendDescribeRecords(b []byte, ref view.RefID, e view.EntityID, data []byte) []byte {
	const most = 32_000
	for len(data) > most {
		b = view.Record{Ref: ref, Entity: e, Message: view.DescribePart, Data: data[:most]}.Append(b)
		data = data[most:]
	}
	return view.Record{Ref: ref, Entity: e, Message: view.Describe, Data: data}.Append(b)
}
