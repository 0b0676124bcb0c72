package view

import "github.com/dnprelay/dnprelay/lludp/zerocode"

// AppendBatch appends a batch of these records to b. If zeroCode is set, the
// records are zero-coded when that makes them shorter, and the header says so.
func AppendBatch(b []byte, h Header, records []byte, zeroCode bool) []byte {
	start := len(b)
	if zeroCode {
		h.Flags |= FlagZeroCoded
		coded, ok := zerocode.AppendShorter(h.Append(b), records)
		if ok {
			return coded
		}
		b, h.Flags = coded[:start], h.Flags&^FlagZeroCoded
	}
	return append(h.Append(b), records...)
}

// Plain returns a batch whose records are not zero-coded: p itself if it is such
// a batch, else a new one. An expanded batch must keep to BatchMax like any other,
// which is checked before it is allocated; [zerocode.ErrTooLong] says that it does
// not.
func Plain(p []byte) ([]byte, error) {
	if len(p) < 2 || Flags(p[1])&FlagZeroCoded == 0 {
		return p, nil
	}
	h, records, err := Parse(p)
	if err != nil {
		return nil, err
	}
	head := len(p) - len(records)
	n, err := zerocode.Expanded(records, BatchMax-head)
	if err != nil {
		return nil, err
	}
	h.Flags &^= FlagZeroCoded
	return zerocode.AppendExpanded(h.Append(make([]byte, 0, head+n)), records, n)
}
