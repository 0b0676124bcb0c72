package payload

import (
	"strings"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// OpsMax bounds the ops of one payload before the limits of the store are asked,
// because an op takes more memory than its text.
const OpsMax = 65536

// Parse parses the body of a publish. subjectKey is the key that the subject
// named, or empty. The ops may share memory with each other, not with body.
//
// If the publish is not atomic, a bad op does not fail the others: it carries its
// error.
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
	if fields.has(fieldAtomic) {
		if p.out.Atomic, err = boolean("atomic", fields.nodes[fieldAtomic]); err != nil {
			return err
		}
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
	if op.HasAudience = f.has(fieldAudience); op.HasAudience {
		if op.Audience, err = parseAudience(f.nodes[fieldAudience]); err != nil {
			return err
		}
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
	if f.has(fieldJoin) {
		if op.Join, err = tokens("join", f.nodes[fieldJoin]); err != nil {
			return err
		}
	}
	if f.has(fieldLeave) {
		op.Leave, err = tokens("leave", f.nodes[fieldLeave])
	}
	return err
}

func (p *parser) kick(op *replication.Op, f *fields) *replication.Error {
	op.Kind = replication.OpKick
	if err := f.only("kick", fieldOp, fieldClient); err != nil {
		return err
	}
	return client(op, f)
}

// key takes the key from the op or the subject. Both must be the same.
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
