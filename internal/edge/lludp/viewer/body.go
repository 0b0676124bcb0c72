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

// Fields of bodies.
type (
	u8  = uint8
	u16 = uint16
	u32 = uint32
	u64 = uint64
	f32 = float32

	zero  int    // so many bytes of unset fields
	text1 string // Variable 1
	text2 string // Variable 2
	data1 []byte // Variable 1, without a zero at its end
)

// put appends fields to a body.
func put(b []byte, fields ...any) []byte {
	for _, field := range fields {
		switch f := field.(type) {
		case u8:
			b = append(b, f)
		case u16:
			b = binary.LittleEndian.AppendUint16(b, f)
		case u32:
			b = binary.LittleEndian.AppendUint32(b, f)
		case u64:
			b = binary.LittleEndian.AppendUint64(b, f)
		case f32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		case wire.UUID:
			b = append(b, f[:]...)
		case zero:
			b = append(b, make([]byte, f)...)
		case text1:
			s := clip(string(f), 254)
			b = append(append(append(b, u8(len(s)+1)), s...), 0)
		case text2:
			b = append(append(binary.LittleEndian.AppendUint16(b, u16(len(f)+1)), f...), 0)
		case data1:
			b = append(append(b, u8(len(f))), f...)
		default:
			panic("viewer: a body has no such field")
		}
	}
	return b
}

// objectHeader begins ObjectUpdate and ImprovedTerseObjectUpdate:
//
//	RegionHandle U64, TimeDilation U16 (65535: none), count U8
func objectHeader(b []byte) []byte { return put(b, regionHandle, u16(65535), u8(0)) }

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
	return put(b, id, u8(0), full, crc, u8(9), u8(3), u8(0), f32(.5), f32(.5), f32(.5),
		u8(60), pos[0], pos[1], pos[2], zero(24), rot[0], rot[1], rot[2], zero(12), u32(0), flags,
		u8(16), u8(1), zero(4), u8(100), u8(100), zero(9), // path: line; profile: square
		zero(6), u16(0), u8(0), u16(0), u16(0),
		text1(text), zero(4), u8(0), u8(0), u8(1), u8(0), // no extra parameters
		zero(32), zero(4+1+4+1+24))
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
	b = put(b, u8(len(ids)))
	for _, id := range ids {
		b = put(b, id)
	}
	return b
}

// appendRegionHandshake is RegionHandshake:
//
//	RegionFlags U32, SimAccess U8 (13: general), SimName Variable 1, SimOwner UUID, IsEstateManager U8, WaterHeight, BillableFactor F32,
//	CacheID, TerrainBase0 … TerrainDetail3 UUID, 4 TerrainStartHeight, 4 TerrainHeightRange F32, RegionID UUID, CPUClassID, CPURatio S32,
//	ColoName, ProductSKU, ProductName Variable 1, count U8, RegionFlagsExtended, RegionProtocols U64
func appendRegionHandshake(b []byte, name string) []byte {
	return put(b, u32(0), u8(13), text1(name), zero(16), u8(0), f32(20), f32(1),
		zero(9*16), zero(8*4), objectUUID("region "+name), zero(8),
		text1(""), text1(""), text1("dnprelay"), u8(1), zero(16))
}

// appendRegionInfo is RegionInfo:
//
//	AgentID, SessionID UUID, SimName Variable 1, EstateID, ParentEstateID, RegionFlags U32, SimAccess, MaxAgents U8,
//	BillableFactor, ObjectBonusFactor, WaterHeight, TerrainRaiseLimit, TerrainLowerLimit F32, PricePerMeter, RedirectGridX, RedirectGridY S32,
//	UseEstateSun U8, SunHour F32, ProductSKU, ProductName Variable 1, MaxAgents32, HardMaxAgents, HardMaxObjects U32, 0 U8, 0 U8
func appendRegionInfo(b []byte, agent, session wire.UUID, name string) []byte {
	return put(b, agent, session, text1(name), u32(1), u32(1), u32(0), u8(13), u8(100),
		f32(1), f32(1), f32(20), f32(0), f32(0), zero(12),
		u8(0), f32(0), text1(""), text1("dnprelay"), u32(100), u32(100), u32(objectsHard), u8(0), u8(0))
}

