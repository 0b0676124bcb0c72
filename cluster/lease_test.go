package cluster

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// TestRecords checks the stored form of lease records, which must not change without another
// format number, and that a record of another format is that of an unknown holder.
func TestRecords(t *testing.T) {
	h := Holder{Node: "a", ID: "1", Released: true, To: "b"}
	if got, want := string(h.Append(nil)), `{"node":"a","id":"1","released":true,"to":"b"}`; got != want {
		t.Errorf("a holder is stored as %s, want %s", got, want)
	}
	b := Heartbeat{Epoch: 7, Write: 9}
	if got, want := string(b.Append(nil)), `{"epoch":7,"write":9}`; got != want {
		t.Errorf("a heartbeat is stored as %s, want %s", got, want)
	}
	for _, c := range []struct {
		data string
		want Holder
	}{
		{`{"node":"a","id":"1","released":true,"to":"b"}`, h},
		{`{"node":"a","id":"1","released":true,"to":"b","colour":"red"}`, h},
		{`{"format":1,"node":"a"}`, Holder{Format: 1, Node: "a"}},
		{`{"format":2,"node":"a","id":"1","released":true}`, Holder{}},
		{`{"format":"two","node":"a"}`, Holder{}},
		{`damaged`, Holder{}},
	} {
		c.want.Seq = 5
		if got := ParseHolder(5, []byte(c.data)); got != c.want {
			t.Errorf("%s is read as %+v, want %+v", c.data, got, c.want)
		}
	}
	for _, c := range []struct {
		data string
		want Heartbeat
	}{
		{`{"epoch":7,"write":9,"colour":"red"}`, b},
		{`{"format":2,"epoch":7,"write":9}`, Heartbeat{}},
		{`damaged`, Heartbeat{}},
	} {
		c.want.Seq = 5
		if got := ParseHeartbeat(5, []byte(c.data)); got != c.want {
			t.Errorf("%s is read as %+v, want %+v", c.data, got, c.want)
		}
	}
}

// TestHolderOfOtherFormat checks that a relay leaves a shard alone whose holder writes another
// format, for as long as the holder renews, even if the record would be a release.
func TestHolderOfOtherFormat(t *testing.T) {
	l := NewLease(LeaseConfig{Node: "b", ID: "1"})
	now := time.Unix(1000, 0)
	l.Want(now, true)
	l.SeenHolder(now, ParseHolder(10, []byte(`{"format":2,"node":"b","id":"1","released":true}`)))
	seq := uint64(11)
	step := func(renews bool) (acquires bool) {
		if renews {
			l.SeenHeartbeat(now, ParseHeartbeat(seq, []byte(`{"format":2,"epoch":10,"write":1}`)))
			seq++
		}
		for _, a := range l.Advance(now) {
			switch a.Kind {
			case ActionRead:
				l.Answer(now, Answer{Verdict: fence.OK, Holder: Holder{Seq: 10}, Heartbeat: Heartbeat{Seq: seq - 1}})
			case ActionAcquire:
				return true
			}
		}
		now = now.Add(100 * time.Millisecond)
		return false
	}
	for i := range 100 {
		if step(i%5 == 0) {
			t.Fatalf("the relay takes the shard %v after the holder renewed", time.Duration(i%5)*100*time.Millisecond)
		}
	}
	quiet := 0
	for !step(false) {
		if quiet++; quiet > 40 {
			t.Fatal("the relay does not take the shard although its holder is silent for 4 s")
		}
	}
	if quiet < 25 {
		t.Errorf("the relay takes the shard after %d00 ms of silence, want about 3 s", quiet)
	}
}
