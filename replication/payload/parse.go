package payload

import (
	"strings"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// OpsMax bounds the ops of one payload before the store checks its own limit, because an op
// takes more memory than its text.
const OpsMax = 65536

// Parse parses the body of a publish. subjectKey is the key in the subject, or empty. The ops
// may share memory with each other but not with body.
//
// In a publish that is not atomic, a bad op carries its error and the other ops stay valid.
func (f Form) Parse(body []byte, subjectKey string) (replication.Publish, *replication.Error) {
	p := parser{subjectKey: subjectKey}
	n, err := f.root(body)
	if err != nil {
		return replication.Publish{}, err
	}
	if err := p.publish(n); err != nil {
		return replication.Publish{}, err
	}
	return p.out, nil
}

type parser struct {
	subjectKey string
	out        replication.Publish
}

func (p *parser) publish(n node) *replication.Error {
	p.out.Atomic = true
	fields, err := parseFields(n, "the payload")
	if err != nil {
		return err
	}
	if !fields.has(fieldOps) {
		if fields.has(fieldAtomic) {
			return badRequest(`"atomic" belongs beside "ops"`)
		}
		p.out.Ops = make([]replication.Op, 1)
		return p.op(&p.out.Ops[0], &fields)
	}
	if err := fields.only("a list of ops", fieldOps, fieldAtomic); err != nil {
		return err
	}
	if _, err := optional(&fields, fieldAtomic, &p.out.Atomic, boolean); err != nil {
		return err
	}
	return p.ops(fields.nodes[fieldOps])
}

func (p *parser) ops(n node) *replication.Error {
	if n.kind() != kindArray {
		return wantField("ops", kindArray, n)
	}
	l := n.list()
	if !l.some() {
		return badRequest(`"ops" is empty`)
	}
	for l.some() {
		i := len(p.out.Ops)
		if i >= OpsMax {
			return replication.Errorf(replication.CodeTooLarge, "more than %d ops", OpsMax)
		}
		p.out.Ops = append(p.out.Ops, replication.Op{})
		op := &p.out.Ops[i]
		err := p.oneOf(op, l.element())
		if err == nil {
			continue
		}
		err.Op = i
		if p.out.Atomic {
			return err
		}
		*op = replication.Op{Err: err}
	}
	return nil
}

func (p *parser) oneOf(op *replication.Op, n node) *replication.Error {
	fields, err := parseFields(n, "an op")
	if err != nil {
		return err
	}
	return p.op(op, &fields)
}

// op dispatches on the name of the op.
func (p *parser) op(op *replication.Op, f *fields) *replication.Error {
	if !f.has(fieldOp) {
		return badRequest(`an op needs "op"`)
	}
	name, err := text("op", f.nodes[fieldOp])
	if err != nil {
		return err
	}
	switch name {
	case "put":
		return p.put(op, f)
	case "set":
		return p.set(op, f)
	case "remove":
		return p.remove(op, f)
	case "audience":
		return p.audience(op, f)
	case "group":
		return p.group(op, f)
	case "kick":
		return p.kick(op, f)
	case "clear":
		op.Kind = replication.OpClear
		return f.only("clear", fieldOp)
	}
	return badRequest("unknown op %q: want put, set, remove, audience, group, kick or clear", clip(name))
}

func (p *parser) remove(op *replication.Op, f *fields) *replication.Error {
	op.Kind = replication.OpRemove
	if err := f.only("remove", fieldOp, fieldKey); err != nil {
		return err
	}
	return p.key(op, f)
}

func (p *parser) audience(op *replication.Op, f *fields) (err *replication.Error) {
	op.Kind = replication.OpAudience
	if err = f.only("audience", fieldOp, fieldKey, fieldAudience, fieldLod); err != nil {
		return err
	}
	if err = p.key(op, f); err != nil {
		return err
	}
	if !f.has(fieldAudience) && !f.has(fieldLod) {
		return badRequest(`audience needs "audience" or "lod"`)
	}
	if op.HasAudience, err = optional(f, fieldAudience, &op.Audience, parseAudience); err != nil {
		return err
	}
	return lod(op, f)
}

func (p *parser) group(op *replication.Op, f *fields) (err *replication.Error) {
	op.Kind = replication.OpGroup
	if err = f.only("group", fieldOp, fieldClient, fieldJoin, fieldLeave); err != nil {
		return err
	}
	if err = client(op, f); err != nil {
		return err
	}
	if _, err = optional(f, fieldJoin, &op.Join, tokens); err != nil {
		return err
	}
	_, err = optional(f, fieldLeave, &op.Leave, tokens)
	return err
}

func (p *parser) kick(op *replication.Op, f *fields) *replication.Error {
	op.Kind = replication.OpKick
	if err := f.only("kick", fieldOp, fieldClient); err != nil {
		return err
	}
	return client(op, f)
}

// key takes the key from the op or the subject. If both have one, they must be equal.
func (p *parser) key(op *replication.Op, f *fields) *replication.Error {
	op.Key = p.subjectKey
	if !f.has(fieldKey) {
		if op.Key == "" {
			return badRequest(`an op needs "key", unless the subject has it`)
		}
		return nil
	}
	key, err := text("key", f.nodes[fieldKey])
	if err != nil {
		return err
	}
	if !subject.ValidKey(key) {
		return badRequest("key %q: want 1 to %d names of [A-Za-z0-9_-]{1,%d} joined by dots", clip(key), subject.KeyTokensMax, subject.TokenMax)
	}
	if op.Key != "" && op.Key != key {
		return badRequest("key %q is not the key %q of the subject", clip(key), op.Key)
	}
	op.Key = strings.Clone(key)
	return nil
}

func client(op *replication.Op, f *fields) (err *replication.Error) {
	if !f.has(fieldClient) {
		return badRequest(`the op needs "client"`)
	}
	op.Client, err = token("client", f.nodes[fieldClient])
	return err
}

// A GetRequest asks for the states of a space.
type GetRequest struct {
	After string // continue behind this key; empty for the beginning
	Max   int    // most states; 0 for as many as fit
}

// ParseGet parses the body of a get request, which may be empty.
func (f Form) ParseGet(body []byte) (r GetRequest, err *replication.Error) {
	if len(body) == 0 {
		return r, nil
	}
	n, err := f.root(body)
	if err != nil {
		return r, err
	}
	fields, err := parseOnly(n, "the request", fieldAfter, fieldMax)
	if err != nil {
		return r, err
	}
	if _, err = optional(&fields, fieldAfter, &r.After, text); err != nil {
		return r, err
	}
	if r.After != "" && !subject.ValidKey(r.After) {
		return r, badRequest("field \"after\": %q is not a key", clip(r.After))
	}
	_, err = optional(&fields, fieldMax, &r.Max, parseMax)
	return r, err
}

func parseMax(name string, n node) (int, *replication.Error) {
	if n.kind() != kindNumber {
		return 0, wantField(name, kindNumber, n)
	}
	enc, err := n.appendValue(nil, typeUint16)
	if err != nil {
		return 0, within(`field "max"`, err)
	}
	return int(enc[0]) | int(enc[1])<<8, nil
}
