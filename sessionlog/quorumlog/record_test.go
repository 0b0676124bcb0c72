package quorumlog

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestRecord pins the bytes of records, of which every truncation must fail but one behind an entry.
func TestRecord(t *testing.T) {
	b, older := ballot{300, 0x0807060504030201}, ballot{2, 0x1817161514131211}
	for _, c := range []struct {
		what, hex string
		record    record
	}{
		{"a lead of an empty copy", "01 01 01 ac02 0102030405060708 00 0000000000000000", record{kind: kindLead, first: true, ballot: b}},
		{"a lead over the end of a log", "01 01 00 ac02 0102030405060708 02 1112131415161718 05 01 03 656e64",
			record{kind: kindLead, ballot: b, data: older, entries: []entry{{5, true, []byte("end")}}}},
		{"a state", "01 02 00 ac02 0102030405060708 00 01 05 00 01 61 06 00 01 62",
			record{kind: kindState, ballot: b, parts: 1, entries: []entry{{5, false, []byte("a")}, {6, false, []byte("b")}}}},
		{"the second part of a state", "01 02 00 ac02 0102030405060708 01 02 05 00 00", record{kind: kindState, ballot: b, part: 1, parts: 2, entries: []entry{{5, false, []byte{}}}}},
		{"an entry", "01 03 00 ac02 0102030405060708 06 07 00 01 63", record{kind: kindNext, ballot: b, previous: 6, entries: []entry{{7, false, []byte("c")}}}},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.record.append([]byte("prefix")); string(got) != "prefix"+string(want) {
			t.Errorf("%s is %x, want %x", c.what, got[6:], want)
		}
		if r, ok := parse(want); !ok || !reflect.DeepEqual(r, c.record) {
			t.Errorf("%s is read as %+v, %v; want %+v", c.what, r, ok, c.record)
		}
		for n := range want {
			if r, ok := parse(want[:n]); ok && len(r.entries) >= len(c.record.entries) && (len(r.entries) > 0 || c.record.kind != kindLead) {
				t.Errorf("%s without its last %d bytes is read as %+v", c.what, len(want)-n, r)
			}
		}
	}
	for _, other := range []string{"02 01 01 ac02 0102030405060708 00 0000000000000000", "01 04 01 ac02 0102030405060708", "", "01"} {
		p, _ := hex.DecodeString(strings.ReplaceAll(other, " ", ""))
		if _, ok := parse(p); ok {
			t.Errorf("%q is read, but has another form", other)
		}
	}
}

// FuzzRead feeds the reader of copies with anything.
func FuzzRead(f *testing.F) {
	f.Add([]byte{1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{1, 2, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 5, 0, 1, 'a'})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		c, ok := read([]sessionlog.Entry{{Seq: 1, Data: a}, {Seq: 2, Data: b}})
		if ok && !settled([]*content{&c, &c}, history([]*content{&c})) {
			t.Error("two copies with the same content are not settled")
		}
	})
}

// TestRead checks what a copy is known to have whose answer is not complete.
func TestRead(t *testing.T) {
	b := ballot{1, 0}
	state := record{kind: kindState, ballot: b, parts: 1, entries: []entry{{seq: 1}}}
	next := record{kind: kindNext, ballot: b, previous: 1, entries: []entry{{seq: 2}}}
	part := func(k, n uint64) record {
		return record{kind: kindState, ballot: ballot{2, 0}, part: k, parts: n, entries: []entry{{seq: k + 5}}}
	}
	lead := record{kind: kindLead, ballot: ballot{2, 0}}
	first := record{kind: kindLead, ballot: b, first: true}
	for _, c := range []struct {
		why     string
		records []record
		end     uint64
		torn    bool
	}{
		{"an empty copy is complete", nil, 0, false},
		{"an empty copy that is led", []record{first}, 0, false},
		{"what precedes the lead was deleted", []record{lead}, 0, true},
		{"what precedes the entry was deleted", []record{next}, 0, true},
		{"a state needs nothing before it", []record{state, next}, 2, false},
		{"a lead begins with a state", []record{state, {kind: kindNext, ballot: ballot{2, 0}, previous: 1, entries: []entry{{seq: 2}}}}, 1, true},
		{"an entry is missing", []record{state, {kind: kindNext, ballot: b, previous: 2, entries: []entry{{seq: 3}}}}, 1, true},
		{"the older state counts until all parts of the newer one are there", []record{state, lead, part(0, 2)}, 1, false},
		{"all parts are there", []record{state, lead, part(0, 2), part(1, 2)}, 6, false},
		{"a part alone is nothing", []record{part(0, 2)}, 0, true},
		{"the first part was deleted", []record{part(1, 2)}, 0, true},
		{"a copy that forgot a lead gave its sequence to an older one", []record{state, lead, next}, 2, true},
	} {
		var stored []sessionlog.Entry
		for i, r := range c.records {
			stored = append(stored, sessionlog.Entry{Seq: uint64(i) + 1, Data: r.append(nil)})
		}
		got, ok := read(stored)
		if !ok || got.torn != c.torn || !c.torn && got.end() != c.end {
			t.Errorf("%s: it ends with %d, torn %v, ok %v; want %d, torn %v", c.why, got.end(), got.torn, ok, c.end, c.torn)
		}
	}
}

// TestSettled checks when a later history certainly contains what was read.
func TestSettled(t *testing.T) {
	one, two := ballot{1, 0}, ballot{2, 0}
	has := func(b ballot, seqs ...uint64) *content {
		c := &content{data: b, top: b}
		for _, seq := range seqs {
			c.entries = append(c.entries, entry{seq: seq})
		}
		return c
	}
	for _, c := range []struct {
		why   string
		known []*content
		end   uint64
		want  bool
	}{
		{"two copies have it", []*content{has(one, 1, 2), has(one, 1, 2), nil}, 2, true},
		{"two copies have it, and a third one less", []*content{has(one, 1, 2), has(one, 1), has(one, 1, 2)}, 2, true},
		{"one copy has the last entry: the third may have it, too", []*content{has(one, 1, 2), has(one, 1), nil}, 2, false},
		{"one copy has the highest ballot", []*content{has(one, 1, 2), has(one, 1, 2), has(two, 1)}, 1, false},
		{"two ballots: the third copy may have one between them, without the entry", []*content{has(one, 1, 2), has(two, 1, 2), nil}, 2, false},
		{"two copies are empty", []*content{{}, {}, nil}, 0, true},
		{"one copy is empty, and the third may have something", []*content{{}, has(one, 1), nil}, 1, false},
		{"two ballots of one count", []*content{has(ballot{1, 1}, 1, 3), has(ballot{1, 2}, 1, 2), nil}, 2, false},
		{"one copy is known", []*content{has(one, 1), nil, nil}, 1, false},
	} {
		best := history(c.known)
		if best.end() != c.end || settled(c.known, best) != c.want {
			t.Errorf("%s: the history ends with %d, settled %v; want %d, %v", c.why, best.end(), settled(c.known, best), c.end, c.want)
		}
	}
}
