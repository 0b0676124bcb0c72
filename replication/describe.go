package replication

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/view"
)

const (
	describeVersion = 2    // without bounds
	describeBounded = 3    // with bounds
	nullableBit     = 0x80 // of a value's type byte
	memberGroup     = 0    // kinds of members of an audience
	memberClient    = 1
)

// appendDescribe appends the data of a Describe record for replicas:
//
//	version  uint8 = 2 (3 as in appendStoredDescribe); a reader refuses any other
//	key      {length uint8, bytes}
//	access   uint8; of writers: count uint16, count × {length uint8, bytes}
//	audience uint8; of listed and all-but: count uint16, count × {kind uint8, length uint8, bytes}
//	priority uint8
//	details  as appendDetails
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
	b = appendAudience(b, d.Audience)
	b = append(b, d.Priority)
	b = appendDetails(b, d.Details)
	b = appendLong(b, d.Message)
	return appendLong(b, d.Farewell)
}

// appendStoredDescribe appends the data of a Describe record for the durable store. With
// bounds, that is version 3 and ends with the output of appendBounds. Replicas do not get
// bounds, because only the authority applies them; an edge whose release does not know bounds
// can therefore follow.
func appendStoredDescribe(b []byte, d *Description) []byte {
	start := len(b)
	b = appendDescribe(b, d)
	if bounded(d.Values) {
		b[start] = describeBounded
		b = appendBounds(b, d.Values)
	}
	return b
}

func appendAudience(b []byte, a Audience) []byte {
	b = append(b, byte(a.Kind))
	if !a.Kind.hasMembers() {
		return b
	}
	return appendMembers(b, a.Groups, a.Clients)
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
	if version != describeVersion && version != describeBounded {
		return nil, errMessage
	}
	d := &Description{Key: readShort(&r)}
	d.Access.Kind = AccessKind(r.Uint8())
	if d.Access.Kind == AccessWriters {
		for range readCount(&r, 1) {
			d.Access.Writers = append(d.Access.Writers, readShort(&r))
		}
	}
	d.Audience = readAudience(&r)
	d.Priority = r.Uint8()
	d.Details = readDetails(&r)
	d.Message = append([]byte(nil), r.Bytes(int(r.Uint16()))...)
	d.Farewell = append([]byte(nil), r.Bytes(int(r.Uint16()))...)
	d.ValueMax = r.Uint16()
	d.Values = readDefs(&r)
	if r.Err() != nil || !d.sound() {
		return nil, errMessage
	}
	if version == describeBounded && (readBounds(&r, d.Values) != nil || !bounded(d.Values)) {
		return nil, errMessage
	}
	if _, err := finish(d, &r); err != nil {
		return nil, errMessage
	}
	return d, nil
}

func readAudience(r *wire.Reader) Audience {
	a := Audience{Kind: AudienceKind(r.Uint8())}
	if a.Kind.hasMembers() {
		a.Groups, a.Clients = readMembers(r)
	}
	return a
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
