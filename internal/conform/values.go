package conform

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/x448/float16"
)

// A sample is a value that the edge sends, and the components that the program of the client has to tell.
type sample struct {
	typ     wire.ValueType
	encoded []byte
	want    []string // of a string or data one: the text, or the bytes in hex
}

// samples returns a value of each of the 38 types. Each round has other values.
func samples(round int) (list []sample) {
	for t := range wire.ValueType(wire.ValueTypes) {
		list = append(list, newSample(t, round))
	}
	return list
}

func newSample(t wire.ValueType, round int) sample {
	s := sample{typ: t}
	switch t {
	case wire.TypeString:
		return s.variable(fmt.Sprintf("Adá %d", round), fmt.Sprintf("Adá %d", round))
	case wire.TypeData:
		b := string([]byte{byte(round), 0, 0xff})
		return s.variable(b, hex.EncodeToString([]byte(b)))
	}
	for c := range t.Components() {
		bits, text := component(t, 10*round+c+1, c%2 == 1)
		s.encoded = binary.LittleEndian.AppendUint64(s.encoded, bits)[:len(s.encoded)+t.Width()]
		s.want = append(s.want, text)
	}
	return s
}

func (s sample) variable(bytes, want string) sample {
	s.encoded = append(binary.LittleEndian.AppendUint16(nil, uint16(len(bytes))), bytes...)
	s.want = []string{want}
	return s
}

// component returns a number that the type expresses exactly: n at the far end of an integer's range,
// so that a client that reads it with the wrong sign or width is wrong, or n and a half.
func component(t wire.ValueType, n int, negative bool) (bits uint64, text string) {
	size := 8 * t.Width()
	switch t.Kind() {
	case wire.KindUint:
		bits = math.MaxUint64>>(64-size) - uint64(n)
		return bits, strconv.FormatUint(bits, 10)
	case wire.KindSint:
		v := int64(math.MinInt64)>>(64-size) + int64(n)
		if negative {
			v = math.MaxInt64>>(64-size) - int64(n)
		}
		return uint64(v), strconv.FormatInt(v, 10)
	}
	f := float64(n) + 0.5
	if negative {
		f = -f
	}
	text = strconv.FormatFloat(f, 'g', -1, 64)
	switch t.Width() {
	case 2:
		return uint64(float16.Fromfloat32(float32(f)).Bits()), text
	case 4:
		return uint64(math.Float32bits(float32(f))), text
	}
	return math.Float64bits(f), text
}

// check compares what the program tells of a state, KEY and a JSON array, with samples.
func check(told, key string, want []sample) error {
	text, ok := strings.CutPrefix(told, key+" ")
	var list []json.RawMessage
	if !ok || json.Unmarshal([]byte(text), &list) != nil {
		return fmt.Errorf("the client tells %q, want %q and a JSON array", clip(told), key)
	}
	if len(list) != len(want) {
		return fmt.Errorf("the client tells %d values of %q, want %d", len(list), key, len(want))
	}
	for i, raw := range list {
		got, err := components(raw)
		if err != nil || !equal(want[i], got) {
			return fmt.Errorf("value %d of %q, a %v, is %s at the client, want %s", i, key, want[i].typ, raw, strings.Join(want[i].want, ", "))
		}
	}
	return nil
}

// components returns the numbers or the text of a value. Integers may be strings of digits.
func components(raw json.RawMessage) (list []string, err error) {
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) != nil {
		many = []json.RawMessage{raw}
	}
	for _, one := range many {
		var text string
		if json.Unmarshal(one, &text) != nil {
			var n json.Number
			if err := json.Unmarshal(one, &n); err != nil {
				return nil, err
			}
			text = n.String()
		}
		list = append(list, text)
	}
	return list, nil
}

func equal(want sample, got []string) bool {
	if len(got) != len(want.want) {
		return false
	}
	for i := range got {
		if got[i] == want.want[i] {
			continue
		}
		a, err1 := strconv.ParseFloat(got[i], 64)
		b, err2 := strconv.ParseFloat(want.want[i], 64)
		if want.typ.Kind() != wire.KindFloat || err1 != nil || err2 != nil || a != b {
			return false
		}
	}
	return true
}

// linkState builds the offer of a state.
func linkState(id wire.LinkID, readOnly bool, message string, values []sample) func(wire.Seq) []byte {
	return func(n wire.Seq) []byte {
		b := wire.AppendLinkStateHead(nil, wire.LinkState{Seq: n, Link: id, ReadOnly: readOnly, Message: []byte(message)}, len(values))
		for _, v := range values {
			b = wire.AppendTypedValue(b, v.typ, v.encoded)
		}
		return b
	}
}

// offer offers a state and waits for LinkUp.
func (p *peer) offer(id wire.LinkID, readOnly bool, message string, values []sample) {
	types := make([]wire.ValueType, len(values))
	for i, v := range values {
		types[i] = v.typ
	}
	p.links[id] = types
	n := p.command(linkState(id, readOnly, message, values))
	p.acknowledged(n, fmt.Sprintf("the client acknowledges the offer of %q", message))
	p.wait(fmt.Sprintf("LinkUp for %q", message), func() bool { return p.ups[id] > 0 })
}

// update sends values of a link, from the first index on.
func (p *peer) update(id wire.LinkID, first int, values []sample) {
	b := profile.AppendUpdateLink(profile.AppendUpdateHead(nil, 1), id, len(values))
	for i, v := range values {
		b = profile.AppendUpdateValue(b, first+i, v.typ, v.encoded)
	}
	p.sendUpdate(b)
}

// converge waits until the client tells these values. LinkUpdates may get lost, so the edge repeats
// them.
func (p *peer) converge(key string, send func(), want []sample) {
	var err error
	for range convergeTries {
		send()
		p.say("tell %s", key)
		if err = check(p.reply("what the client tells of "+key), key, want); err == nil {
			return
		}
	}
	p.must(err)
}

const convergeTries = 5

func uint16s(list ...uint16) (values []sample) {
	t, _ := wire.ParseValueType("uint16")
	for _, n := range list {
		values = append(values, sample{t, binary.LittleEndian.AppendUint16(nil, n), []string{strconv.Itoa(int(n))}})
	}
	return values
}
