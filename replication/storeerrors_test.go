package replication

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

func TestStoreErrors(t *testing.T) {
	s := newStoreTest(t, Limits{Values: 300, ValueBytes: 16_000, Groups: 2, Views: 6})
	s.ok(tower("a", u8(1), u8(2), str("x")))
	s.Join("c1", "s1")
	longKey := strings.Repeat(strings.Repeat("k", 63)+".", 3) + strings.Repeat("k", 63)
	s.ok(tower(longKey))
	s.ok(Op{Kind: OpRemove, Key: longKey})
	long := strings.Repeat("x", 16_001)
	put := func(change func(op *Op)) Op {
		op := tower("b")
		change(&op)
		return op
	}
	value := func(change func(v *PutValue)) Op {
		return put(func(op *Op) { change(&op.Values[1]) })
	}
	detailed := func(all ...Detail) Op {
		return put(func(op *Op) { op.HasDetails, op.Details = true, all })
	}
	for _, c := range []struct {
		why   string
		code  Code
		about string
		op    Op
	}{
		{"unknown op", CodeBadRequest, "op", Op{Kind: 99}},
		{"bad key", CodeBadRequest, "a b", tower("a b")},
		{"empty key", CodeBadRequest, "key", tower("")},
		{"nine tokens", CodeBadRequest, "key", tower("a.a.a.a.a.a.a.a.a")},
		{"256 bytes, of which a record cannot hold the number", CodeBadRequest, "key", tower(longKey + "x")},
		{"key of groups", CodeBadRequest, "_groups", tower("_groups.c1")},
		{"key of clients", CodeBadRequest, "client", tower("client.c1.3")},
		{"a client's state cannot be removed", CodeBadRequest, "client", Op{Kind: OpRemove, Key: "client.c1.3"}},
		{"groups cannot be set", CodeBadRequest, "_groups", set("_groups.c1", "0", u8(1))},
		{"set of an unknown state", CodeUnknownState, "no", set("no", "hp", u8(1))},
		{"removal of an unknown state", CodeUnknownState, "no", Op{Kind: OpRemove, Key: "no"}},
		{"priority 0", CodeBadRequest, "priority 0", put(func(op *Op) { op.HasPriority = true })},
		{"priority 17", CodeBadRequest, "priority 17", put(func(op *Op) { op.HasPriority, op.Priority = true, 17 })},
		{"a level of detail without clients", CodeBadRequest, "groups or clients", detailed(Detail{Rate: 1})},
		{"a level of detail without a reduction", CodeBadRequest, "precision or rate", detailed(Detail{Groups: []string{"g"}})},
		{"a factor below 1", CodeBadRequest, "precision 0.5", detailed(Detail{Groups: []string{"g"}, Precision: 0.5})},
		{"no factor", CodeBadRequest, "NaN", detailed(Detail{Groups: []string{"g"}, Precision: math.NaN()})},
		{"a rate too high", CodeBadRequest, "rate 1001", detailed(Detail{Groups: []string{"g"}, Rate: 1001})},
		{"a group with a bad name", CodeBadRequest, "g g", detailed(Detail{Groups: []string{"g g"}, Rate: 1})},
		{"too many levels of detail", CodeBadRequest, "9", detailed(make([]Detail, 9)...)},
		{"audience of an unknown state", CodeUnknownState, "no", Op{Kind: OpAudience, Key: "no"}},
		{"kick of an unknown client", CodeUnknownClient, "c9", Op{Kind: OpKick, Client: "c9"}},
		{"groups of an unknown client", CodeUnknownClient, "c9", Op{Kind: OpGroup, Client: "c9", Join: []string{"g"}}},
		{"bad client", CodeBadRequest, "c 9", Op{Kind: OpKick, Client: "c 9"}},
		{"bad group", CodeBadRequest, "g g", Op{Kind: OpGroup, Client: "c1", Join: []string{"g g"}}},
		{"too many groups", CodeTooLarge, "3 groups", Op{Kind: OpGroup, Client: "c1", Join: []string{"a", "b", "c"}}},
		{"no value of that name", CodeBadRequest, "mana", set("a", "mana", u8(1))},
		{"no value of that index", CodeBadRequest, "3", set("a", "3", u8(1))},
		{"a repeated value", CodeBadRequest, "twice", set("a", "hp", u8(1), "0", u8(2))},
		{"set of no value", CodeBadRequest, "no value", set("a")},
		{"wrong type", CodeTypeMismatch, `"hp"`, set("a", "hp", str("x"))},
		{"null for a value that is not nullable", CodeTypeMismatch, `"hp"`, set("a", "hp", Null{})},
		{"too long text", CodeTooLarge, `"text"`, set("a", "text", str(long))},
		{"too long text in a put", CodeTooLarge, `"text"`, tower("b", u8(1), u8(1), str(long))},
		{"empty message", CodeBadRequest, "message", put(func(op *Op) { op.HasMessage = true })},
		{"too long message", CodeTooLarge, "message", put(func(op *Op) { op.HasMessage, op.Message = true, []byte(long) })},
		{"too long farewell", CodeTooLarge, "farewell", put(func(op *Op) { op.HasFarewell, op.Farewell = true, []byte(long) })},
		{"no values", CodeBadRequest, "value", put(func(op *Op) { op.Values = nil })},
		{"too many values", CodeTooLarge, "301", put(func(op *Op) { op.Values = make([]PutValue, 301) })},
		{"unknown type", CodeTypeMismatch, "99", value(func(v *PutValue) { v.Type = 99 })},
		{"bad name", CodeBadRequest, "1st", value(func(v *PutValue) { v.Name = "1st" })},
		{"a repeated name", CodeBadRequest, "hp", value(func(v *PutValue) { v.Name = "hp" })},
		{"bad precision", CodeOutOfRange, "precision", value(func(v *PutValue) { v.Precision = -1 })},
		{"substitute of another type", CodeTypeMismatch, "substitute", value(func(v *PutValue) { v.Null = []byte{1, 2} })},
		{"bad writer", CodeBadRequest, "w w", put(func(op *Op) { op.Access = Access{Kind: AccessWriters, Writers: []string{"w w"}} })},
		{"unknown access", CodeBadRequest, "access", put(func(op *Op) { op.Access.Kind = 9 })},
		{"unknown audience", CodeBadRequest, "audience", Op{Kind: OpAudience, Key: "a", Audience: Audience{Kind: 9}}},
		{"too many names", CodeTooLarge, "1025", Op{Kind: OpAudience, Key: "a", Audience: Audience{Kind: AudienceListed, Clients: make([]string, 1025)}}},
		{"too many views", CodeTooLarge, "views", put(func(op *Op) { op.Values = strings16k(6) })},
		{"a LinkState too large for a client", CodeTooLarge, "60000", put(func(op *Op) { op.Values = largeStrings(4) })},
	} {
		s.refuse(c.why, c.code, c.about, c.op)
		s.refuse(c.why+", after ops that had to be undone", c.code, c.about,
			tower("a", u8(9), Null{}, str("zzz")), tower("new"), set("a", "hp", u8(7)), c.op)
	}
	s.refuse("no op", CodeBadRequest, "no op")
}

