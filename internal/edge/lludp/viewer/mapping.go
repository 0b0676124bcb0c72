package viewer

import (
	"crypto/md5"
	"math"
	"strings"

	dnp "github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// This file is how a state is shown in a region:
//
//	DNP                                   LLUDP
//	x, y (up), z, right-handed, metres    x + 128, 128 - z, y + 25: z is up, a region has no negative coordinates
//	quaternion x, y, z, w                 x, -z, y, w; in the full form without w, which is positive then
//	value named pos or position,          the position of the object
//	  else the first vector3
//	value named rot or rotation,          its rotation
//	  else the first quaternion
//	key                                   the UUID of the object, version 3 (of a name), without a name space
//	link                                  its local id, a number that counts up and is not used again
//	key and the other values              the text over the object, up to 254 bytes
//	state without a position              GenericMessage dnp.state, and dnp.gone
//	read-write                            the object may be moved
//
// A position beyond the region is shown at its border, and one that is no number in the middle.
const (
	centre     = 128 // of a region, metres
	ground     = 25  // the height of y = 0: 5 m above the water
	edgeMax    = 255.99
	heightMax  = 4096
	regionX    = 256000 // of the region in the grid, metres
	regionY    = 256000
	regionGrid = regionX / 256
)

// regionHandle is how messages name the region.
const regionHandle = uint64(regionX)<<32 | regionY

// toRegion returns a position in the region.
func toRegion(p [4]float64) (r [3]float32) {
	return [3]float32{
		within(p[0]+centre, edgeMax, centre), within(centre-p[2], edgeMax, centre), within(p[1]+ground, heightMax, ground),
	}
}

// fromRegion returns the position that the viewer means.
func fromRegion(r [3]float32) []float64 {
	return []float64{float64(r[0]) - centre, float64(r[2]) - ground, centre - float64(r[1])}
}

func within(v, highest, otherwise float64) float32 {
	if math.IsNaN(v) {
		v = otherwise
	}
	return float32(min(max(v, 0), highest))
}

// toRotation returns a rotation as viewers take it, of length 1, with w not negative. What is no rotation is none.
func toRotation(q [4]float64) [4]float32 {
	length := math.Sqrt(q[0]*q[0] + q[1]*q[1] + q[2]*q[2] + q[3]*q[3])
	if math.IsNaN(length) || math.IsInf(length, 0) || length < 1e-6 {
		return [4]float32{0, 0, 0, 1}
	}
	if q[3] < 0 {
		length = -length
	}
	return [4]float32{float32(q[0] / length), float32(-q[2] / length), float32(q[1] / length), float32(q[3] / length)}
}

// fromRotation returns the rotation that the viewer means by the first three components.
func fromRotation(r [3]float32) []float64 {
	x, y, z := float64(r[0]), float64(r[1]), float64(r[2])
	w := math.Sqrt(max(0, 1-x*x-y*y-z*z))
	return []float64{x, z, 0 - y, w}
}

// objectUUID returns the UUID of the object with a key.
func objectUUID(key string) wire.UUID {
	id := md5.Sum([]byte(key))
	id[6] = id[6]&0x0F | 0x30
	id[8] = id[8]&0x3F | 0x80
	return id
}

// roles finds which values of a state are its position and its rotation; -1 is none.
func roles(s State) (position, rotation int) {
	return role(s, 3, "pos", "position"), role(s, 4, "rot", "rotation")
}

func role(s State, components int, names ...string) int {
	first := -1
	for i := range s.Len() {
		if t := s.Type(i); t.Variable() || t.Components() != components || t.Kind() != dnp.KindFloat {
			continue
		}
		for _, name := range names {
			if s.Name(i) == name {
				return i
			}
		}
		if first < 0 {
			first = i
		}
	}
	return first
}

// labelMax is the most bytes of the text over an object: its length is a byte, and a zero ends it.
const labelMax = 254

// label returns the text over an object.
func label(o *Object) string {
	b := append(make([]byte, 0, labelMax), o.state.Key()...)
	for i := range o.state.Len() {
		if len(b) >= labelMax {
			break
		}
		if i != o.position && i != o.rotation {
			b = appendValue(append(b, '\n'), o.state, i)
		}
	}
	return clip(string(b), labelMax)
}

// appendValue appends "name=value", or the value if it has no name.
func appendValue(b []byte, s State, i int) []byte {
	if name := s.Name(i); name != "" {
		b = append(append(b, name...), '=')
	}
	return append(b, s.Text(i)...)
}

// clip shortens a text to a number of bytes, at the end of a character.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xC0 == 0x80 {
		most--
	}
	return s[:most]
}

// ground coordinates of CoarseLocationUpdate: metres in a byte, the height in steps of 4 m.
func coarse(p [3]float32) [3]byte {
	return [3]byte{byte(p[0]), byte(p[1]), byte(min(p[2]/4, 255))}
}

// isPlayer reports whether a state stands for a player, who is on the map: that of a viewer, or one that a game names so.
func isPlayer(key string) bool {
	return strings.HasPrefix(key, OwnKey) || strings.HasPrefix(key, "player")
}

// OwnKey begins the link message of a viewer's own state. The name of its agent follows.
const OwnKey = "viewer "
