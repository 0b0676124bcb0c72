package replication

import (
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/interest"
)

// near is an interest in states whose value pos is at most 100 away.
func near(within ...float64) *Interest {
	x := &Interest{At: "pos"}
	for _, w := range within {
		x.Bands = append(x.Bands, Band{Within: w})
	}
	return x
}

// boat is a put of a state with a place.
func boat(key string, x *Interest, name string) Op {
	return Op{Kind: OpPut, Key: key, HasInterest: true, Interest: x, InterestName: name, Values: []PutValue{
		{ValueDef: ValueDef{Name: "hp", Type: typ("uint8")}},
		{ValueDef: ValueDef{Name: "pos", Type: typ("vector2f32")}},
	}}
}

func named(name string, x *Interest) Op { return Op{Kind: OpInterest, InterestName: name, Interest: x} }

func eyes(client string, all ...Eye) Op { return Op{Kind: OpEye, Client: client, Eyes: all} }

func (t *storeTest) wantInterest(key string, want *Interest) {
	t.Helper()
	var got *Interest
	if st := t.states.byKey[key]; st != nil && st.Desc.Interest != "" {
		got = t.Interest(st.Desc.Interest)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("the interest of %q is %+v, want %+v", key, got, want)
	}
}

// records returns the keys of the records that hold interests and eyes.
func (t *storeTest) records() (n int) {
	for key := range t.states.byKey {
		if reserved(key) {
			n++
		}
	}
	return n
}

func TestStoreInterest(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.refuse("no such interest", CodeBadRequest, `no interest "walker"`, boat("a", nil, "walker"))
	s.ok(named("walker", near(100)))
	s.ok(boat("a", nil, "walker"))
	s.wantInterest("a", near(100))
	s.ok(named("walker", near(200, 300)))
	s.wantInterest("a", near(200, 300))
	s.refuse("a state has it", CodeBadRequest, "used by 1 states", named("walker", nil))
	s.refuse("the state has no such value", CodeBadRequest, `"a": interest: there is no value "place"`, named("walker", &Interest{At: "place", Bands: []Band{{Within: 1}}}))

	s.ok(boat("b", near(7), ""))
	s.ok(boat("c", near(7), ""))
	s.Advance(s.now)
	if n := s.records(); n != 2 {
		t.Fatalf("there are %d records, want one for walker and one for two states with the same interest", n)
	}
	s.refuse("a removal is undone", CodeBadRequest, "not a key", Op{Kind: OpRemove, Key: "b"}, Op{Kind: OpRemove, Key: "c"}, Op{Kind: OpRemove, Key: "_eyes.c1"})
	s.now = s.now.Add(time.Second)
	s.Advance(s.now)
	if n := s.records(); n != 2 {
		t.Fatalf("there are %d records, want two: b and c have their interest again", n)
	}
	put := boat("b", nil, "")
	put.HasInterest = false
	s.ok(put)
	s.wantInterest("b", near(7)) // what a put leaves out stays
	s.ok(boat("b", nil, ""))
	s.wantInterest("b", nil)
	s.ok(Op{Kind: OpRemove, Key: "c"})
	s.now = s.now.Add(time.Second)
	s.Advance(s.now)
	if n := s.records(); n != 1 {
		t.Fatalf("there are %d records, want one: the interest of b and c has no state", n)
	}
	s.ok(boat("a", nil, ""))
	s.ok(named("walker", nil))
	s.ok(named("walker", near(1)))
	s.ok(Op{Kind: OpClear})
	if n := s.records(); n != 0 {
		t.Fatalf("there are %d records after clear", n)
	}
}

