package viewer

import (
	"encoding/binary"
	"math"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Messages besides those of package wire.
const (
	multipleObjectUpdate  wire.Number = 0xFF02
	requestMultiple       wire.Number = 0xFF03
	chatFromViewer        wire.Number = 0xFFFF0050
	agentThrottle         wire.Number = 0xFFFF0051
	requestRegionInfo     wire.Number = 0xFFFF008D
	regionInfo            wire.Number = 0xFFFF008E
	regionHandshakeReply  wire.Number = 0xFFFF0095
	kickUser              wire.Number = 0xFFFF00A3
	uuidNameRequest       wire.Number = 0xFFFF00EB
	uuidNameReply         wire.Number = 0xFFFF00EC
	agentMovementComplete wire.Number = 0xFFFF00FA
	logoutRequest         wire.Number = 0xFFFF00FC
	logoutReply           wire.Number = 0xFFFF00FD
	agentWearablesRequest wire.Number = 0xFFFF017D
	agentWearablesUpdate  wire.Number = 0xFFFF017E
	agentDataRequest      wire.Number = 0xFFFF0182
	agentDataUpdate       wire.Number = 0xFFFF0183
	mapNameRequest        wire.Number = 0xFFFF0198
	mapBlockReply         wire.Number = 0xFFFF0199
)

// The bodies below are those of the message template, field by field. Multi-byte fields are little endian. Text has a length of
// one or two bytes (Variable 1, Variable 2) and ends with a zero, which counts.

// A body is the body of a message that is being built.
type body struct{ b []byte }

func (w *body) u8(v ...uint8) { w.b = append(w.b, v...) }
func (w *body) u16(v uint16)  { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *body) u32(v uint32)  { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *body) u64(v uint64)  { w.b = binary.LittleEndian.AppendUint64(w.b, v) }
func (w *body) zero(n int)    { w.b = append(w.b, make([]byte, n)...) }
func (w *body) uuid(list ...wire.UUID) {
	for _, u := range list {
		w.b = append(w.b, u[:]...)
	}
}
func (w *body) f32(v ...float32) {
	for _, f := range v {
		w.u32(math.Float32bits(f))
	}
}

func (w *body) text1(s string) {
	s = clip(s, 254)
	w.u8(uint8(len(s) + 1))
	w.b = append(append(w.b, s...), 0)
}

func (w *body) text2(s string) {
	w.u16(uint16(len(s) + 1))
	w.b = append(append(w.b, s...), 0)
}

func (w *body) data1(p []byte) {
	w.u8(uint8(len(p)))
	w.b = append(w.b, p...)
}

// objectHeader begins ObjectUpdate and ImprovedTerseObjectUpdate:
//
//	RegionHandle U64, TimeDilation U16 (65535: none), count U8
func objectHeader(b []byte) []byte {
	w := body{b}
	w.u64(regionHandle)
	w.u16(65535)
	w.u8(0)
	return w.b
}

// objectCount is where the count is.
const objectCount = 10

// Permissions in UpdateFlags of objects that may be moved: modify, copy, move.
const movable = 0x4 | 0x8 | 0x100

// appendObject appends one object of ObjectUpdate, a box of half a metre:
//
//	ID U32, State U8, FullID UUID, CRC U32, PCode U8 (9: volume), Material U8 (3: wood), ClickAction U8, Scale 3 F32,
//	ObjectData Variable 1 (position 3 F32, velocity, acceleration, rotation x y z F32, angular velocity), ParentID U32, UpdateFlags U32,
//	PathCurve U8, ProfileCurve U8, PathBegin, PathEnd U16, PathScaleX, PathScaleY U8, PathShearX … PathSkew 9 U8,
//	ProfileBegin, ProfileEnd, ProfileHollow U16, TextureEntry Variable 2, TextureAnim Variable 1, NameValue Variable 2, Data Variable 2,
//	Text Variable 1, TextColor 4 U8 (inverted), MediaURL Variable 1, PSBlock Variable 1, ExtraParams Variable 1,
//	Sound, OwnerID UUID, Gain F32, Flags U8, Radius F32, JointType U8, JointPivot, JointAxisOrAnchor 3 F32
func appendObject(b []byte, id uint32, full wire.UUID, crc uint32, pos [3]float32, rot [4]float32, flags uint32, text string) []byte {
	w := body{b}
	w.u32(id)
	w.u8(0)
	w.uuid(full)
	w.u32(crc)
	w.u8(9, 3, 0)
	w.f32(.5, .5, .5)
	w.u8(60)
	w.f32(pos[:]...)
	w.zero(24)
	w.f32(rot[0], rot[1], rot[2])
	w.zero(12)
	w.u32(0)
	w.u32(flags)
	w.u8(16, 1) // path: line; profile: square
	w.zero(4)
	w.u8(100, 100)
	w.zero(9)
	w.zero(6)
	w.u16(0)
	w.u8(0)
	w.u16(0)
	w.u16(0)
	w.text1(text)
	w.zero(4)
	w.u8(0, 0)
	w.u8(1, 0) // no extra parameters
	w.zero(32)
	w.zero(4 + 1 + 4 + 1 + 24)
	return w.b
}

// objectSize is the size of an object without its text.
const objectSize = 215

// appendTerse appends one object of ImprovedTerseObjectUpdate, 47 bytes:
//
//	Data Variable 1 (44: ID U32, state U8, avatar U8, position 3 F32, velocity, acceleration 3 U16, rotation 4 U16, angular velocity 3 U16),
//	TextureEntry Variable 2
func appendTerse(b []byte, id uint32, pos [3]float32, rot [4]float32) []byte {
	b = append(b, resting[:]...)
	p := b[len(b)-terseSize:] // in place, because this is what an edge does most for a viewer
	binary.LittleEndian.PutUint32(p[1:], id)
	for i, f := range pos {
		binary.LittleEndian.PutUint32(p[7+4*i:], math.Float32bits(f))
	}
	for i, f := range rot {
		binary.LittleEndian.PutUint16(p[31+2*i:], unit(f))
	}
	return b
}

// terseSize is the size of a move.
const terseSize = 47

// resting is a move of an object that does not move: 0 in 16 bits between two bounds of opposite sign is 32768.
var resting = [terseSize]byte{
	0: 44, 20: 0x80, 22: 0x80, 24: 0x80, 26: 0x80, 28: 0x80, 30: 0x80, 40: 0x80, 42: 0x80, 44: 0x80,
}

// unit returns a number from -1 to 1 in 16 bits.
func unit(f float32) uint16 { return uint16(min(max(f+1, 0), 2)*(65535.0/2) + .5) }

// appendKill is KillObject:
//
//	count U8, ID U32 …
func appendKill(b []byte, ids []uint32) []byte {
	w := body{b}
	w.u8(uint8(len(ids)))
	for _, id := range ids {
		w.u32(id)
	}
	return w.b
}

// appendRegionHandshake is RegionHandshake:
//
//	RegionFlags U32, SimAccess U8 (13: general), SimName Variable 1, SimOwner UUID, IsEstateManager U8, WaterHeight, BillableFactor F32,
//	CacheID, TerrainBase0 … TerrainDetail3 UUID, 4 TerrainStartHeight, 4 TerrainHeightRange F32, RegionID UUID, CPUClassID, CPURatio S32,
//	ColoName, ProductSKU, ProductName Variable 1, count U8, RegionFlagsExtended, RegionProtocols U64
func appendRegionHandshake(b []byte, name string) []byte {
	w := body{b}
	w.u32(0)
	w.u8(13)
	w.text1(name)
	w.zero(16)
	w.u8(0)
	w.f32(20, 1)
	w.zero(9 * 16)
	w.zero(8 * 4)
	w.uuid(objectUUID("region " + name))
	w.zero(8)
	w.text1("")
	w.text1("")
	w.text1("dnprelay")
	w.u8(1)
	w.zero(16)
	return w.b
}

// appendRegionInfo is RegionInfo:
//
//	AgentID, SessionID UUID, SimName Variable 1, EstateID, ParentEstateID, RegionFlags U32, SimAccess, MaxAgents U8,
//	BillableFactor, ObjectBonusFactor, WaterHeight, TerrainRaiseLimit, TerrainLowerLimit F32, PricePerMeter, RedirectGridX, RedirectGridY S32,
//	UseEstateSun U8, SunHour F32, ProductSKU, ProductName Variable 1, MaxAgents32, HardMaxAgents, HardMaxObjects U32, 0 U8, 0 U8
func appendRegionInfo(b []byte, agent, session wire.UUID, name string) []byte {
	w := body{b}
	w.uuid(agent, session)
	w.text1(name)
	w.u32(1)
	w.u32(1)
	w.u32(0)
	w.u8(13, 100)
	w.f32(1, 1, 20, 0, 0)
	w.zero(12)
	w.u8(0)
	w.f32(0)
	w.text1("")
	w.text1("dnprelay")
	w.u32(100)
	w.u32(100)
	w.u32(objectsHard)
	w.u8(0, 0)
	return w.b
}

// objectsHard is the number of objects that the region is said to hold.
const objectsHard = 15000

// appendMapBlock is MapBlockReply with this region:
//
//	AgentID UUID, Flags U32, count U8, X, Y U16, Name Variable 1, Access U8, RegionFlags U32, WaterHeight, Agents U8, MapImageID UUID
func appendMapBlock(b []byte, agent wire.UUID, flags uint32, name string) []byte {
	w := body{b}
	w.uuid(agent)
	w.u32(flags)
	w.u8(1)
	w.u16(regionGrid)
	w.u16(regionGrid)
	w.text1(name)
	w.u8(13)
	w.u32(0)
	w.u8(20, 0)
	w.zero(16)
	return w.b
}

// appendMovementComplete is AgentMovementComplete:
//
//	AgentID, SessionID UUID, Position, LookAt 3 F32, RegionHandle U64, Timestamp U32, ChannelVersion Variable 2
func appendMovementComplete(b []byte, agent, session wire.UUID, seconds uint32) []byte {
	w := body{b}
	w.uuid(agent, session)
	w.f32(centre, centre, ground, 1, 0, 0)
	w.u64(regionHandle)
	w.u32(seconds)
	w.text2("dnprelay")
	return w.b
}

// appendWearables is AgentWearablesUpdate of an agent without any:
//
//	AgentID, SessionID UUID, SerialNum U32, 0 U8
func appendWearables(b []byte, agent, session wire.UUID) []byte {
	w := body{b}
	w.uuid(agent, session)
	w.u32(1)
	w.u8(0)
	return w.b
}

// appendAgentData is AgentDataUpdate:
//
//	AgentID UUID, FirstName, LastName, GroupTitle Variable 1, ActiveGroupID UUID, GroupPowers U64, GroupName Variable 1
func appendAgentData(b []byte, agent wire.UUID, first, last string) []byte {
	w := body{b}
	w.uuid(agent)
	w.text1(first)
	w.text1(last)
	w.text1("")
	w.zero(24)
	w.text1("")
	return w.b
}

// A name is an entry of UUIDNameReply: ID UUID, FirstName, LastName Variable 1. A count U8 precedes them.
type name struct {
	id          wire.UUID
	first, last string
}

func appendNames(b []byte, names []name) []byte {
	w := body{b}
	w.u8(uint8(len(names)))
	for _, n := range names {
		w.uuid(n.id)
		w.text1(n.first)
		w.text1(n.last)
	}
	return w.b
}

// A player is an entry of CoarseLocationUpdate.
type player struct {
	id wire.UUID
	at [3]byte
}

// appendCoarse is CoarseLocationUpdate:
//
//	count U8, X, Y, Z U8 …, You S16 (-1: none), Prey S16, count U8, AgentID UUID …
func appendCoarse(b []byte, players []player, you int16) []byte {
	w := body{b}
	w.u8(uint8(len(players)))
	for _, p := range players {
		w.u8(p.at[:]...)
	}
	w.u16(uint16(you))
	w.u16(0xFFFF)
	w.u8(uint8(len(players)))
	for _, p := range players {
		w.uuid(p.id)
	}
	return w.b
}

// appendChat is ChatFromSimulator:
//
//	FromName Variable 1, SourceID, OwnerID UUID, SourceType U8 (2: object), ChatType U8 (1: say), Audible U8 (1), Position 3 F32, Message Variable 2
func appendChat(b []byte, from, text string) []byte {
	w := body{b}
	w.text1(from)
	w.uuid(objectUUID(from))
	w.zero(16)
	w.u8(2, 1, 1)
	w.f32(centre, centre, ground)
	w.text2(text)
	return w.b
}

// appendGeneric is GenericMessage:
//
//	AgentID, SessionID, TransactionID UUID, Method Variable 1, Invoice UUID, count U8, Parameter Variable 1 …
func appendGeneric(b []byte, agent, session wire.UUID, method string, parameters [][]byte) []byte {
	w := body{b}
	w.uuid(agent, session)
	w.zero(16)
	w.text1(method)
	w.zero(16)
	w.u8(uint8(len(parameters)))
	for _, p := range parameters {
		w.data1(p)
	}
	return w.b
}

// genericSize is the size of a GenericMessage without its parameters, each of which has a byte more than its data.
const genericSize = 16*4 + 1 + 1

// appendLogoutReply is LogoutReply:
//
//	AgentID, SessionID UUID, count U8, ItemID UUID (zero: no items)
func appendLogoutReply(b []byte, agent, session wire.UUID) []byte {
	w := body{b}
	w.uuid(agent, session)
	w.u8(1)
	w.zero(16)
	return w.b
}

// appendKick is KickUser:
//
//	TargetIP 4 U8, TargetPort U16, AgentID, SessionID UUID, Reason Variable 2
func appendKick(b []byte, agent, session wire.UUID, reason string) []byte {
	w := body{b}
	w.zero(6)
	w.uuid(agent, session)
	w.text2(reason)
	return w.b
}
