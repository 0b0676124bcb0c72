package nearby

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// precision is that of positions, with which those of bands are multiplied.
const precision = 0.1

// rotation is the index of the value that has the tick.
const rotation = 1

// valueTypes are those of a state of an object.
var valueTypes = []wire.ValueType{valueType("vector3f16"), valueType("quaternionf16")}

func valueType(name string) wire.ValueType {
	t, ok := wire.ParseValueType(name)
	if !ok {
		panic("nearby: no value type " + name)
	}
	return t
}

// tickOf returns the tick of which an encoded rotation is: the newest up to last that fits.
func tickOf(value []byte, last uint32) (n uint32, ok bool) {
	k := uint32(float16.Frombits(binary.LittleEndian.Uint16(value)).Float32())
	n = last - last%cycle + k
	if n <= last {
		return n, true
	}
	return n - cycle, n >= cycle
}

// interestName is the name of the interest that all objects have.
const interestName = "near"

// appendInterest appends the op that names the interest of objects.
func appendInterest(b []byte, l *Load) []byte {
	b = fmt.Appendf(b, `{"op":"interest","name":%q,"at":"pos","axes":"xz","bands":[`, interestName)
	for i, one := range l.Bands {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"within":%v`, one.Within)
		if one.Rate > 0 {
			b = fmt.Appendf(b, `,"rate":%v`, one.Rate)
		}
		if one.Precision > 0 {
			b = fmt.Appendf(b, `,"precision":%v`, one.Precision)
		}
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// Keys of states. That of an object has its number; that of a client has the number of the object that it is.
const (
	objectKey = "s"
	clientKey = "me"
)

// parseKey returns the number in a key.
func parseKey(key []byte) (n int, client, ok bool) {
	text, client := strings.CutPrefix(string(key), clientKey)
	if !client {
		text, ok = strings.CutPrefix(text, objectKey)
		if !ok {
			return 0, false, false
		}
	}
	n, err := strconv.Atoi(text)
	return n, client, err == nil
}

// appendPut appends the op that makes the state of an object, with an interest, or else without an audience.
func appendPut(b []byte, w *world, i int, seen bool) []byte {
	b = fmt.Appendf(b, `{"op":"put","key":"%s%d",`, objectKey, i)
	if seen {
		b = fmt.Appendf(b, `"interest":%q`, interestName)
	} else {
		b = append(b, `"audience":{"groups":["none"]}`...)
	}
	b = fmt.Appendf(b, `,"values":[{"name":"pos","type":"%s","precision":%v,"value":`, valueTypes[0], precision)
	b = appendPosition(b, w.at(w.tick, i))
	b = fmt.Appendf(b, `},{"name":"rot","type":"%s","value":`, valueTypes[rotation])
	return append(appendRotation(b, w, i), `}]}`...)
}

// appendSet appends the op that moves an object.
func appendSet(b []byte, w *world, i int) []byte {
	t, p := &w.texts.sets[i], w.at(w.tick, i)
	if len(t.text) == 0 || t.at != p {
		t.at = p
		t.text = strconv.AppendInt(append(t.text[:0], `{"op":"set","key":"`+objectKey...), int64(i), 10)
		t.text = append(appendPosition(append(t.text, `","values":{"0":`...), p), `,"1":`...)
	}
	return append(appendRotation(append(b, t.text...), w, i), `}}`...)
}

// Texts are parts of ops. To write them anew for each of 200,000 changes a second takes most of the time of the generator.
type texts struct {
	sets  []set
	turns [headings]string // the last three components of the rotation for each heading
}

// A set is the op that moves an object, up to its rotation. Few places change in a tick, because half floats are up to 1 apart.
type set struct {
	at   point
	text []byte
}

func newTexts(states int) texts {
	t := texts{sets: make([]set, states)}
	for i := range t.turns {
		sin, cos := math.Sincos(math.Pi * float64(i) / headings)
		b := strconv.AppendFloat(append([]byte(nil), ','), sin, 'f', 3, 32)
		b = strconv.AppendFloat(append(b, ',', '0', ','), cos, 'f', 3, 32)
		t.turns[i] = string(append(b, ']'))
	}
	return t
}

// appendPosition appends the half floats of a place, exactly, so that the relay reads the same.
func appendPosition(b []byte, p point) []byte {
	b = strconv.AppendFloat(append(b, '['), float64(p.x), 'f', -1, 32)
	b = strconv.AppendFloat(append(b, `,0,`...), float64(p.z), 'f', -1, 32)
	return append(b, ']')
}

func appendRotation(b []byte, w *world, i int) []byte {
	b = strconv.AppendUint(append(b, '['), uint64(w.tick%cycle), 10)
	return append(b, w.texts.turns[w.walkers[i].direction()]...)
}

// appendPlayer appends the ops for a client that joined: it sees from an object, and is told which one that is.
func appendPlayer(b []byte, client string, i int) []byte {
	b = fmt.Appendf(b, `{"op":"eye","client":%q,"at":"%s%d"},`, client, objectKey, i)
	return fmt.Appendf(b, `{"op":"put","key":"%s%d","audience":{"clients":[%q]},"values":[{"name":"n","type":"uint8","value":0}]}`, clientKey, i, client)
}
