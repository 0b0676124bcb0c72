package payload

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

func wantJSON(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
	if !json.Valid(got) {
		t.Errorf("%s: %s is not JSON", what, got)
	}
}

func TestAnswers(t *testing.T) {
	wantJSON(t, "applied", JSON.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: 1234, Durable: true}),
		`{"epoch":7,"seq":1234}`)
	wantJSON(t, "the store does not respond", JSON.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: 1234}),
		`{"epoch":7,"seq":1234,"durable":false}`)
	mismatch := replication.Errorf(replication.CodeTypeMismatch, `value "hp": want float32, got string`)
	wantJSON(t, "refused", JSON.AppendAnswer(nil, &replication.Answer{Err: mismatch}),
		`{"error":{"code":"type_mismatch","message":"value \"hp\": want float32, got string","op":0}}`)
	busy := &replication.Error{Code: replication.CodeBusy, Message: "m", Op: 3, RetryAfter: 250 * time.Millisecond}
	wantJSON(t, "busy", JSON.AppendAnswer(nil, &replication.Answer{Err: busy}),
		`{"error":{"code":"busy","message":"m","op":3,"retry_after_ms":250}}`)
	wantJSON(t, "not atomic", JSON.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: 2, Durable: true, Results: []*replication.Error{nil, mismatch}}),
		`{"epoch":7,"seq":2,"results":[{"ok":true},{"error":{"code":"type_mismatch","message":"value \"hp\": want float32, got string","op":0}}]}`)
}

