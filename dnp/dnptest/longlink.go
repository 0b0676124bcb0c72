package dnptest

import "github.com/dnprelay/dnprelay/dnp/wire"

// A longLink collects the parts of one LinkStateLong.
type longLink struct {
	open            bool
	link            wire.LinkID
	readOnly        bool
	message, values []byte
}

// handleLinkPart takes one part of a LinkStateLong. It reports false if the
// library raises.
func (c *Client) handleLinkPart(body []byte) bool {
	m, err := wire.ParseLinkStateLong(append([]byte{0, 0}, body...))
	if err != nil || c.b.LongLink == LongLinkSticks {
		return false
	}
	b := &c.recv.link
	last := wire.LinkStateLast
	if c.b.LongLink == LongLinkSingle {
		last = wire.LinkStateFirst // the flag of command 10: bit 2 means "last" there
	}
	if m.Flags&wire.LinkStateFirst != 0 {
		*b = longLink{open: true, link: m.Link, readOnly: m.Flags&wire.LinkStateReadOnly != 0}
	}
	if !b.open {
		return true
	}
	if len(b.message)+len(b.values) < longMax {
		b.message = append(b.message, m.Message...)
		b.values = append(b.values, m.Values...)
	}
	if m.Flags&last == 0 {
		return true
	}
	b.open = false
	values, err := wire.ParseValues(b.values)
	if err != nil {
		return false
	}
	return c.offered(wire.LinkState{Link: b.link, ReadOnly: b.readOnly, Message: b.message, Values: values})
}
