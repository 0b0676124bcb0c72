package replication

import (
	"hash/crc32"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// An assembly puts one state together from its records: DescribeParts and
// Describe, then the keyframe of every view in order. Until it is whole nobody
// sees it.
type assembly struct {
	number uint64
	parts  []byte // of the Describe
	desc   *Description
	sum    uint32 // CRC-32 of the Describe
	schema *schema
	values *netstate.State
	nulls  netstate.Mask
	next   int // view
}

// part takes a DescribePart.
func (a *assembly) part(data []byte) error {
	if len(a.parts)+len(data) > describeMax {
		return errMessage
	}
	a.parts = append(a.parts, data...)
	return nil
}

// describe takes the Describe. The schema is held until release.
func (a *assembly) describe(c *schemas, data []byte) error {
	if len(a.parts) > 0 {
		data = append(a.parts, data...)
		a.parts = nil
	}
	desc, err := parseDescribe(data)
	if err != nil {
		return err
	}
	a.release(c)
	a.sum = crc32.ChecksumIEEE(data)
	a.schema = c.acquire(desc.Values, desc.ValueMax)
	desc.Values = a.schema.defs
	a.desc, a.next = desc, 0
	a.values, a.nulls = a.schema.values()
	return nil
}

// keyframe takes the keyframe of a view.
func (a *assembly) keyframe(n int, data []byte) error {
	if a.schema == nil || n != a.next || a.whole() {
		return errMessage
	}
	r := a.schema.ranges[n]
	if !view.CheckKeyframe(data, a.schema.fields, r) {
		return errMessage
	}
	k := view.ReadKeyframe(data, a.schema.fields, r)
	for {
		i, value, null, ok := k.Next()
		if !ok {
			break
		}
		if !null && a.schema.tooLong(i, value) {
			return errMessage
		}
		if !null {
			a.values.Set(i, value)
			if len(a.nulls) > 0 {
				a.nulls.Clear(i)
			}
		}
	}
	a.next++
	return nil
}

// whole reports whether the state is complete.
func (a *assembly) whole() bool { return a.schema != nil && a.next == len(a.schema.ranges) }

// release gives the schema back.
func (a *assembly) release(c *schemas) {
	if a.schema != nil {
		c.release(a.schema)
		a.schema = nil
	}
}
