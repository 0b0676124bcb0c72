package viewer

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// errTruncated is static, because hostile input must not cost an allocation.
var errTruncated = errors.New("viewer: message ends inside a field")

// A reader reads the fields of a body. After the first field that is not there, all are zero.
type reader struct {
	p     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.p) < n {
		r.p, r.short = nil, true
		return zeros[:n]
	}
	field := r.p[:n]
	r.p = r.p[n:]
	return field
}

// zeros are the bytes of fields that are not there.
var zeros [math.MaxUint16]byte

func (r *reader) u8() uint8       { return r.take(1)[0] }
func (r *reader) u16() uint16     { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32     { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) f32() float32    { return math.Float32frombits(r.u32()) }
func (r *reader) uuid() wire.UUID { return wire.UUID(r.take(16)) }
func (r *reader) data1() []byte   { return r.take(int(r.u8())) }
func (r *reader) data2() []byte   { return r.take(int(r.u16())) }

func (r *reader) vector() (v [3]float32) {
	for i := range v {
		v[i] = r.f32()
	}
	return v
}

// blocks reads the blocks of a body, whose number is a byte, and appends them.
func blocks[T any](list []T, r *reader, read func() T) []T {
	for range r.u8() {
		if x := read(); !r.short {
			list = append(list, x)
		}
	}
	return list
}

func (r *reader) err() error {
	if r.short {
		return errTruncated
	}
	return nil
}

// text returns a text without the zero at its end.
func text(p []byte) string {
	if n := len(p); n > 0 && p[n-1] == 0 {
		p = p[:n-1]
	}
	return string(p)
}

// An identity begins the body of most messages of a viewer:
//
//	AgentID, SessionID UUID
type identity struct{ agent, session wire.UUID }

// identify reads the identity at the front of a body.
func identify(p []byte) (identity, reader, error) {
	r := reader{p: p}
	id := identity{r.uuid(), r.uuid()}
	return id, r, r.err()
}

// parseMovement parses the rest of CompleteAgentMovement:
//
//	CircuitCode U32
func parseMovement(r reader) (code uint32, err error) {
	code = r.u32()
	return code, r.err()
}

// parseThrottle parses the rest of AgentThrottle, and returns the sum of the seven kinds of data in bits per second:
//
//	CircuitCode, GenCounter U32, Throttles Variable 1 (7 F32)
func parseThrottle(r reader) (generation uint32, bits float64, err error) {
	r.u32()
	generation = r.u32()
	list := reader{p: r.data1()}
	for range 7 {
		bits += float64(list.f32())
	}
	if err := list.err(); err != nil {
		return 0, 0, err
	}
	return generation, bits, r.err()
}

// A move is one block of MultipleObjectUpdate.
type move struct {
	id       uint32
	kind     uint8 // moveTo, moveTurn, and others that are of no interest
	position [3]float32
	rotation [3]float32
}

const (
	moveTo    = 1
	moveTurn  = 2
	moveScale = 4
)

// parseMoves parses the rest of MultipleObjectUpdate, and appends its blocks:
//
//	count U8, ID U32, Type U8, Data Variable 1 (position 3 F32, rotation x y z F32, scale 3 F32: those that Type says) …
func parseMoves(list []move, r reader) ([]move, error) {
	list = blocks(list, &r, func() move {
		m := move{id: r.u32(), kind: r.u8()}
		data := reader{p: r.data1()}
		if m.kind&moveTo != 0 {
			m.position = data.vector()
		}
		if m.kind&moveTurn != 0 {
			m.rotation = data.vector()
		}
		r.short = r.short || data.short
		return m
	})
	return list, r.err()
}

// parseRequested parses the rest of RequestMultipleObjects, and appends the ids:
//
//	count U8, CacheMissType U8, ID U32 …
func parseRequested(list []uint32, r reader) ([]uint32, error) {
	list = blocks(list, &r, func() uint32 {
		r.u8()
		return r.u32()
	})
	return list, r.err()
}

// parseChat parses the rest of ChatFromViewer:
//
//	Message Variable 2, Type U8, Channel S32
func parseChat(r reader) (message string, kind uint8, channel int32, err error) {
	message = text(r.data2())
	kind, channel = r.u8(), int32(r.u32())
	return message, kind, channel, r.err()
}

// Types of chat that say something. Others tell that somebody types.
const (
	chatWhisper = 0
	chatSay     = 1
	chatShout   = 2
)

// parseMapName parses the rest of MapNameRequest:
//
//	Flags, EstateID U32, Godlike U8, Name Variable 1
func parseMapName(r reader) (flags uint32, name string, err error) {
	flags = r.u32()
	r.u32()
	r.u8()
	name = text(r.data1())
	return flags, name, r.err()
}

// parseNames parses UUIDNameRequest, which has no identity:
//
//	count U8, ID UUID …
func parseNames(r reader) ([]wire.UUID, error) {
	list := blocks(nil, &r, r.uuid)
	return list, r.err()
}

// An agent is the rest of AgentUpdate, of which the head, the axes of the camera and its range are of no interest:
//
//	BodyRotation, HeadRotation 3 F32, State U8, CameraCenter, CameraAtAxis, CameraLeftAxis, CameraUpAxis 3 F32, Far F32,
//	ControlFlags U32, Flags U8
type agent struct {
	body   [3]float32
	camera [3]float32
	keys   uint32
}

func parseAgent(r reader) (a agent, err error) {
	a.body = r.vector()
	r.take(12 + 1)
	a.camera = r.vector()
	r.take(36 + 4)
	a.keys = r.u32()
	r.u8()
	return a, r.err()
}

// parseGeneric parses the rest of GenericMessage, and its parameters, which alias the body:
//
//	TransactionID UUID, Method Variable 1, Invoice UUID, count U8, Parameter Variable 1 …
func parseGeneric(r reader) (method string, parameters [][]byte, err error) {
	r.uuid()
	method = text(r.data1())
	r.uuid()
	parameters = blocks(nil, &r, r.data1)
	return method, parameters, r.err()
}
