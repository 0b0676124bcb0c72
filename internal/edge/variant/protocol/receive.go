package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// elementsMax is the most elements of a message.
const elementsMax = 8

// A call is a message of the peer, taken apart.
type call struct {
	name string
	args [elementsMax]variant.Value // missing ones are Nil
	n    int
}

func parseCall(v variant.Value) (m call, ok bool) {
	if v.Type() != variant.Array || v.Len() < 1 || v.Len() > elementsMax+1 {
		return m, false
	}
	c := v.Elements()
	c.Next()
	name := c.Value()
	if name.Type() != variant.String && name.Type() != variant.StringName {
		return m, false
	}
	for m.name = name.Text(); c.Next(); m.n++ {
		m.args[m.n] = c.Value()
	}
	return m, true
}

// wants reports whether the first arguments have these types. Further ones are for later versions.
func (m *call) wants(types ...variant.Type) bool {
	for i, t := range types {
		if m.args[i].Type() != t {
			return false
		}
	}
	return true
}

// handle does what a message of the peer says. ErrBusy means that the message has to be handled later, and nothing happened.
func (c *Core) handle(now time.Time, v variant.Value) error {
	if c.phase == ended || c.phase != fresh && v.Type() == variant.Nil {
		return nil
	}
	m, ok := parseCall(v)
	switch {
	case !ok:
		c.malformed("a message is an Array whose first element is a String")
		return nil
	case m.name == "bye":
		c.End(Gone, "")
		return nil
	case c.phase == fresh && m.name != "hello":
		c.malformed("the first message is hello")
		return nil
	case c.phase == joining:
		c.counts.Drops[DropBusy]++
		return ErrBusy
	}
	err := c.dispatch(now, &m)
	switch {
	case errors.Is(err, ErrBusy):
		c.counts.Drops[DropBusy]++
		return ErrBusy
	case err != nil:
		c.malformed(err.Error())
		return nil
	}
	c.counts.In++
	return nil
}

func (c *Core) malformed(text string) { c.End(Malformed, text) }

// dispatch calls the method for a message. An error but ErrBusy ends the connection.
func (c *Core) dispatch(now time.Time, m *call) error {
	switch m.name {
	case "hello":
		return c.onHello(m)
	case "set":
		return c.onSet(now, m)
	case "msg":
		return c.onMessage(m)
	case "offer":
		return c.onOffer(now, m)
	case "unlink":
		return c.onUnlink(m)
	case "part":
		return c.onPart(now, m)
	}
	return fmt.Errorf("there is no message %.20q", m.name)
}

func (c *Core) onHello(m *call) error {
	if c.phase != fresh || !m.wants(variant.Dictionary) {
		return errors.New("hello comes once and has a Dictionary")
	}
	h, version := Hello{}, int64(0)
	for e := m.args[0].Elements(); e.Next(); {
		v := e.Value()
		switch key, t := e.Key().Text(), v.Type(); {
		case key == "version" && t == variant.Int:
			version = v.Integer(0)
		case key == "token" && t == variant.String:
			h.Token = v.Text()
		case key == "token" && t == variant.PackedByteArray:
			h.Login = append([]byte(nil), v.Bytes()...)
		case key == "indices" && t == variant.Bool:
			c.indices = v.Bool()
		case key == "version", key == "token" && t != variant.Nil, key == "indices":
			return fmt.Errorf("hello: %s is %v", key, t)
		}
	}
	switch {
	case version != ProtocolVersion:
		c.End(Version, fmt.Sprintf("this edge speaks version %d", ProtocolVersion))
		return nil
	case len(h.Token) > LoginMax || len(h.Login) > LoginMax:
		return errors.New("hello: the token is too long")
	}
	c.phase = joining
	c.cfg.Client.Hello(h)
	return nil
}

// onSet sets values. Those that do not fit are refused one by one, because a newer client may know better what others are.
func (c *Core) onSet(now time.Time, m *call) error {
	if !m.wants(variant.Int, variant.Dictionary) {
		return errors.New("set has an id and a Dictionary")
	}
	e := c.entries[m.args[0].Integer(0)]
	if e == nil { // the state may have ended
		c.counts.Drops[DropUnknownState]++
		return nil
	}
	for v := m.args[1].Elements(); v.Next(); {
		i, err := e.find(v.Key())
		if err == nil {
			err = c.set(e, i, v.Value())
		}
		if err != nil {
			c.refuse(now, e.id, v.Key(), err.Error())
			if i >= 0 {
				c.change(now, e, i) // the peer learns what the value is
			}
		}
	}
	return nil
}

// find returns the index of the value with a name or an index, less than 0 if there is none.
func (e *entry) find(key variant.Value) (int, error) {
	switch key.Type() {
	case variant.Int:
		if i := key.Integer(0); i >= 0 && i < int64(e.state.Len()) {
			return int(i), nil
		}
		return -1, fmt.Errorf("the state has %d values", e.state.Len())
	case variant.String, variant.StringName:
		if i, ok := e.state.Index(key.Text()); ok {
			return i, nil
		}
		return -1, errors.New("the state has no value of this name")
	}
	return -1, fmt.Errorf("a value is named by a String or an int, not %v", key.Type())
}

func (c *Core) set(e *entry, i int, v variant.Value) error {
	if e.state.ReadOnly() {
		return errors.New("the state is read-only")
	}
	enc, err := c.parseValue(e.state.Type(i), v)
	if err != nil {
		return err
	}
	return e.state.Set(i, enc)
}