// objectsHard is the number of objects that the region is said to hold.
const objectsHard = 15000

// appendMapBlock is MapBlockReply with this region:
//
//	AgentID UUID, Flags U32, count U8, X, Y U16, Name Variable 1, Access U8, RegionFlags U32, WaterHeight, Agents U8, MapImageID UUID
func appendMapBlock(b []byte, agent wire.UUID, flags uint32, name string) []byte {
	return put(b, agent, flags, u8(1), u16(regionGrid), u16(regionGrid), text1(name), u8(13), u32(0), u8(20), u8(0), zero(16))
}

// appendMovementComplete is AgentMovementComplete:
//
//	AgentID, SessionID UUID, Position, LookAt 3 F32, RegionHandle U64, Timestamp U32, ChannelVersion Variable 2
func appendMovementComplete(b []byte, agent, session wire.UUID, seconds uint32) []byte {
	return put(b, agent, session, f32(centre), f32(centre), f32(ground), f32(1), f32(0), f32(0), regionHandle, seconds, text2("dnprelay"))
}

// appendWearables is AgentWearablesUpdate of an agent without any:
//
//	AgentID, SessionID UUID, SerialNum U32, 0 U8
func appendWearables(b []byte, agent, session wire.UUID) []byte {
	return put(b, agent, session, u32(1), u8(0))
}

// appendAgentData is AgentDataUpdate:
//
//	AgentID UUID, FirstName, LastName, GroupTitle Variable 1, ActiveGroupID UUID, GroupPowers U64, GroupName Variable 1
func appendAgentData(b []byte, agent wire.UUID, first, last string) []byte {
	return put(b, agent, text1(first), text1(last), text1(""), zero(24), text1(""))
}

// A name is an entry of UUIDNameReply: ID UUID, FirstName, LastName Variable 1. A count U8 precedes them.
type name struct {
	id          wire.UUID
	first, last string
}

func appendNames(b []byte, names []name) []byte {
	b = put(b, u8(len(names)))
	for _, n := range names {
		b = put(b, n.id, text1(n.first), text1(n.last))
	}
	return b
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
	b = put(b, u8(len(players)))
	for _, p := range players {
		b = append(b, p.at[:]...)
	}
	b = put(b, u16(you), u16(0xFFFF), u8(len(players)))
	for _, p := range players {
		b = put(b, p.id)
	}
	return b
}

// appendChat is ChatFromSimulator:
//
//	FromName Variable 1, SourceID, OwnerID UUID, SourceType U8 (2: object), ChatType U8 (1: say), Audible U8 (1), Position 3 F32, Message Variable 2
func appendChat(b []byte, from, text string) []byte {
	return put(b, text1(from), objectUUID(from), zero(16), u8(2), u8(1), u8(1), f32(centre), f32(centre), f32(ground), text2(text))
}

// appendGeneric is GenericMessage:
//
//	AgentID, SessionID, TransactionID UUID, Method Variable 1, Invoice UUID, count U8, Parameter Variable 1 …
func appendGeneric(b []byte, agent, session wire.UUID, method string, parameters [][]byte) []byte {
	b = put(b, agent, session, zero(16), text1(method), zero(16), u8(len(parameters)))
	for _, p := range parameters {
		b = put(b, data1(p))
	}
	return b
}

// genericSize is the size of a GenericMessage without its parameters, each of which has a byte more than its data.
const genericSize = 16*4 + 1 + 1

// appendLogoutReply is LogoutReply:
//
//	AgentID, SessionID UUID, count U8, ItemID UUID (zero: no items)
func appendLogoutReply(b []byte, agent, session wire.UUID) []byte {
	return put(b, agent, session, u8(1), zero(16))
}

// appendKick is KickUser:
//
//	TargetIP 4 U8, TargetPort U16, AgentID, SessionID UUID, Reason Variable 2
func appendKick(b []byte, agent, session wire.UUID, reason string) []byte {
	return put(b, zero(6), agent, session, text2(reason))
}