func TestStoreInterestErrors(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(named("x", near(1)))
	for _, c := range []struct {
		about string
		code  Code
		x     Interest
	}{
		{"0 bands", CodeBadRequest, Interest{At: "pos"}},
		{"not more than", CodeBadRequest, *near(2, 1)},
		{"band 0", CodeBadRequest, *near(-1)},
		{"band 0", CodeBadRequest, *near(math.NaN())},
		{"9 bands", CodeBadRequest, *near(1, 2, 3, 4, 5, 6, 7, 8, 9)},
		{"band 1: precision 0.5", CodeBadRequest, Interest{At: "pos", Bands: []Band{{Within: 1}, {Within: 2, Precision: 0.5}}}},
		{"rate 1001", CodeBadRequest, Interest{At: "pos", Bands: []Band{{Within: 1, Rate: 1001}}}},
		{`no value "9"`, CodeBadRequest, Interest{At: "9", Bands: []Band{{Within: 1}}}},
		{"not the name", CodeBadRequest, Interest{At: "a b", Bands: []Band{{Within: 1}}}},
		{`"hp" is uint8`, CodeTypeMismatch, Interest{At: "hp", Bands: []Band{{Within: 1}}}},
		{"no axis z", CodeTypeMismatch, Interest{At: "1", Axes: interest.AxisX | interest.AxisZ, Bands: []Band{{Within: 1}}}},
	} {
		s.refuse(c.about, c.code, c.about, boat("a", &c.x, ""))
	}
	s.refuse("a name for the store", CodeBadRequest, "not the name of an interest", named("_x", near(1)))
	s.refuse("a name for the store", CodeBadRequest, "not the name of an interest", boat("a", nil, "_x"))
	s.refuse("no name", CodeBadRequest, "not the name of an interest", named("", near(1)))
	op := boat("a", nil, "x")
	for i := range DetailsMax {
		op.Details = append(op.Details, Detail{Groups: []string{fmt.Sprint("g", i)}, Rate: 1})
	}
	op.HasDetails = true
	s.refuse("an interest needs one of the levels", CodeBadRequest, "at most 7 are allowed beside an interest", op)
	op.Details = op.Details[1:]
	s.ok(op)
	s.refuse("keys of records", CodeBadRequest, "not for publishers", boat("_interest.x", nil, ""))
	s.refuse("keys of records", CodeBadRequest, "not a key", Op{Kind: OpRemove, Key: "_eyes.c1"})
	other := tower("a", u8(1), u8(2), str("x"))
	s.refuse("other values without the place", CodeBadRequest, "no value", other)

	for i := range InterestsMax - 1 {
		s.ok(named(fmt.Sprint("i", i), near(1)))
	}
	s.refuse("the limit", CodeTooLarge, "256 interests", named("more", near(1)))
	s.refuse("the limit", CodeTooLarge, "256 interests", boat("b", near(3), ""))
	s.ok(named("i1", near(2)))
}

func TestStoreEyes(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.refuse("the client is absent", CodeUnknownClient, "c1", eyes("c1", Eye{Key: "player.a"}))
	s.Join("c1", "s1")
	want := []Eye{{Key: "player.a"}, {Key: "player.b", Value: "pos"}, {At: interest.Point{X: 1, Y: -2, Z: 1e300}}}
	s.ok(eyes("c1", want...))
	if got := s.Eyes("c1"); !reflect.DeepEqual(got, want) {
		t.Fatalf("the eyes are %+v, want %+v", got, want)
	}
	s.refuse("no key", CodeBadRequest, "not a key", eyes("c1", Eye{Key: "a b"}))
	s.refuse("a record", CodeBadRequest, "not a key", eyes("c1", Eye{Key: "_groups.c1"}))
	s.refuse("no value", CodeBadRequest, "name or index", eyes("c1", Eye{Key: "a", Value: "-1"}))
	s.refuse("nowhere", CodeBadRequest, "not finite", eyes("c1", Eye{At: interest.Point{X: math.Inf(1)}}))
	s.refuse("too many", CodeTooLarge, "9 eyes", eyes("c1", make([]Eye, 9)...))
	s.Leave("c1", "s1")
	if n := s.records(); n != 0 {
		t.Fatalf("there are %d records after the client left", n)
	}
}