// parseValue returns the wire bytes of a value. They are valid until the next call.
func (c *Core) parseValue(t wire.ValueType, v variant.Value) ([]byte, error) {
	enc, null, err := payload.AppendVariant(c.enc[:0], t, v)
	switch {
	case err != nil:
		return nil, errors.New(err.Message)
	case null:
		return nil, fmt.Errorf("want %v, got null", t)
	case t.Variable() && len(enc) > 2+ValueMax:
		return nil, fmt.Errorf("%d bytes of %v, at most %d", len(enc)-2, t, ValueMax)
	}
	c.enc = enc
	return enc, nil
}

// refuse tells the peer why a value, or a state, was not taken. It is for the person who wrote the client, so not every case has
// to be told.
func (c *Core) refuse(now time.Time, id int64, key variant.Value, text string) {
	c.counts.Drops[DropRefused]++
	if c.refusals.wait(now) > 0 {
		return
	}
	c.refusals.take(1)
	m := c.begin("refused")
	m.Int(id)
	switch key.Type() {
	case variant.Int:
		m.Int(key.Integer(0))
	case variant.String, variant.StringName:
		m.String(payload.VariantText(key.Text()))
	default:
		m.Nil()
	}
	m.String(payload.VariantText(text))
	c.unreliable(&m, 4)
}

func (c *Core) onMessage(m *call) error {
	var data []byte
	switch m.args[0].Type() {
	case variant.PackedByteArray, variant.String:
		data = m.args[0].Bytes()
	default:
		return errors.New("msg has a PackedByteArray or a String")
	}
	if len(data) == 0 || len(data) > MessageMax {
		return fmt.Errorf("msg has %d bytes, want 1 to %d", len(data), MessageMax)
	}
	reliable := true
	if m.n > 1 {
		if m.args[1].Type() != variant.Bool {
			return errors.New("the third element of msg is a bool")
		}
		reliable = m.args[1].Bool()
	}
	if err := c.cfg.Client.Send(data, reliable); errors.Is(err, ErrBusy) && reliable {
		return err
	}
	return nil // without a connection the peer hears of its end
}

func (c *Core) onOffer(now time.Time, m *call) error {
	if !m.wants(variant.Int, variant.String, variant.Array) || m.args[0].Integer(0) >= 0 {
		return errors.New("offer has an id below 0, a String and an Array")
	}
	id := m.args[0].Integer(0)
	if c.entries[id] != nil {
		return fmt.Errorf("offer: there is a state %d", id)
	}
	err := errors.New("too many states")
	if c.offered < OfferedMax {
		err = c.offer(id, m.args[1].Text(), m.args[2])
	}
	if err != nil {
		c.refuse(now, id, variant.Value{}, err.Error())
		c.order.push(&item{kind: itemUnlink, id: id})
	}
	return nil
}

func (c *Core) offer(id int64, text string, list variant.Value) error {
	if n := list.Len(); n < 1 || n > OfferedValuesMax {
		return fmt.Errorf("a state has 1 to %d values, not %d", OfferedValuesMax, n)
	}
	fields := make([]Field, 0, list.Len())
	for v := list.Elements(); v.Next(); {
		f, err := c.parseField(v.Value())
		if err != nil {
			return fmt.Errorf("value %d: %w", len(fields), err)
		}
		fields = append(fields, f)
	}
	s, err := c.cfg.Client.Offer(id, text, fields)
	if err != nil {
		return err
	}
	c.entries[id] = newEntry(id, s, true)
	c.offered++
	return nil
}

// parseField parses the name, the type and maybe the value of a value.
func (c *Core) parseField(v variant.Value) (f Field, err error) {
	m, ok := parseCall(v)
	if !ok || !m.wants(variant.String) {
		return f, errors.New("want [name, type, value]")
	}
	f.Name = m.name
	if f.Type, ok = wire.ParseValueType(m.args[0].Text()); !ok {
		return f, fmt.Errorf("there is no type %.20q", m.args[0].Text())
	}
	if m.args[1].IsNull() {
		f.Value = f.Type.Zero()
		return f, nil
	}
	enc, err := c.parseValue(f.Type, m.args[1])
	f.Value = append([]byte(nil), enc...)
	return f, err
}

func (c *Core) onUnlink(m *call) error {
	if !m.wants(variant.Int) {
		return errors.New("unlink has an id")
	}
	id := m.args[0].Integer(0)
	if e := c.entries[id]; e != nil && e.mine {
		c.cfg.Client.Withdraw(id)
		c.forget(e)
	}
	return nil
}

// onPart collects a long message.
func (c *Core) onPart(now time.Time, m *call) error {
	if !m.wants(variant.PackedByteArray, variant.Bool) {
		return errors.New("part has a PackedByteArray and a bool")
	}
	p := m.args[0].Bytes()
	if len(c.parts) == 0 {
		c.partsFrom = now
	}
	switch {
	case len(c.parts)+len(p) > partsMax:
		return fmt.Errorf("parts of more than %d bytes", partsMax)
	case now.Sub(c.partsFrom) > partTime+time.Duration(len(c.parts)/partRate)*time.Second:
		return errors.New("the parts of a message come too slowly")
	case !m.args[1].Bool():
		c.parts = append(c.parts, p...)
		return nil
	}
	v, err := variant.Decode(c.cfg.Dialect, append(c.parts, p...)) // the parts remain if the message has to come again
	if err != nil {
		return fmt.Errorf("a message in parts: %w", err)
	}
	inner, ok := parseCall(v)
	if !ok || inner.name == "part" || inner.name == "hello" {
		return errors.New("a message in parts is no message")
	}
	if inner.name == "bye" {
		c.End(Gone, "")
		return nil
	}
	if err := c.dispatch(now, &inner); err != nil {
		return err
	}
	c.parts = nil
	return nil
}

// partsMax is the most bytes of a message in parts: those of the longest message, and room for its Array.
const partsMax = MessageMax + 1024