func TestEvents(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 5, 6, 7_890_000, time.FixedZone("", 3600))
	const head = `"space":"demo","ts":"2026-11-21T03:05:06.007Z","epoch":7,"seq":9`
	for _, c := range []struct {
		event replication.Event
		want  string
	}{
		{replication.Event{Type: "joined", Client: "c", Session: "s", Edge: "e"}, `,"client":"c","session":"s","edge":"e"`},
		{replication.Event{Type: "left", Client: "c", Session: "s", Edge: "e", Reason: "closed"}, `,"client":"c","session":"s","edge":"e","reason":"closed"`},
		{replication.Event{Type: "linked", Client: "c", Key: "k"}, `,"client":"c","key":"k","link":0`},
		{replication.Event{Type: "presumed", Client: "c", Key: "k", Link: 0x8001}, `,"client":"c","key":"k","link":32769`},
		{replication.Event{Type: "rejected", Client: "c", Key: "k", Link: 0x8000}, `,"client":"c","key":"k","link":32768`},
		{
			replication.Event{Type: "changed", Client: "c", Key: "k", Values: []replication.EventValue{{Name: "hp", Type: 1, Value: []byte{5}}, {Name: "1", Type: 14, Value: []byte{1, 2}}}},
			`,"client":"c","key":"k","values":{"hp":5,"1":[1,2]}`,
		},
		{
			replication.Event{Type: "refused", Client: "c", Key: "k", Code: "not_authorised", Values: []replication.EventValue{{Name: "hp", Type: 1, Value: []byte{5}}}},
			`,"client":"c","key":"k","values":{"hp":5},"code":"not_authorised"`,
		},
		{
			replication.Event{Type: "refused", Client: "c", Key: "k", Code: "out_of_range", Reason: "finite", Missed: 3, Values: []replication.EventValue{{Name: "x", Type: 9, Value: []byte{0, 0, 0xc0, 0x7f}}}},
			`,"client":"c","reason":"finite","key":"k","values":{"x":null},"code":"out_of_range","missed":3`,
		},
		{replication.Event{Type: "reassert", Shard: 0, LostAfter: at}, `,"shard":0,"lost_after":"2026-11-21T03:05:06.007Z"`},
		{replication.Event{Type: "reassert", Shard: 3}, `,"shard":3`},
		{replication.Event{Type: "recycle", Client: "c"}, `,"client":"c"`},
		{replication.Event{Type: "recycle", Client: "c", Reason: "used_up"}, `,"client":"c","reason":"used_up"`},
		{replication.Event{Type: "limited", Client: "c", Session: "s"}, `,"client":"c","session":"s"`},
		{replication.Event{Type: "expired", Key: "k"}, `,"key":"k"`},
		{replication.Event{Type: "sees", Client: "c", Session: "s", Keys: []string{"k.1", "k.2"}}, `,"client":"c","session":"s","keys":["k.1","k.2"]`},
		{replication.Event{Type: "sees", Client: "c", Anew: true}, `,"client":"c","keys":[],"anew":true`},
		{replication.Event{Type: "unsees", Client: "c", Keys: []string{"k"}}, `,"client":"c","keys":["k"]`},
		{replication.Event{Type: "command", Client: "c", Session: "s", Key: "k", Command: "open"}, `,"client":"c","session":"s","key":"k","command":"open"`},
		{replication.Event{Type: "uncertain", Client: "c", Session: "s", Numbers: []uint64{1, 1 << 60}}, `,"client":"c","session":"s","numbers":[1,"1152921504606846976"]`},
	} {
		c.event.Space, c.event.Time, c.event.Epoch, c.event.Seq = "demo", at, 7, 9
		wantJSON(t, string(c.event.Type), JSON.AppendEvent(nil, &c.event), `{"v":1,"type":"`+string(c.event.Type)+`",`+head+c.want+`}`)
	}
}

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "1s", 90 * time.Second: "1m30s", time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 30 * time.Second: "30s"} {
		if got := DurationText(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestStringsAreJSON(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "a\x00\x1f\x7f": "a\x00\x1f\x7f", "\"\\/": "\"\\/", "é😀\u2028": "é😀\u2028", "\xff\xc3a": "��a",
	} {
		var back string
		if err := json.Unmarshal(appendString(nil, s), &back); err != nil || back != want {
			t.Errorf("%q became %q, %v, want %q", s, back, err, want)
		}
	}
}

// listed makes the state that the store would make of a put.
func listed(t testing.TB, op *replication.Op) *replication.State {
	d := &replication.Description{
		Key: op.Key, Access: op.Access, Audience: op.Audience, Message: op.Message, Farewell: op.Farewell, Priority: op.Priority, Details: op.Details, TTL: op.TTL,
	}
	for _, v := range op.Values {
		d.Values = append(d.Values, v.ValueDef)
	}
	layout, err := d.Layout()
	if err != nil {
		t.Fatal(err)
	}
	l := &replication.State{Desc: d, Values: netstate.NewState(layout), Nulls: netstate.NewMask(len(op.Values))}
	for i, v := range op.Values {
		if v.Value == nil {
			continue
		}
		enc, null, err := v.Append(nil, v.Value)
		if err != nil {
			t.Fatal(err)
		}
		if null {
			l.Nulls.Set(i)
			continue
		}
		l.Values.Set(i, enc)
	}
	return l
}

func TestListing(t *testing.T) {
	p := mustParse(t, tower, "")
	l := &replication.Listing{Epoch: 7, Seq: 8, States: []*replication.State{listed(t, &p.Ops[0])}}
	const state = `{"op":"put","key":"tower","message":"text","farewell":"gone","access":"read-only","audience":{"all":true},"values":[` +
		`{"name":"hp","type":"float32","value":93.5,"precision":0.1},` +
		`{"name":"pos","type":"vector3f32","value":[1,2,3],"precision":0.01},` +
		`{"name":"owner","type":"string","value":null,"nullable":true,"null":""}]}`
	wantJSON(t, "one state", JSON.AppendListing(nil, l, 1<<20), `{"epoch":7,"seq":8,"states":[`+state+`]}`)
	l.After = "tower"
	wantJSON(t, "more follow", JSON.AppendListing(nil, l, 1<<20), `{"epoch":7,"seq":8,"states":[`+state+`],"after":"tower"}`)
	wantJSON(t, "too large, but the first state is never left out", JSON.AppendListing(nil, l, 1), `{"epoch":7,"seq":8,"states":[`+state+`],"after":"tower"}`)
	l.After = ""
	l.States = append(l.States, l.States[0])
	wantJSON(t, "two states do not fit", JSON.AppendListing(nil, l, len(state)*2), `{"epoch":7,"seq":8,"states":[`+state+`],"after":"tower"}`)
	wantJSON(t, "empty", JSON.AppendListing(nil, &replication.Listing{Epoch: 1}, 100), `{"epoch":1,"seq":0,"states":[]}`)
}

// The states in the answer to a get can be published, with the same meaning.
func TestListingRoundTrip(t *testing.T) {
	rnd := newRand(t)
	for range 300 {
		op := randomPut(rnd)
		before := putText(t, &op)
		back := mustParse(t, before, "").Ops[0]
		if after := putText(t, &back); after != before {
			t.Fatalf("%s\nbecame\n%s", before, after)
		}
		if back.TTL != op.TTL {
			t.Fatalf("%v became %v in %s", op.TTL, back.TTL, before)
		}
		for i := range op.Values {
			a, b := op.Values[i], back.Values[i]
			a.Value, b.Value = nil, nil
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("%+v\nbecame\n%+v", a, b)
			}
		}
		op.Values, back.Values = nil, nil
		if !reflect.DeepEqual(op, back) {
			t.Fatalf("%+v\nbecame\n%+v", op, back)
		}
	}
}

