package replication

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/subject"
)

var codecWrites = []struct {
	w   Write
	hex string
}{
	{Write{Kind: WriteValues, Session: "s1", Client: "c1", Space: "sp", State: 0x0102, Epoch: 7, Number: 9,
		Values: []WriteValue{{Index: 2, Type: typ("uint16"), Value: []byte{5, 6}}, {Index: 300, Type: wire.TypeString, Value: []byte{1, 0, 'x'}}}},
		"01 01 02 7331 02 6331 02 7370 0201000000000000 0700000000000000 09000000 0200 0200 03 0506 2c01 0b 010078"},
	{Write{Kind: WriteValues, Session: "s1", Client: "c1", Space: "sp", State: 0x0102, Epoch: 7, Number: 9,
		Values: []WriteValue{{Index: 2, Type: typ("uint16"), Value: []byte{5, 6}, Number: 1}, {Index: 3, Type: typ("uint8"), Value: []byte{1}, Number: 300}}},
		"01 06 02 7331 02 6331 02 7370 0201000000000000 0700000000000000 09000000 0200 0200 01 03 0506 0300 ac02 01 01"},
	{Write{Kind: WriteAssert, Session: "s1", Client: "c1", Space: "sp", Epoch: 7, Number: 9, Link: 3, ReadOnly: true,
		Audience: AudienceAllBut, Message: []byte("m"), Values: []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{5}}}},
		"01 02 02 7331 02 6331 02 7370 0000000000000000 0700000000000000 09000000 0300 01 03 0100 6d 0100 01 05"},
	{Write{Kind: WriteDrop, Session: "s1", Client: "c1", Space: "sp", Link: 3},
		"01 03 02 7331 02 6331 02 7370 0000000000000000 0000000000000000 00000000 0300"},
	{Write{Kind: WriteJoin, Session: "s1", Client: "c1", Space: "sp", Epoch: 7, Join: []string{"red", "b"}, Leave: []string{"x"}},
		"01 04 02 7331 02 6331 02 7370 0000000000000000 0700000000000000 00000000 02 03 726564 01 62 01 01 78"},
}

func TestWriteCodec(t *testing.T) {
	for _, c := range codecWrites {
		p := AppendWrite([]byte("prefix"), &c.w)[len("prefix"):]
		if want := strings.ReplaceAll(c.hex, " ", ""); hex.EncodeToString(p) != want {
			t.Errorf("kind %d is %x, want %s", c.w.Kind, p, want)
		}
		got, err := ParseWrite(p)
		if err != nil || !reflect.DeepEqual(got, c.w) {
			t.Errorf("kind %d read as %+v, %v, want %+v", c.w.Kind, got, err, c.w)
		}
		for n := range len(p) {
			if _, err := ParseWrite(p[:n]); err == nil {
				t.Errorf("kind %d: %d of %d bytes were parsed", c.w.Kind, n, len(p))
			}
		}
		if _, err := ParseWrite(append(p, 0)); err == nil {
			t.Errorf("kind %d: a trailing byte was accepted", c.w.Kind)
		}
	}
	partly := AppendWriteResult(nil, WriteResult{Code: WritePartly, Epoch: 7, Seq: 8, State: 9, Refused: []RefusedIndex{{Index: 1}, {Index: 300}}})
	if want := "01 05 0700000000000000 0800000000000000 0900000000000000 0200 0100 2c01"; hex.EncodeToString(partly) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("the answer to a write that was applied in part is %x, want %s", partly, want)
	}
	coded := WriteResult{Code: WritePartly, Epoch: 7, Seq: 8, State: 9, Refused: []RefusedIndex{{1, wire.RefusedRate}, {300, wire.RefusedWrite}}}
	if got := AppendWriteResult(nil, coded); hex.EncodeToString(got) != strings.ReplaceAll("01 06 0700000000000000 0800000000000000 0900000000000000 0200 0100 03 2c01 00", " ", "") {
		t.Errorf("the answer with codes is %x", got)
	} else if back, err := ParseWriteResult(got); err != nil || fmt.Sprint(back) != fmt.Sprint(coded) {
		t.Errorf("read as %+v, %v", back, err)
	}
	for n := range len(partly) {
		if _, err := ParseWriteResult(partly[:n]); err == nil {
			t.Errorf("a result of %d of %d bytes was parsed", n, len(partly))
		}
	}
	if got, err := ParseWriteResult(partly); err != nil || fmt.Sprint(got.Refused) != "[{1 refused} {300 refused}]" {
		t.Errorf("read as %+v, %v", got, err)
	}
	r := WriteResult{Code: WriteBusy, Epoch: 7, Seq: 8, State: 9}
	p := AppendWriteResult(nil, r)
	if got, err := ParseWriteResult(p); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("result read as %+v, %v", got, err)
	}
	for n := range len(p) {
		if _, err := ParseWriteResult(p[:n]); err == nil {
			t.Errorf("a result of %d of %d bytes was parsed", n, len(p))
		}
	}
}