// strings16k returns n string values that take a view each.
func strings16k(n int) []PutValue {
	v := make([]PutValue, n)
	for i := range v {
		v[i].Type = wire.TypeString
	}
	return v
}

func largeStrings(n int) []PutValue {
	v := strings16k(n)
	for i := range v {
		v[i].Value = str(strings.Repeat("y", 15_100))
	}
	return v[:n]
}

// A set cannot grow the LinkState of a state beyond its limit either.
func TestStoreSetKeepsTheLinkStateSmall(t *testing.T) {
	s := newStoreTest(t, Limits{ValueBytes: 16_000})
	op := Op{Kind: OpPut, Key: "a", Values: largeStrings(3)}
	op.Values = append(op.Values, strings16k(1)...)
	s.ok(op)
	s.refuse("60,000 bytes", CodeTooLarge, "60000", set("a", "3", str(strings.Repeat("y", 15_000))))
	s.ok(set("a", "3", str(strings.Repeat("y", 14_000))))
}

func TestStoreFailedAtomicEmitsNothing(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(tower("a", u8(1), u8(2), str("x")))
	s.ok(tower("b", u8(1)))
	s.sends("both", 0, "batch 7 1<0 assign 1.0=1 1:describe 1:3:000102010078 assign 2.0=2 2:describe 2:3:01010000",
		"answer 77 (7, 1) durable true", "answer 77 (7, 1) durable true")
	describe := tower("a", u8(5), Null{}, str("long text"))
	describe.HasMessage, describe.Message = true, []byte("other")
	s.refuse("every kind of op is undone", CodeUnknownState, "no", describe, set("a", "hp", u8(3)),
		Op{Kind: OpRemove, Key: "b"}, tower("b"), Op{Kind: OpClear}, tower("a"), Op{Kind: OpRemove, Key: "no"})
	s.sends("nothing remains of the ops", 20*time.Millisecond, "answer 0 unknown_state")
	s.ok(set("b", "hp", u8(2)))
	s.sends("RefIds and states are unchanged", 20*time.Millisecond, "batch 7 2<1 2:1:0002", "answer 77 (7, 2) durable true")
}

func TestStoreEachForItself(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.Publish(s.now, Publish{Ops: []Op{tower("a"), set("no", "hp", u8(1)), set("a", "hp", u8(1))}, Token: 3})
	for _, o := range s.Advance(s.now) {
		if o.Kind != OutputAnswer {
			continue
		}
		r := o.Answer.Results
		if len(r) != 3 || r[0] != nil || r[1] == nil || r[1].Code != CodeUnknownState || r[1].Op != 1 || r[2] != nil {
			t.Fatalf("results %+v", r)
		}
		return
	}
	t.Fatal("no answer")
}

func TestStoreBusy(t *testing.T) {
	s := newStoreTest(t, Limits{Waiting: 2})
	for range 2 {
		s.ok(tower("a", u8(byte(s.stats.Publishes))))
	}
	err := publish(s.Store, s.now, tower("a"))
	if err == nil || err.Code != CodeBusy || err.RetryAfter == 0 {
		t.Fatalf("a third waiting publish: %v, want busy with RetryAfter", err)
	}
}
