package sessionlog

import (
	"encoding/hex"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func name(s string) *string { return &s }

// blocks are writes with their encoding. Logs outlive programs, so the encoding must not change
// without another format number.
var blocks = []struct {
	why   string
	block Block
	hex   string
}{
	{"a command of the client, and its acknowledgements", Block{
		Epoch: 2, Owner: 300, Number: 7, Previous: 9, Delivered: 5, Acks: true,
		Changes: dnp.Changes{
			Received: []dnp.ReceivedCommand{{Number: 6, Command: wire.CommandReliableMessage, Body: []byte{6, 0, 'a'}}},
			Acked:    3, AckedAhead: 2,
		},
	}, "01 02 ac02 07 09 05  02 06 06 04 03 060061  04 02 03 02"},
	{"a message, an offer, and a link that came up", Block{
		Epoch: 1, Owner: 1, Number: 2, Previous: 1,
		Changes: dnp.Changes{
			Sent: []dnp.SentCommand{
				{Number: 1, Kind: dnp.SentMessage, Token: 9, Data: []byte("x")},
				{Number: 2, Kind: dnp.SentLink, Link: 0x8000, ReadOnly: true, HasRef: true, Ref: 5},
			},
			Links: []dnp.LinkChange{{Link: 0x8001, What: dnp.LinkCameUp}},
		},
	}, "01 01 01 02 01 00  03 13 01 00 00 00 00 00 09 01 78  02 03 00 06 808002 05 00 00  05 03 0180 01"},
	{"commands that the client may keep", Block{
		Epoch: 1, Owner: 1, Number: 2, Previous: 1,
		Changes: dnp.Changes{Repeats: dnp.Repeats{First: 301, NoOps: []uint16{0, 1000}}},
	}, "01 01 01 02 01 00  81 06 ad02 0000 e803"},
	{"an adoption", Block{Epoch: 3, Owner: 1, Number: 1, Previous: 1, Adopt: name("e2")}, "01 03 01 01 01 00  07 02 6532"},
	{"the end", Block{Epoch: 3, Owner: 1, Number: 1, Previous: 1, Close: name("peer")}, "01 03 01 01 01 00  09 04 70656572"},
	{"a hand-over with its checkpoint", Block{
		Epoch: 1, Owner: 1, Number: 1, Open: true, Hand: name("b"),
		Ckpt: &Checkpoint{
			Info:     Info{ID: ID{1}, Addr: netip.MustParseAddrPort("192.0.2.1:40000"), About: []byte("p")},
			Node:     "a",
			Snapshot: []byte{1}, Token: 4, Previous: 3,
			Undelivered: []Message{{Number: 5, Previous: 3, Data: []byte("m")}},
		},
	}, "01 01 01 01 00 00  01 00  06 22 01000000000000000000000000000000 06c0000201409c 0170 0161 0101 04 03 05 016d  08 01 62"},
}

func TestBlocks(t *testing.T) {
	for _, c := range blocks {
		want := unhex(t, c.hex)
		if got := c.block.Append([]byte{0xEE}); string(got[1:]) != string(want) || got[0] != 0xEE {
			t.Errorf("%s:\n%x, want\n%x", c.why, got[1:], want)
		}
		got, err := ParseBlock(want)
		if err != nil || string(got.Append(nil)) != string(want) {
			t.Errorf("%s: parsed as %+v, %v", c.why, got, err)
		}
		whole := 0
		for n := range want {
			if _, err := ParseBlock(want[:n]); err == nil {
				whole++ // the prefix ends between two records
			}
		}
		if whole > 4 {
			t.Errorf("%s: %d prefixes parse", c.why, whole)
		}
	}
	for why, h := range map[string]string{
		"a number that is no format":     "20 01 01 01 00 00",
		"format 0":                       "00 01 01 01 00 00",
		"record 0":                       "01 01 01 01 00 00  00 00",
		"an optional record cut off":     "01 01 01 01 00 00  80 02 00",
		"the same record twice":          "01 01 01 01 00 00  01 00 01 00",
		"records in another order":       "01 01 01 01 00 00  04 02 00 00  02 00",
		"a length beyond the end":        "01 01 01 01 00 00  02 7f 00",
		"bytes behind a record":          "01 01 01 01 00 00  04 03 00 00 00",
		"messages that are not in order": "01 01 01 01 00 00  06 1f 01000000000000000000000000000000 06c0000201409c 00 00 00 00 03 01 00",
	} {
		if k, err := ParseBlock(unhex(t, h)); err != ErrDamaged {
			t.Errorf("%s parses: %+v, %v, want %v", why, k, err, ErrDamaged)
		}
	}
	for why, h := range map[string]string{
		"the next format":            "02 01 01 01 00 00",
		"the last format":            "1f",
		"an unknown record":          "01 01 01 01 00 00  0a 00",
		"the last mandatory record":  "01 01 01 01 00 00  7f 01 00",
		"an unknown record in front": "01 01 01 01 00 00  0b 00  01 00",
	} {
		if k, err := ParseBlock(unhex(t, h)); err != ErrFormat {
			t.Errorf("%s parses: %+v, %v, want %v", why, k, err, ErrFormat)
		}
	}
	for why, h := range map[string]string{
		"an optional record behind":   "01 01 01 01 00 00  01 00  80 01 00",
		"optional records in front":   "01 01 01 01 00 00  80 01 00  ff 00  01 00",
		"the same optional one twice": "01 01 01 01 00 00  80 00  01 00  80 00",
	} {
		if k, err := ParseBlock(unhex(t, h)); err != nil || !k.Open {
			t.Errorf("%s: %+v, %v, want the other records", why, k, err)
		}
	}
}

// TestChain reads logs in the states in which a successor finds them.
func TestChain(t *testing.T) {
	ckpt := func(node string) *Checkpoint {
		return &Checkpoint{Info: Info{Addr: netip.MustParseAddrPort("192.0.2.1:1")}, Node: node}
	}
	entry := func(seq, previous uint64, k Block) Entry {
		k.Previous = previous
		return Entry{seq, k.Append(nil)}
	}
	rx := Block{Changes: dnp.Changes{Received: []dnp.ReceivedCommand{{Number: 1}}}, Acks: true}
	for _, c := range []struct {
		why     string
		entries []Entry
		err     error
		changes int
		closed  bool
	}{
		{"writes before a checkpoint do not count", []Entry{entry(1, 0, rx), entry(5, 1, Block{Ckpt: ckpt("a")}), entry(6, 5, rx), entry(9, 6, rx)}, nil, 2, false},
		{"writes that were deleted between two steps of a read leave a hole", []Entry{entry(5, 1, Block{Ckpt: ckpt("a")}), entry(9, 6, rx)}, errTorn, 0, false},
		{"a log without a checkpoint was read while a checkpoint was written", []Entry{entry(6, 5, rx)}, errTorn, 0, false},
		{"the end of a session needs no checkpoint", []Entry{entry(9, 6, Block{Close: name("peer")})}, nil, 0, true},
		{"damage is not repaired", []Entry{{1, []byte{0xFF}}}, ErrDamaged, 0, false},
		{"a write of another format belongs to others", []Entry{entry(5, 0, Block{Ckpt: ckpt("a")}), {9, []byte{2}}}, ErrFormat, 0, false},
		{"a known write behind it does not help", []Entry{entry(5, 0, Block{Ckpt: ckpt("a")}), {6, []byte{2}}, entry(9, 6, rx)}, ErrFormat, 0, false},
		{"a known checkpoint behind it does", []Entry{{5, []byte{2}}, entry(9, 5, Block{Ckpt: ckpt("a")})}, nil, 0, false},
		{"the end behind it does", []Entry{{5, []byte{2}}, entry(9, 5, Block{Close: name("peer")})}, nil, 0, true},
		{"a snapshot of another format belongs to others", []Entry{entry(9, 0, Block{Ckpt: &Checkpoint{Info: ckpt("a").Info, Snapshot: []byte{2}}})}, ErrFormat, 0, false},
	} {
		got, err := readChain(c.entries)
		if err != c.err || err == nil && (len(got.changes) != c.changes || got.closed != c.closed || got.tail != 9) {
			t.Errorf("%s: %+v, %v", c.why, got, err)
		}
	}
}

// FuzzBlock parses anything; a block that parses is the same after another round.
func FuzzBlock(f *testing.F) {
	for _, c := range blocks {
		f.Add(unhex(f, c.hex))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		k, err := ParseBlock(p)
		if err != nil {
			return
		}
		again, err := ParseBlock(k.Append(nil))
		if err != nil || !reflect.DeepEqual(again, k) && k.Ckpt == nil {
			t.Fatalf("%+v becomes %+v, %v", k, again, err)
		}
		_, _ = readChain([]Entry{{1, p}, {2, p}})
	})
}
