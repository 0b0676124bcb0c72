package view

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dnprelay/dnprelay/lludp/zerocode"
)

// zeros are n update records with 32 bytes of zeros each.
func zeros(n int) (records []byte) {
	for range n {
		records = Record{Ref: 7, Message: Update, Data: make([]byte, 33)}.Append(records)
	}
	return records
}

func TestZeroCodedBatch(t *testing.T) {
	for _, c := range []struct {
		why   string
		h     Header
		coded bool
		rec   []byte
	}{
		{"zeros shrink", Header{Epoch: 7, Seq: 9, Prev: 8}, true, zeros(3)},
		{"behind a trace and a part number", Header{Flags: FlagTrace | FlagReply | FlagLast, Epoch: 7, Trace: make([]byte, TraceSize), Part: 3}, true, zeros(3)},
		{"a checksum does not shrink", Header{Epoch: 7, Seq: 9, Prev: 8}, false, AppendChecksum(nil, 7, 0x01020304)},
		{"nothing does not shrink", Header{Flags: FlagReply, Epoch: 7}, false, nil},
		{"the largest batch", Header{Epoch: 7}, true, zeros((BatchMax - HeaderMax) / 37)},
	} {
		plain := append(c.h.Append(nil), c.rec...)
		if got := AppendBatch([]byte("x"), c.h, c.rec, false)[1:]; !bytes.Equal(got, plain) {
			t.Errorf("%s: without zero-coding %.60x, want %.60x", c.why, got, plain)
		}
		b := AppendBatch([]byte("x"), c.h, c.rec, true)[1:]
		h, _, err := Parse(b)
		if coded := h.Flags&FlagZeroCoded != 0; err != nil || coded != c.coded || coded != (len(b) < len(plain)) {
			t.Errorf("%s: %d bytes for %d, flags %x, %v", c.why, len(b), len(plain), h.Flags, err)
		}
		got, err := Plain(b)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: expands to %.60x, %v; want %.60x", c.why, got, err, plain)
		}
		if !c.coded && &got[0] != &b[0] {
			t.Errorf("%s: was copied, although it is plain", c.why)
		}
	}
}

// An expanded batch keeps to the bound of every batch, and nothing is allocated
// for one that does not.
func TestZeroCodedBomb(t *testing.T) {
	h := Header{Flags: FlagZeroCoded, Epoch: 7}
	head := len(h.Append(nil))
	most := zerocode.Append(h.Append(nil), make([]byte, BatchMax-head))
	if got, err := Plain(most); err != nil || len(got) != BatchMax || cap(got) > BatchMax+BatchMax/8 {
		t.Errorf("a batch of the largest size: %d bytes, capacity %d, %v", len(got), cap(got), err)
	}
	bomb := zerocode.Append(h.Append(nil), make([]byte, BatchMax-head+1))
	if n := testing.AllocsPerRun(10, func() {
		if _, err := Plain(bomb); !errors.Is(err, zerocode.ErrTooLong) {
			t.Errorf("one byte more: %v", err)
		}
	}); n != 0 {
		t.Errorf("a bomb costs %v allocations", n)
	}
	for n := range head {
		if _, err := Plain(most[:n]); n >= 2 && !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes of the header: %v", n, err)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add(AppendBatch(nil, Header{Epoch: 7, Seq: 9, Prev: 8}, zeros(3), true))
	f.Add(AppendBatch(nil, Header{Flags: FlagTrace | FlagReply, Trace: make([]byte, TraceSize)}, zeros(3), true))
	f.Add(append(Header{Flags: FlagZeroCoded}.Append(nil), make([]byte, 2000)...))
	f.Add(AppendAssign(Header{Epoch: 1}.Append(nil), Entity(1, 0), 1))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := Plain(p)
		if err != nil {
			return
		}
		h, records, err := Parse(got)
		if _, _, before := Parse(p); (before == nil) != (err == nil) {
			t.Fatalf("%x: parses with %v, plain with %v", p, before, err)
		}
		if err != nil {
			return
		}
		if h.Flags&FlagZeroCoded != 0 || len(got) > BatchMax || cap(got) > max(cap(p), BatchMax+BatchMax/8) {
			t.Fatalf("%x: flags %x, %d bytes, capacity %d", p, h.Flags, len(got), cap(got))
		}
		again, err := Plain(AppendBatch(nil, h, records, true))
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%x: coded and expanded %x, %v", got, again, err)
		}
	})
}