// Relays have a flag for the eye of all clients. The record of it is there while clients are.
func TestStoreEveryEye(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.cfg.Eye = Eye{Key: "player.{client}"}
	s.Join("c1", "s1")
	s.Join("c2", "s2")
	if got := fmt.Sprint(s.Eyes("c1")); got != "[{player.c1  {0 0 0}}]" {
		t.Fatalf("the eyes are %s, want player.c1", got)
	}
	s.ok(eyes("c2"))
	if got := s.Eyes("c2"); len(got) != 0 {
		t.Fatalf("a client whose eyes were taken away has %+v", got)
	}
	s.Leave("c1", "s1")
	s.Leave("c2", "s2")
	if n := s.records(); n != 0 {
		t.Fatalf("there are %d records without clients, so the relay cannot forget the space", n)
	}
	for key, about := range map[string]string{"player": "does not contain {client}", "p.{client}.{client}": "", "a b.{client}": "not a key", "_eyes.{client}": "not a key"} {
		if err := CheckEveryEye(Eye{Key: key}); (err == nil) != (about == "") || err != nil && !strings.Contains(err.Message, about) {
			t.Errorf("the eye %q: %v, want an error about %q", key, err, about)
		}
	}
}

func TestReplicaInterest(t *testing.T) {
	r := joined(t)
	r.store.Join("c1", "s1")
	r.Apply(r.now, r.publish(named("walker", near(5)), boat("b", nil, "walker"), eyes("c1", Eye{Key: "b"}))[0])
	r.said("records and states", "interest walker "+fmt.Sprintf("%+v", near(5)), "added b", `eyes "c1" [{b  {0 0 0}}]`)
	if r.ByKey("_interest.walker") != nil || r.ByKey("b").Desc.Interest != "walker" || len(r.ByKey("b").Desc.Details) != 0 {
		t.Fatalf("the replica has %+v, want a state with an interest and no level of detail", r.ByKey("b").Desc)
	}
	r.Apply(r.now, r.publish(named("walker", near(6)))[0])
	r.said("a change", "interest walker "+fmt.Sprintf("%+v", near(6)))
	r.Apply(r.now, r.publish(boat("b", nil, ""))[0])
	r.Apply(r.now, r.publish(named("walker", nil))[0])
	r.said("a removal", "described b", "interest walker <nil>")
}

// A new holder restores interests and eyes with the states, and forgets the eyes of clients that left.
func TestRestoreInterest(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Join("c1", "s1")
	s.Join("c2", "s2")
	for _, op := range []Op{named("walker", near(5)), boat("a", nil, "walker"), boat("b", near(8), ""), eyes("c1", Eye{Key: "a"}), eyes("c2", Eye{Key: "b"})} {
		s.ok(op)
	}
	s.Advance(s.now)
	next := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 8, FirstNumber: 1 << 20}), s.now}
	for _, d := range s.TakeDirty(nil, 100) {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatalf("state %d: %v", d.Number, err)
		}
	}
	next.wantInterest("a", near(5))
	next.wantInterest("b", near(8))
	next.refuse("a restored state has it", CodeBadRequest, "used by 1 states", named("walker", nil))
	next.Join("c1", "s1")
	next.ForgetAbsent()
	if got, gone := fmt.Sprint(next.Eyes("c1")), next.Eyes("c2"); got != "[{a  {0 0 0}}]" || len(gone) != 0 {
		t.Fatalf("the eyes are %s and %v, want those of c1 only", got, gone)
	}
	next.ok(Op{Kind: OpRemove, Key: "b"})
	next.now = next.now.Add(time.Second)
	next.Advance(next.now)
	if n := next.records(); n != 2 {
		t.Fatalf("there are %d records, want walker and the eyes of c1", n)
	}
}

// The interest of a state is an entry of its levels of detail, of a client that no client is called.
func TestInterestEntry(t *testing.T) {
	d := Description{Key: "k", ValueMax: 16, Interest: "walker", Details: []Detail{{Groups: []string{"far"}, Rate: 5}}, Values: []ValueDef{{Type: typ("uint8")}}}
	p := appendDescribe(nil, &d)
	if p[0] != 2 {
		t.Fatalf("the description has version %d, want 2", p[0])
	}
	entry := "000000000000f03f" + "0000000000000000" + "0100" + "010f" + hex.EncodeToString([]byte("interest:walker"))
	if !strings.Contains(hex.EncodeToString(p), entry) {
		t.Errorf("the description is %x, want the entry %s in it", p, entry)
	}
	got, err := parseDescribe(p)
	if err != nil || got.Interest != "walker" || !reflect.DeepEqual(got.Details, d.Details) {
		t.Fatalf("read as %+v, %v", got, err)
	}
}

