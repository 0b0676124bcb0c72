package replication

import (
	"fmt"
	"testing"
	"time"
)

// asOf returns a condition of epoch 6, the former holder's.
func asOf(seq uint64) Condition { return Condition{Position{6, seq}, true} }

// known is a put of a lamp with values of which a publisher knows since when they are so.
func known(description Condition, a, b byte, first, second Condition, groups ...string) Op {
	return Op{
		Kind: OpPut, Key: "lamp", Only: description, HasAudience: true, Audience: Audience{Kind: AudienceListed, Groups: groups}, HasFarewell: true, Farewell: []byte(groups[0]),
		Values: []PutValue{{ValueDef: ValueDef{Name: "a", Type: typ("uint8")}, Value: u8(a), Only: first}, {ValueDef: ValueDef{Name: "b", Type: typ("uint8")}, Value: u8(b), Only: second}},
	}
}

// TestConditions: what a publisher tells a new holder replaces what that holder restored from before, and nothing that was said later.
func TestConditions(t *testing.T) {
	former := newStoreTest(t, Limits{})
	former.Store = NewStore(StoreConfig{Space: "s", Epoch: 6})
	former.ok(known(Condition{}, 1, 2, Condition{}, Condition{}, "stored"))
	former.Advance(former.now) // position 6, 1
	stored := former.TakeDirty(nil, 1)[0]

	none := Condition{}
	audience := func(c Condition, group string) Op {
		return Op{Kind: OpAudience, Key: "lamp", Only: c, HasAudience: true, Audience: Audience{Kind: AudienceListed, Groups: []string{group}}}
	}
	setIf := func(c Condition, v byte) Op {
		op := set("lamp", "a", u8(v))
		op.Sets[0].Only = c
		return op
	}
	for _, c := range []struct {
		why     string
		missing bool // the holder has not restored the state
		ops     []Op
		want    string // a b audience farewell
	}{
		{"as old as what is stored", false, []Op{known(asOf(1), 3, 4, asOf(1), asOf(1), "old")}, "1 2 stored stored"},
		{"later than what is stored", false, []Op{known(asOf(2), 3, 4, asOf(2), asOf(2), "new")}, "3 4 new new"},
		{"one value is later", false, []Op{known(asOf(1), 3, 4, asOf(1), asOf(5), "old")}, "1 4 stored stored"},
		{"one value is new", false, []Op{known(asOf(1), 3, 4, none, asOf(1), "old")}, "3 2 stored stored"},
		{"the holder lacks the state", true, []Op{known(asOf(1), 3, 4, asOf(1), asOf(1), "only")}, "3 4 only only"},
		{"somebody has set a value since", false, []Op{setIf(none, 9), known(asOf(5), 3, 4, asOf(5), asOf(5), "new")}, "9 4 new new"},
		{"somebody has set the value that it has", false, []Op{setIf(none, 1), known(asOf(5), 3, 4, asOf(5), asOf(5), "new")}, "1 4 new new"},
		{"another publisher has put the state since", true, []Op{known(none, 7, 8, none, none, "theirs"), known(asOf(5), 3, 4, asOf(5), asOf(5), "ours")}, "7 8 theirs theirs"},
		{"two publishers know a value, the later one says it first", false, []Op{setIf(asOf(9), 9), known(asOf(5), 3, 4, asOf(5), asOf(5), "new")}, "9 4 new new"},
		{"and last", false, []Op{known(asOf(5), 3, 4, asOf(5), asOf(5), "new"), setIf(asOf(9), 9)}, "9 4 new new"},
		{"another publisher gave it an audience later", true, []Op{known(asOf(5), 3, 4, asOf(5), asOf(5), "new"), audience(asOf(9), "late")}, "3 4 late new"},
		{"or earlier", true, []Op{known(asOf(5), 3, 4, asOf(5), asOf(5), "new"), audience(asOf(4), "early")}, "3 4 new new"},
		{"an audience that another one gave later stays", false, []Op{audience(asOf(9), "late"), known(asOf(5), 3, 4, asOf(5), asOf(5), "new")}, "3 4 late new"},
		{"it was removed before what is stored", false, []Op{{Kind: OpRemove, Key: "lamp", Only: asOf(1)}}, "1 2 stored stored"},
		{"it was removed later", false, []Op{{Kind: OpRemove, Key: "lamp", Only: asOf(2)}}, ""},
	} {
		s := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 7, FirstNumber: 100}), former.now}
		if !c.missing {
			if _, err := s.Restore(stored.Number, stored.Data); err != nil {
				t.Fatal(err)
			}
		}
		for _, op := range c.ops {
			s.ok(op)
			s.now = s.now.Add(time.Second)
			s.Advance(s.now)
		}
		got := ""
		if st := s.states.byKey["lamp"]; st != nil {
			got = fmt.Sprintf("%d %d %s %s", st.Values.Value(0)[0], st.Values.Value(1)[0], st.Desc.Audience.Groups[0], st.Desc.Farewell)
		}
		if got != c.want {
			t.Errorf("%s: the state is %q, want %q", c.why, got, c.want)
		}
	}
}

// TestConditionOfAnotherForm: a publisher whose copy has another form than what was put later learns that its new value has no place.
func TestConditionOfAnotherForm(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(Op{Kind: OpPut, Key: "lamp", Values: []PutValue{{ValueDef: ValueDef{Name: "a", Type: typ("uint16")}}}})
	s.ok(known(asOf(5), 3, 4, asOf(5), asOf(5), "old"))
	s.refuse("a new value of an old form", CodeTypeMismatch, "another form", known(asOf(5), 3, 4, asOf(5), Condition{}, "old"))
	if err := publish(s.Store, s.now, set("lamp", "a", Encoded{typ("uint16"), []byte{1, 0}}), known(asOf(5), 3, 4, Condition{}, Condition{}, "old")); err == nil {
		t.Error("a publish with such a put is applied")
	}
}

// withoutPosition is the size of a stored state without the position at its end. It is whole: a state without a position is older
// than whatever is said.
func withoutPosition(d Durable) int {
	return len(d.Data) - len(Position{}.appendRecord(nil, d.Number))
}

// TestRestoreWithoutPosition reads a state that was stored without the position up to which it is complete.
func TestRestoreWithoutPosition(t *testing.T) {
	former := newStoreTest(t, Limits{})
	former.ok(tower("a", u8(1), u8(2), str("x")))
	former.Advance(former.now)
	for _, d := range former.TakeDirty(nil, 9) {
		s := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 8, FirstNumber: 100}), former.now}
		if _, err := s.Restore(d.Number, d.Data[:withoutPosition(d)]); err != nil {
			t.Fatalf("state %d: %v", d.Number, err)
		}
		op := set("a", "hp", u8(9))
		op.Sets[0].Only = Condition{Given: true, AsOf: Position{7, 1}}
		s.ok(op)
		if got := s.List("", 9).States[0].Values.Value(0); got[0] != 9 {
			t.Errorf("hp is %d: what a publisher said at 7:1 is older than a state without a position", got[0])
		}
	}
}
