package viewer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	dnp "github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A CallKind says what a DNP client has to do.
type CallKind uint8

const (
	Set   CallKind = iota + 1 // set value Index of the state of Object to Value, and call Written
	Send                      // send the message Data
	Own                       // set the values of the viewer's own state, and offer it if that was not done
	Leave                     // end the session
)

// A Call is what the viewer wants from the DNP client. Slices are the receiver's.
type Call struct {
	Kind   CallKind
	Object *Object
	Index  int
	Value  any // for client.State.SetAt
	Data   []byte
	Agent  Agent
}

// An Agent is what a viewer tells of itself: where its camera is, how its body is turned, and which keys are held.
type Agent struct {
	Position []float64 // x, y, z as DNP clients take it
	Rotation []float64
	Keys     uint32 // ControlFlags
}

// callsMax bounds the calls that wait. A datagram has at most 255 blocks.
const callsMax = 512

func (v *Viewer) call(c Call) {
	if len(v.calls) >= callsMax && c.Kind != Leave {
		v.drop(DropCalls)
		return
	}
	v.calls = append(v.calls, c)
}

// Calls returns the calls since the last time.
func (v *Viewer) Calls() []Call {
	list := v.calls
	v.calls = nil
	return list
}

// Called reports whether there are calls.
func (v *Viewer) Called() bool { return len(v.calls) > 0 }

// own is the state of the viewer itself.
type own struct {
	told bool
	last agent
}

// act takes AgentUpdate, which viewers repeat all the time.
func (v *Viewer) act(r reader) error {
	a, err := parseAgent(r)
	if err != nil || v.own.told && a == v.own.last {
		return err
	}
	v.own = own{true, a}
	v.call(Call{Kind: Own, Agent: Agent{Position: fromRegion(a.camera), Rotation: fromRotation(a.body), Keys: a.keys}})
	return nil
}

// chat takes what the viewer says: a message to the game server.
func (v *Viewer) chat(r reader) error {
	message, kind, channel, err := parseChat(r)
	if err != nil {
		return err
	}
	if kind != chatWhisper && kind != chatSay && kind != chatShout || channel != 0 || message == "" {
		return nil // it tells that somebody types, or speaks to scripts
	}
	v.stats.Said++
	v.call(Call{Kind: Send, Data: []byte(message)})
	return nil
}

// write takes MultipleObjectUpdate. The viewer has moved the objects already, so it gets the truth in any case.
func (v *Viewer) write(r reader) (err error) {
	v.moves, err = parseMoves(v.moves[:0], r)
	if err != nil {
		return err
	}
	for _, m := range v.moves {
		o := v.scene.objects[m.id]
		if o == nil {
			v.drop(DropReadOnly)
			continue
		}
		moved := v.set(o, o.position, m.kind&moveTo != 0, fromRegion(m.position))
		turned := v.set(o, o.rotation, m.kind&moveTurn != 0, fromRotation(m.rotation))
		if !moved && !turned {
			v.Written(o)
		}
	}
	return nil
}

// set has a value set, and reports whether it may be.
func (v *Viewer) set(o *Object, index int, wanted bool, value any) bool {
	switch {
	case !wanted:
	case index < 0 || o.state.ReadOnly():
		v.drop(DropReadOnly)
	default:
		v.stats.Writes++
		v.call(Call{Kind: Set, Object: o, Index: index, Value: value})
		return true
	}
	return false
}

// Written has the viewer told what a state is after a Set, done or not: the edge does not send a value back to its writer.
func (v *Viewer) Written(o *Object) {
	if !o.gone {
		o.moved, o.turns = true, true
		o.version++
		o.textAt = o.version
		v.scene.full.push(o)
	}
}

// repair takes RequestMultipleObjects: objects of which the viewer got a move and does not know them.
func (v *Viewer) repair(r reader) (err error) {
	v.ids, err = parseRequested(v.ids[:0], r)
	if err != nil {
		return err
	}
	for _, id := range v.ids {
		v.stats.Asked++
		if o := v.scene.objects[id]; o != nil {
			v.Written(o)
		} else if len(v.scene.killed) < killsIn {
			v.scene.killed = append(v.scene.killed, id)
		}
	}
	return nil
}