// What is written of a space with states of every kind makes an equal one, also by the way of the durable store.
func TestWriteStored(t *testing.T) {
	rnd := newRand(t)
	written := func(s *replication.Store) string {
		t.Helper()
		c := replication.Stored{Space: "demo"}
		for _, part := range s.Repair(time.Unix(1, 0), c.Request()) {
			if _, err := c.Apply(part); err != nil {
				t.Fatal(err)
			}
		}
		var b strings.Builder
		WriteStored(&b, &c)
		return b.String()
	}
	for range 20 {
		one := replication.NewStore(replication.StoreConfig{Space: "demo", Epoch: 7})
		for i := range 20 {
			op := randomPut(rnd)
			op.Key, op.HasInterest = "k"+strconv.Itoa(i), true
			if err := one.Publish(time.Unix(1, 0), replication.Publish{Ops: []replication.Op{op}, Atomic: true}); err != nil {
				t.Fatal(err)
			}
		}
		want := written(one)
		other := replication.NewStore(replication.StoreConfig{Space: "demo", Epoch: 9})
		for op := range strings.Lines(want) {
			if err := other.Publish(time.Unix(1, 0), mustParse(t, op, "")); err != nil {
				t.Fatalf("%v: %s", err, op)
			}
		}
		if got := written(other); got != want {
			t.Fatalf("%s\nbecame\n%s", want, got)
		}
	}
}

func putText(t testing.TB, op *replication.Op) string {
	return string(putIn(t, JSON, op))
}

func putIn(t testing.TB, f Form, op *replication.Op) []byte {
	l := listed(t, op)
	e := newEmitter(f, nil)
	e.put(l, nil)
	return e.done()
}

func randomPut(rnd *rand.Rand) replication.Op {
	op := replication.Op{
		Kind: replication.OpPut, Key: "a.b-C_9", HasMessage: true, HasAccess: true, HasAudience: true,
		Message: []byte([]string{"m", "base64:", "text:x", "\xff\x00", "é\"\\\n"}[rnd.IntN(5)]),
	}
	if op.HasFarewell = rnd.IntN(2) == 0; op.HasFarewell {
		op.Farewell = []byte{byte(rnd.Uint32()), byte(rnd.Uint32())}
	}
	names := func() (all []string) {
		for i := range rnd.IntN(3) {
			all = append(all, "n"+string('0'+rune(i)))
		}
		return all
	}
	op.Access.Kind = replication.AccessKind(rnd.IntN(3))
	if op.Access.Kind == replication.AccessWriters {
		op.Access.Writers = names()
	}
	op.Audience.Kind = replication.AudienceKind(rnd.IntN(4))
	if op.Audience.Kind >= replication.AudienceListed {
		op.Audience.Groups, op.Audience.Clients = append(names(), "one"), names()
	}
	if op.HasPriority = rnd.IntN(2) == 0; op.HasPriority {
		op.Priority = uint8(2 + rnd.IntN(replication.PriorityMax-1))
	}
	if op.HasTTL = rnd.IntN(2) == 0; op.HasTTL {
		op.TTL = []time.Duration{time.Second, 90 * time.Minute, replication.TTLMax, replication.TTLMin + time.Duration(rnd.Int64N(int64(replication.TTLMax-replication.TTLMin)))}[rnd.IntN(4)]
	}
	for range rnd.IntN(3) {
		op.HasDetails = true
		op.Details = append(op.Details, replication.Detail{
			Groups: names(), Clients: append(names(), "one"), Precision: 1 + 100*rnd.Float64(), Rate: []float64{0, 0.01, 7.5}[rnd.IntN(3)],
		})
	}
	for i := range 1 + rnd.IntN(20) {
		op.Values = append(op.Values, randomPutValue(rnd, i))
	}
	return op
}

func randomPutValue(rnd *rand.Rand, i int) replication.PutValue {
	v := replication.PutValue{Value: replication.Null{}}
	v.Type = wire.ValueType(rnd.IntN(wire.ValueTypes))
	finite := func() []byte {
		for {
			enc := randomValue(rnd, v.Type)
			if !strings.Contains(string(AppendValue(nil, v.Type, enc)), "null") {
				return enc
			}
		}
	}
	if rnd.IntN(4) > 0 {
		v.Name = "v" + string('a'+rune(i))
	}
	if rnd.IntN(3) == 0 {
		v.Precision = rnd.Float64()
	}
	if v.Nullable = rnd.IntN(3) == 0; v.Nullable {
		v.Null = finite()
	}
	if !v.Nullable || rnd.IntN(2) == 0 {
		v.Value = replication.Encoded{Type: v.Type, Value: finite()}
	}
	return v
}

func TestParseGet(t *testing.T) {
	for body, want := range map[string]GetRequest{
		``: {}, `{}`: {}, ` {"after":"a.b","max":10}`: {After: "a.b", Max: 10}, `{"after":""}`: {},
	} {
		if got, err := JSON.ParseGet([]byte(body)); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", body, got, err)
		}
	}
	for _, body := range []string{`x`, `[]`, `{"key":"a"}`, `{"after":7}`, `{"after":"a b"}`, `{"max":"1"}`, `{"max":-1}`, `{"max":1.5}`, `{"max":65536}`} {
		if got, err := JSON.ParseGet([]byte(body)); err == nil {
			t.Errorf("%s: got %+v, want an error", body, got)
		}
	}
}
