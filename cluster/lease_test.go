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
	l.SeenHolder(now, ParseHolder(10, []byte(`{"format":2,"node":"b","id":"1","released":true}`)))
	seq := uint64(11)
	step := func(renews bool) (acquires bool) {
		l.Want(now, 0)
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

// TestSpareWait checks that the times for which relays let others go first are bounded: with the
// longest of them a shard whose holder died has another within 5 s, and one whose worker hangs, or
// that was released to a ghost, too.
func TestSpareWait(t *testing.T) {
	for rank := range 30 {
		if spareWait(rank+1) < spareWait(rank) {
			t.Errorf("rank %d waits for less than rank %d", rank+1, rank)
		}
	}
	for _, first := range []time.Duration{challengeWait, wantTimeout, targetWait} {
		if all := first + spareWait(1000); all > 4500*time.Millisecond {
			t.Errorf("a shard may lie idle for %v", all)
		}
	}
}

// TestHungWithBatch has the worker of a shard hang while the store takes no batch. The shard is
// released nevertheless, and not held by renewals.
func TestHungWithBatch(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLease(LeaseConfig{Node: "a", ID: "1"})
	l.Want(now, 0)
	for range 100 {
		for _, a := range l.Advance(now) {
			switch a.Kind {
			case ActionRead:
				l.Answer(now, Answer{Verdict: fence.OK})
			case ActionAcquire:
				l.Answer(now, Answer{Verdict: fence.OK, Seq: 7, Heartbeat: Heartbeat{Seq: 6}})
				l.Want(now, 0)
			case ActionAcquired:
				l.Store(now, 1)
			case ActionStore:
				l.Answer(now, Answer{Verdict: fence.TooLarge})
			case ActionRenew:
				l.Answer(now, Answer{Verdict: fence.OK, Seq: 8})
			case ActionRelease:
				if a.Holder.To != "" {
					t.Errorf("the shard is released to %q, want to any relay", a.Holder.To)
				}
				l.Answer(now, Answer{Verdict: fence.OK, Seq: 9})
			case ActionLost:
				if took := now.Sub(time.Unix(1000, 0)); a.Reason != ReasonHung || took < wantTimeout || took > wantTimeout+time.Second {
					t.Errorf("the shard is lost after %v because of %q, want after %v because the worker hangs", took, a.Reason, wantTimeout)
				}
				return
			}
		}
		now = now.Add(50 * time.Millisecond)
	}
	t.Error("the shard is held although its worker hangs")
}

// TestSpareTrace has a relay take a shard as a spare, without an answer. When it finds the
// trace of that attempt, it must acquire the shard at once, and still know that it is a spare.
func TestSpareTrace(t *testing.T) {
	now, read := time.Unix(1000, 0), time.Time{}
	l := NewLease(LeaseConfig{Node: "b", ID: "1"})
	l.SeenHolder(now, Holder{Seq: 5, Node: "x", Released: true})
	attempts := 0
	for range 100 {
		l.Want(now, 1)
		for _, a := range l.Advance(now) {
			switch {
			case a.Kind == ActionAcquired:
				if !a.Spare || attempts != 2 {
					t.Errorf("after %d attempts the relay holds the shard, as a spare: %v; want 2 and true", attempts, a.Spare)
				}
				if waited := now.Sub(read); waited > 200*time.Millisecond {
					t.Errorf("the relay waited for %v after it found its own trace", waited)
				}
				return
			case a.Kind == ActionRead:
				if read.IsZero() {
					read = now
				}
				l.Answer(now, Answer{Verdict: fence.OK, Holder: Holder{Seq: 7, Node: "b", ID: "1"}, Heartbeat: Heartbeat{Seq: 6}})
			case attempts == 0:
				attempts++
				l.Answer(now, Answer{Verdict: fence.Unknown})
			default:
				attempts++
				l.Answer(now, Answer{Verdict: fence.OK, Seq: 9, Heartbeat: Heartbeat{Seq: 8}})
			}
		}
		now = now.Add(50 * time.Millisecond)
	}
	t.Error("the relay does not take the shard")
}