func TestInterestCodec(t *testing.T) {
	x := &Interest{At: "pos", Axes: interest.AxisX | interest.AxisZ, Unlink: true, Bands: []Band{{Within: 100}, {Within: 300, Precision: 4, Rate: 5}}}
	p := appendInterest(nil, x)
	want := "01 03 706f73 05 01 02 0000000000005940 0000000000000000 0000000000000000 0000000000c07240 0000000000001040 0000000000001440"
	if hex.EncodeToString(p) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("the record is %x, want %s", p, want)
	}
	if got := parseInterest(p); !reflect.DeepEqual(got, x) {
		t.Errorf("read as %+v, want %+v", got, x)
	}
	x.Events, p = true, slices.Clone(p)
	p[6] = 0x11
	if got := appendInterest(nil, x); string(got) != string(p) {
		t.Errorf("with events the record is %x, want %x", got, p)
	}
	for flags, want := range map[byte]*Interest{0x11: x, 0x91: x, 0x02: nil, 0x18: nil} {
		p[6] = flags
		if got := parseInterest(p); !reflect.DeepEqual(got, want) {
			t.Errorf("flags %#x: read as %+v, want %+v: those from 16 on may be unknown", flags, got, want)
		}
	}
	p[6] = 1
	all := []Eye{{At: interest.Point{X: 1}}, {Key: "a.b", Value: "pos"}}
	e := appendEyes(nil, all)
	if want := "01 02 00 000000000000f03f 0000000000000000 0000000000000000 01 0300 612e62 03 706f73"; hex.EncodeToString(e) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("the record is %x, want %s", e, want)
	}
	if got := parseEyes(e); !reflect.DeepEqual(got, all) {
		t.Errorf("read as %+v, want %+v", got, all)
	}
	for n := range len(p) {
		if parseInterest(p[:n]) != nil {
			t.Errorf("%d of %d bytes are an interest", n, len(p))
		}
	}
	for n := range len(e) {
		if n != 0 && parseEyes(e[:n]) != nil {
			t.Errorf("%d of %d bytes are eyes", n, len(e))
		}
	}
	if parseInterest(append([]byte{2}, p[1:]...)) != nil || parseInterest(append(p, 0)) != nil || parseEyes(append([]byte{2}, e[1:]...)) != nil {
		t.Error("another version, or bytes behind the record, are read")
	}
}

func TestPlace(t *testing.T) {
	for name, c := range map[string]struct {
		hex  string
		want interest.Point
	}{
		"vector3f16": {"003c 00c0 007c", interest.Point{X: 1, Y: -2, Z: math.Inf(1)}},
		"vector2f32": {"0000803f 000000c0", interest.Point{X: 1, Y: -2}},
		"vector3f64": {"000000000000f03f 0000000000000000 000000000000f0bf", interest.Point{X: 1, Z: -1}},
		"point3s8":   {"ff 7f 80", interest.Point{X: -1, Y: 127, Z: -128}},
		"point2u16":  {"ffff 0100", interest.Point{X: 65535, Y: 1}},
		"point2s64":  {"ffffffffffffffff 0200000000000000", interest.Point{X: -1, Y: 2}},
	} {
		if got := Place(typ(name), unhex(strings.ReplaceAll(c.hex, " ", ""))); got != c.want {
			t.Errorf("%s %s is at %v, want %v", name, c.hex, got, c.want)
		}
	}
	for i := range wire.ValueTypes {
		v := wire.ValueType(i)
		if has := axesOf(v); (has != 0) != (!v.Variable() && (v.Components() == 2 || v.Components() == 3)) {
			t.Errorf("%v has axes %v", v, has)
		}
	}
}