// A count that the message cannot hold must not cost memory.
func TestOverLongCounts(t *testing.T) {
	w := codecWrites[3].w
	w.Kind = WriteValues
	p := AppendWrite(nil, &w)
	p[len(p)-2], p[len(p)-1] = 0xff, 0xff
	if n := testing.AllocsPerRun(10, func() { _, _ = ParseWrite(p) }); n > 3 {
		t.Errorf("%v allocations, want at most those of three names", n)
	}
	if _, err := ParseWrite(p); err == nil {
		t.Error("65,535 values in no bytes were accepted")
	}
}

func TestHeadCodec(t *testing.T) {
	p := AppendHead(nil, 7, []SpaceHead{{"demo", 5}, {"x", 6}})
	if want := "01 0700000000000000 0200 04 64656d6f 0500000000000000 01 78 0600000000000000"; hex.EncodeToString(p) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("head is %x, want %s", p, want)
	}
	epoch, got, err := ParseHead(p)
	if err != nil || epoch != 7 || fmt.Sprint(got) != "map[demo:5 x:6]" {
		t.Errorf("read as epoch %d, %v, %v", epoch, got, err)
	}
}

func TestDescribeCodec(t *testing.T) {
	d := Description{
		Key:      "a.b",
		Access:   Access{Kind: AccessWriters, Writers: []string{"w"}},
		Audience: Audience{Kind: AudienceListed, Groups: []string{"g"}, Clients: []string{"c"}},
		Priority: 3,
		Details:  []Detail{{Groups: []string{"far"}, Precision: 8, Rate: 5}, {Clients: []string{"c"}, Rate: 0.5}},
		Message:  []byte("m"), Farewell: []byte("f"), ValueMax: 1024,
		Values: []ValueDef{{Name: "hp", Type: typ("uint8"), Precision: 0.5}, {Type: typ("uint8"), Nullable: true, Null: []byte{9}}},
	}
	p := appendDescribe(nil, &d)
	want := "02 03 612e62 02 0100 01 77 02 0200 00 01 67 01 01 63" +
		"03 02 0000000000002040 0000000000001440 0100 00 03 666172 0000000000000000 000000000000e03f 0100 01 01 63" +
		"0100 6d 0100 66 0004 0200" +
		"01 000000000000e03f 02 6870 81 0000000000000000 00 0100 09"
	if hex.EncodeToString(p) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("describe is %x, want %s", p, want)
	}
	got, err := parseDescribe(p)
	if err != nil || !reflect.DeepEqual(*got, d) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

// TestLongestKey: a key that is valid goes through a describe. Its length is one byte there.
func TestLongestKey(t *testing.T) {
	token := strings.Repeat("k", subject.TokenMax)
	key := strings.Join([]string{token, token, token, token}, ".")[:subject.KeyMax]
	if !subject.ValidKey(key) || subject.ValidKey(key+"k") {
		t.Fatalf("keys of %d characters are valid: %t, of one more: %t", len(key), subject.ValidKey(key), subject.ValidKey(key+"k"))
	}
	d := Description{Key: key, Audience: Audience{Kind: AudienceAll}, Message: []byte("m"), Values: []ValueDef{{Name: "x", Type: 1}}}
	got, err := parseDescribe(appendDescribe(nil, &d))
	if err != nil || got.Key != key {
		t.Errorf("the key of %d characters is read as %+v, %v", len(key), got, err)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for s, want := range map[string][3]bool{ // token, key, name
		"a": {true, true, true}, long: {true, true, true}, long + "a": {}, "": {}, "a.b": {false, true, false},
		"1": {true, true, false}, "a-b": {true, true, false}, "_x1": {true, true, true}, "a..b": {}, "a.": {}, ".a": {}, "é": {}, "a b": {},
		"a.b.c.d.e.f.g.h": {false, true, false}, "a.b.c.d.e.f.g.h.i": {},
	} {
		if got := [3]bool{subject.ValidToken(s), subject.ValidKey(s), ValidName(s)}; got != want {
			t.Errorf("%q: token, key, name %v, want %v", s, got, want)
		}
	}
}

func TestAudience(t *testing.T) {
	in := []string{"red"}
	for _, c := range []struct {
		a    Audience
		want bool
	}{
		{Audience{}, false},
		{Audience{Kind: AudienceAll}, true},
		{Audience{Kind: AudienceListed, Groups: []string{"red"}}, true},
		{Audience{Kind: AudienceListed, Groups: []string{"blue"}}, false},
		{Audience{Kind: AudienceListed, Clients: []string{"c1"}}, true},
		{Audience{Kind: AudienceAllBut, Clients: []string{"c1"}}, false},
		{Audience{Kind: AudienceAllBut, Groups: []string{"blue"}}, true},
	} {
		if got := c.a.Includes("c1", in); got != c.want {
			t.Errorf("%+v includes c1 in %v: %v", c.a, in, got)
		}
	}
}

func TestLimitsTellEveryProblem(t *testing.T) {
	if p := (Limits{Values: 9000, ValueBytes: -1, Views: 70_000}).Validate(); len(p) != 3 {
		t.Errorf("problems %q, want three", p)
	}
	if p := (Limits{}).Validate(); p != nil {
		t.Errorf("defaults: %q", p)
	}
}