// Methods of GenericMessage, for what has no form in LLUDP:
//
//	dnp.state    id, key, name=value …     a state without a position, to the viewer, when it comes and when it changes
//	dnp.gone     id                        its end
//	dnp.message  number part parts, bytes  a message to the viewer that is no text, or a long one; up to 16 parameters of bytes
//	dnp.message  bytes …                   a message of the viewer: the parameters, one after the other
//	dnp.set      key, name or index, value the viewer sets a value of a state
const (
	methodState   = "dnp.state"
	methodGone    = "dnp.gone"
	methodMessage = "dnp.message"
	methodSet     = "dnp.set"
)

// Bounds of messages to the viewer.
const (
	textMax    = 1023 // bytes of a chat line
	messageMax = 64 << 10
	chunk      = 250 // bytes of a parameter
	chunks     = 4   // in a message
)

// Say tells the viewer a message of the game: as chat if it is a text, else as parts.
func (v *Viewer) Say(data []byte) {
	if v.stage >= leaving {
		v.drop(DropStage)
		return
	}
	if s := string(data); len(s) <= textMax && utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		v.post(wire.ChatFromSimulator, appendChat(nil, v.cfg.Region, s), true)
		return
	}
	if len(data) > messageMax {
		v.drop(DropLong)
		return
	}
	number, parts := v.nextToken(), (len(data)+chunk*chunks-1)/(chunk*chunks)
	for part := range parts {
		list := [][]byte{fmt.Appendf(nil, "%d %d %d", number, part, parts)}
		for i := 0; i < chunks && len(data) > 0; i++ {
			n := min(len(data), chunk)
			list, data = append(list, data[:n]), data[n:]
		}
		v.post(wire.GenericMessage, appendGeneric(nil, v.cfg.Opening.Agent, v.cfg.Opening.Session, methodMessage, list), true)
	}
}

// describe returns the parameters of dnp.state, as many as fit.
func describe(o *Object) [][]byte {
	list := [][]byte{strconv.AppendUint(nil, uint64(o.id), 10), []byte(clip(o.state.Key(), 255))}
	size := genericSize + len(methodState) + 1 + len(list[0]) + len(list[1]) + 2
	for i := range min(o.state.Len(), 253) {
		p := []byte(clip(string(appendValue(nil, o.state, i)), 255))
		if size += len(p) + 1; size > bodyMax {
			break
		}
		list = append(list, p)
	}
	return list
}

// generic takes GenericMessage.
func (v *Viewer) generic(r reader) error {
	method, parameters, err := parseGeneric(r)
	if err != nil {
		return err
	}
	switch {
	case method == methodMessage && len(parameters) > 0:
		var data []byte
		for _, p := range parameters {
			data = append(data, p...)
		}
		if len(data) > 0 {
			v.stats.Said++
			v.call(Call{Kind: Send, Data: data})
		}
	case method == methodSet && len(parameters) == 3:
		v.setNamed(text(parameters[0]), text(parameters[1]), parameters[2])
	default:
		v.drop(DropUnknown)
	}
	return nil
}

// setNamed sets a value that has no form in LLUDP.
func (v *Viewer) setNamed(key, name string, value []byte) {
	for _, o := range v.scene.all {
		if o.gone || o.state.Key() != key {
			continue
		}
		i, ok := index(o.state, name)
		if !ok {
			break
		}
		parsed, ok := parseValue(o.state.Type(i), value)
		if !ok {
			break
		}
		v.set(o, i, true, parsed)
		return
	}
	v.drop(DropReadOnly)
}

func index(s State, name string) (i int, ok bool) {
	for i := range s.Len() {
		if s.Name(i) == name && name != "" {
			return i, true
		}
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0 && n < s.Len()
}

// parseValue reads a value: a number, several between spaces, a text, or bytes.
func parseValue(t dnp.ValueType, p []byte) (value any, ok bool) {
	switch {
	case t == dnp.TypeString:
		return text(p), true
	case t.Variable():
		return append([]byte(nil), p...), true
	}
	fields := strings.Fields(strings.Trim(text(p), "[]"))
	if len(fields) != t.Components() {
		return nil, false
	}
	if t.Components() == 1 && t.Kind() != dnp.KindFloat {
		if t.Kind() == dnp.KindUint {
			n, err := strconv.ParseUint(fields[0], 10, 64)
			return n, err == nil
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		return n, err == nil
	}
	list := make([]float64, len(fields))
	for i, f := range fields {
		var err error
		if list[i], err = strconv.ParseFloat(f, 64); err != nil {
			return nil, false
		}
	}
	if len(list) == 1 {
		return list[0], true
	}
	return list, true
}
