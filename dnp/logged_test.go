package dnp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// logged returns a test with a server whose peer is connected and waits for a log.
func logged(t *testing.T) *connTest {
	t.Helper()
	cfg := quiet()
	cfg.Logged = true
	return serve(t, cfg)
}

// store stores everything that waits, and lets the Endpoint go on.
func (s *connTest) store() {
	s.Helper()
	s.c.Changes(1 << 20)
	s.c.Stored()
	s.pump()
}

func TestLoggedReceive(t *testing.T) {
	s := logged(t)
	s.recv("04 0000 61")
	s.want("it is not acknowledged before it is stored")
	s.events("nor passed on", "unstored")
	s.recv("04 0000 61", "04 0200 63")
	s.want("however often it comes")
	s.events("the owner was told")
	ch := s.c.Changes(1 << 20)
	if len(ch.Received) != 1 || ch.Received[0].Number != 0 {
		t.Fatalf("changes %+v, want number 0 once; number 2 may be forged", ch)
	}
	s.recv("04 0100 62")
	s.events("one that comes while the other is being written", "unstored")
	s.c.Stored()
	s.pump()
	s.want("a stored command is acknowledged", "06 0000 00")
	s.events("and passed on", "message 0 a")
	s.store()
	s.want("the next write has the one that closed the gap, and the one behind", "06 0100 00", "06 0200 00")
	s.events("in their order", "message 1 b", "message 2 c")
	s.recv("04 0100 62")
	s.want("the repeat of a stored command is acknowledged at once", "06 0100 00")
}

// TestLoggedHole: what a number is missing for is not stored, and forgotten in time, however often
// the connection does something meanwhile.
func TestLoggedHole(t *testing.T) {
	s := logged(t)
	s.recv("04 0100 62")
	s.events("it may be forged")
	for range 39 {
		s.wait(100 * time.Millisecond)
		s.c.wake() // as everything does that the connection sends
		s.pump()
	}
	s.dropped("a sender repeats for 3 s", DropUnfinished, 0)
	s.wait(200 * time.Millisecond)
	s.dropped("after 4 s it is forgotten", DropUnfinished, 1)
	s.recv("04 0000 61")
	s.store()
	s.want("the session goes on", "06 0000 00")
}

// TestLoggedHoleStored: a log may have commands before their turn, which were acknowledged. A number
// that stays missing before them ends the connection.
func TestLoggedHoleStored(t *testing.T) {
	s := restored(t)
	replay := Changes{Received: []ReceivedCommand{{Number: 1, Command: wire.CommandReliableMessage, Body: unhex("0100 62")}}}
	if err := s.c.Replay(s.now, replay, nil); err != nil {
		t.Fatal(err)
	}
	s.wait(3900 * time.Millisecond)
	if reason, ok := s.c.Ending(); ok {
		t.Fatalf("ends as %v after 3.9 s, but a sender repeats for 3 s", reason)
	}
	s.wait(200 * time.Millisecond)
	if reason, ok := s.c.Ending(); !ok || reason != CloseHole {
		t.Fatalf("ending %v %v after 4.1 s, want hole", reason, ok)
	}
}

func TestLoggedSend(t *testing.T) {
	s := logged(t)
	if err := s.c.Send([]byte("x"), 7); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.want("nothing is sent before its meaning is stored")
	s.events("and no number is promised", "unstored")
	s.wait(2 * time.Second)
	s.want("time does not change that")
	if ch := s.c.Changes(1 << 20); len(ch.Sent) != 1 || ch.Sent[0].Number != 0 || string(ch.Sent[0].Data) != "x" {
		t.Fatalf("changes %+v", ch)
	}
	s.c.Stored()
	s.pump()
	s.want("then it is", "04 0000 78")
	s.events("and its number is told", "sent 7 number=0")
	s.wait(500 * time.Millisecond)
	s.want("and repeated", "04 0000 78")
}

func TestLoggedEnd(t *testing.T) {
	s := logged(t)
	s.c.Close(CloseKicked)
	s.wait(time.Minute)
	s.want("the peer is told nothing before the end is stored")
	s.events("and the owner has to store it", "unstored")
	if reason, ok := s.c.Ending(); !ok || reason != CloseKicked {
		t.Fatalf("ending %v %v", reason, ok)
	}
	s.c.Ended()
	s.pump()
	s.want("then it is over", "02")
	s.events("for good", "closed kicked")
}

func TestLoggedFenced(t *testing.T) {
	s := logged(t)
	s.c.Close(CloseTimeout)
	s.pump()
	s.c.Close(CloseMoved)
	s.pump()
	s.want("a session that goes on elsewhere is not ended, even if Close was called before")
	s.events("the owner is told", "unstored", "closed moved")
}

func TestLoggedMute(t *testing.T) {
	s := logged(t)
	if err := s.c.Send([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.store()
	s.recv("04 0000 61")
	s.store()
	s.sent, s.happen = nil, nil
	s.c.Mute(true)
	s.recv("04 0000 61")
	s.wait(time.Minute)
	s.want("a muted connection sends nothing, not even what is stored")
	s.events("and does not end")
	s.c.Mute(false)
	s.pump()
	s.want("it ends only when it may send")
	s.events("and this one was muted for longer than the reliable timeout", "unstored")
}

// restored returns a test with a connection that an edge restored from the checkpoint of
// another one, which has received and sent nothing.
func restored(t *testing.T) *connTest {
	t.Helper()
	checkpoint := logged(t).c.AppendCheckpoint(nil)
	cfg := quiet()
	cfg.Logged = true
	s := newTest(t, cfg)
	c, err := s.e.Restore(s.now, peerAddr, checkpoint, func(uint64) *Source { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s.c = c
	s.c.loss = lossEstimate{weight: lossMemory}
	return s
}

// impossible are as many datagrams as are a reason to ask whether the log is right.
func (s *connTest) impossible() {
	for range contradictionsMax / 2 {
		s.recv("04 3075 78", "06 3005 00")
	}
}

func TestLoggedContradiction(t *testing.T) {
	s := logged(t)
	s.impossible()
	s.store()
	s.want("numbers that cannot be are forged or late while one edge has the session")

	s = restored(t)
	s.impossible()
	s.store()
	id := s.asks("after an adoption they are a reason to ask", 0)
	s.recv("06 0000 00", "08"+id)
	s.answers("it has the same history", 1)
	s.store()
	s.recv("06 0100 00", "08"+s.asks("and once more", 1))
	s.answers("it has", 1)
	s.store()
	s.wait(contradictionTime + 1)
	if reason, ok := s.c.Ending(); ok {
		t.Fatalf("ends as %v", reason)
	}
	s.sent = nil
	s.impossible()
	s.store()
	s.want("ten seconds later they mean nothing")
}

// answers requires a number of answers to questions since the last call.
func (s *connTest) answers(why string, n int) {
	s.Helper()
	s.told(why, slices.Repeat([]string{"answered"}, n)...)
}

// told requires events since the last call, besides those that say that there is something to store.
func (s *connTest) told(why string, want ...string) {
	s.Helper()
	s.happen = slices.DeleteFunc(s.happen, func(e string) bool { return e == "unstored" })
	s.events(why, want...)
}

// TestAsk asks a peer, and tells answers from guesses and from late datagrams.
func TestAsk(t *testing.T) {
	s := logged(t)
	s.c.Ask()
	s.pump()
	s.store()
	first := s.asks("a question", 0)
	s.recv("06 0000 00", "07 0010", "08 ff4f")
	s.answers("the number alone, and guesses", 0)
	s.recv("08" + first)
	s.answers("the id", 1)
	s.store()
	second := s.asks("the next question at once", 1)
	if first == second {
		t.Fatalf("twice the same id %s", first)
	}
	s.recv("08" + first)
	s.answers("an answer to the question before", 0)
	s.recv("07"+second, "06 0100 00", "07"+second)
	s.answers("twice the same answer, the first before the number", 1)
	s.store()
	s.sent = nil
	s.c.Ask()
	s.wait(questionPause / 2)
	s.silent("no series begins sooner than a second after another")
	s.wait(questionPause / 2)
	s.store()
	s.recv("06 0200 00", "07"+s.asks("the next series", 2))
	s.store()
	s.recv("06 0300 00", "08"+s.asks("its second question", 3))
	s.answers("two answers", 2)
	s.store()
	s.wait(time.Minute)
	s.silent("the series is over")
}

// TestLoggedUncertain: a peer that goes on where the log ends too early takes the numbers of
// questions for old ones, acknowledges them and does not answer.
func TestLoggedUncertain(t *testing.T) {
	s := restored(t)
	s.impossible()
	for n := range byte(questionsMax) {
		s.store()
		s.sent = nil
		if _, ok := s.c.Ending(); ok {
			t.Fatalf("ends after %d questions", n)
		}
		s.recv(fmt.Sprintf("06 %02x00 00", n))
		s.wait(questionPatience)
	}
	if reason, ok := s.c.Ending(); !ok || reason != CloseUncertain {
		t.Fatalf("ending %v %v, want uncertain", reason, ok)
	}
}

// TestLoggedAnsweredOnce: a peer that answered one question, before its acknowledgement came, has
// the history of the log, however many impossible numbers are forged meanwhile.
func TestLoggedAnsweredOnce(t *testing.T) {
	s := restored(t)
	s.impossible()
	for n := range byte(questionsMax) {
		s.store()
		if n == 0 {
			s.recv("08" + s.asks("the first question", 0))
		}
		s.sent = nil
		s.recv(fmt.Sprintf("06 %02x00 00", n))
		s.impossible()
		s.wait(questionPatience)
	}
	if reason, ok := s.c.Ending(); ok {
		t.Fatalf("ends as %v", reason)
	}
}

// TestLoggedReplay restores a connection from a checkpoint and the changes since, and
// compares it with one restored from a later checkpoint.
func TestLoggedReplay(t *testing.T) {
	s := logged(t)
	src := s.source("uint8")
	first := s.c.AppendCheckpoint(nil)
	if err := s.c.Link(src, true); err != nil {
		t.Fatal(err)
	}
	if err := s.c.Send([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	s.recv("04 0000 61", "04 0200 63")
	one := cloneChanges(s.c.Changes(1 << 20))
	s.c.Stored()
	s.pump()
	s.recv("06 0000 00", "07 0080")
	two := cloneChanges(s.c.Changes(1 << 20))
	s.c.Stored()
	last := s.c.AppendCheckpoint(nil)

	restored := func(snapshot []byte, changes ...Changes) []byte {
		t.Helper()
		cfg := quiet()
		cfg.Logged = true
		o := newTest(t, cfg)
		src := o.source("uint8")
		resolve := func(uint64) *Source { return src }
		c, err := o.e.Restore(o.now, peerAddr, snapshot, resolve)
		for _, ch := range changes {
			if err == nil {
				err = c.Replay(o.now, ch, resolve)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.AppendCheckpoint(nil)
	}
	if a, b := restored(first, one, two), restored(last); !bytes.Equal(a, b) {
		t.Errorf("replayed\n%x, restored\n%x", a, b)
	}
	if a, b := restored(last, one, two), restored(last); !bytes.Equal(a, b) {
		t.Errorf("changes that a checkpoint contains turn it into\n%x from\n%x", a, b)
	}
}

// TestLoggedReplayAcknowledges: the restored connection acknowledges the commands of the
// last write and no older ones, whether or not the checkpoint contains them.
func TestLoggedReplayAcknowledges(t *testing.T) {
	s := logged(t)
	first := s.c.AppendCheckpoint(nil)
	s.recv("04 0000 61")
	one := cloneChanges(s.c.Changes(1 << 20))
	s.c.Stored()
	s.recv("04 0200 64", "04 0100 62")
	two := cloneChanges(s.c.Changes(1 << 20))
	s.c.Stored()
	s.pump()
	last := s.c.AppendCheckpoint(nil)
	for _, snapshot := range [][]byte{first, last} {
		cfg := quiet()
		cfg.Logged = true
		o := newTest(t, cfg)
		c, err := o.e.Restore(o.now, peerAddr, snapshot, nil)
		for _, ch := range []Changes{one, two} {
			if err == nil {
				err = c.Replay(o.now, ch, nil)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Mute(true)
		o.pump()
		o.want("while the owner of the session is not certain")
		c.Mute(false)
		o.pump()
		o.want("then the commands of the last write", "06 0100 00", "06 0200 00")
		o.pump()
		o.want("once")
	}
}

func cloneChanges(ch Changes) Changes {
	for i := range ch.Received {
		ch.Received[i].Body = bytes.Clone(ch.Received[i].Body)
	}
	for i := range ch.Sent {
		ch.Sent[i].Data = bytes.Clone(ch.Sent[i].Data)
	}
	ch.Links = append([]LinkChange(nil), ch.Links...)
	return ch
}

// withFarewell returns a logged connection that offers a Source with a farewell.
func withFarewell(t *testing.T) (*connTest, *Source) {
	t.Helper()
	s := logged(t)
	src := s.e.NewSource(SourceConfig{State: newState(t, "uint8"), Message: []byte("M"), Farewell: []byte("bye")})
	if err := s.c.Link(src, true); err != nil {
		t.Fatal(err)
	}
	s.pump()
	return s, src
}

// TestLoggedFarewellOfOffer: the link of an offer in flight ends for a successor as well.
func TestLoggedFarewellOfOffer(t *testing.T) {
	s, src := withFarewell(t)
	first := s.c.AppendCheckpoint(nil)
	one := cloneChanges(s.c.Changes(1 << 20))
	s.c.Stored()
	s.pump()
	s.c.Unlink(src, true)
	s.pump()
	two := cloneChanges(s.c.Changes(1 << 20))
	s.c.Stored()
	s.pump()

	cfg := quiet()
	cfg.Logged = true
	o := newTest(t, cfg)
	again := o.source("uint8")
	resolve := func(uint64) *Source { return again }
	c, err := o.e.Restore(o.now, peerAddr, first, resolve)
	for _, ch := range []Changes{one, two} {
		if err == nil {
			err = c.Replay(o.now, ch, resolve)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.LinkOf(again); ok {
		t.Error("the successor brings back a link that was taken down with a farewell")
	}
}

// TestCheckpointEndsLinks: a checkpoint without the queue, and a queue that is dropped, end
// the links whose farewells they forget.
func TestCheckpointEndsLinks(t *testing.T) {
	s, src := withFarewell(t)
	s.store()
	s.recv("06 0000 00", "07 0080")
	s.store()
	s.c.Unlink(src, true)
	cfg := quiet()
	cfg.Logged = true
	for _, handed := range []bool{false, true} {
		o := newTest(t, cfg)
		snapshot := s.c.AppendCheckpoint(nil)
		if handed {
			snapshot = s.c.AppendSnapshot(nil)
		}
		c, err := o.e.Restore(o.now, peerAddr, snapshot, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.c = c; handed {
			c.DropQueue()
			o.store()
		}
		o.pump()
		o.want("the farewell is forgotten, the link is not; on a new path each LinkDown goes twice", "08 0080", "08 0080")
	}
}

// TestRestoreClient: only the connections of a listening peer wait for a log.
func TestRestoreClient(t *testing.T) {
	s := newTest(t, quiet())
	c, err := s.e.Connect(s.now, peerAddr)
	if err != nil {
		t.Fatal(err)
	}
	s.recv("01 00 0000")
	cfg := quiet()
	cfg.Logged = true
	o := newTest(t, cfg)
	restored, err := o.e.Restore(o.now, peerAddr, c.AppendSnapshot(nil), nil)
	if err == nil {
		err = restored.Send([]byte("m"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.pump()
	o.want("a client does not wait", "04 0000 6d")
}

// TestSnapshotBounded: whatever a peer sends, and whatever states it is offered, a snapshot is
// so small that a log can store it in one message.
func TestSnapshotBounded(t *testing.T) {
	cfg := quiet()
	cfg.Logged, cfg.LongMax = true, 192<<10
	s := serve(t, cfg)
	large := strings.Repeat("61", 60_000)
	for n := range 16 { // none of them is stored
		s.recv(fmt.Sprintf("04 %02x00", n) + large)
	}
	if held, dropped := len(s.c.recv.early), s.e.stats.Drops[DropEarlyFull]; held != 1 || dropped != 15 {
		t.Errorf("%d commands are held and %d dropped, want the one that is due", held, dropped)
	}
	early := serve(t, cfg)
	for n := 1; n < 16; n++ {
		early.recv(fmt.Sprintf("04 %02x00", n) + large[:2*4094])
	}
	if held := len(early.c.recv.early); held != 8 {
		t.Errorf("%d commands of 4 KiB are held before their turn, want 32 KiB", held)
	}
	for i := range 40 {
		src := s.source("data")
		set(src, 0, "60ea"+large)
		if err := s.c.Link(src, false); err != nil {
			t.Fatal(err)
		}
		s.store()
		s.c.Writes().Hold(wire.LinkID(0x8000+i), 0, 0, unhex("60ea"+large))
	}
	s.wait(time.Second) // offers are paced
	s.store()
	if n := s.e.stats.Drops[DropHoldsFull]; n != 39 {
		t.Errorf("%d values were not held, want 39", n)
	}
	if n := len(s.c.send.flight); n != 2 {
		t.Errorf("%d offers of 60 kB are in flight, want 2", n)
	}
	if n := len(s.c.AppendCheckpoint(nil)); n > 320_000 {
		t.Errorf("a checkpoint has %d bytes", n)
	}
	s.store()
	s.recv("06 0000 00", "06 0100 00", "07 0080", "07 0180")
	s.wait(time.Second)
	if n := len(s.c.send.flight); n != 2 {
		t.Errorf("%d offers are in flight after the first were acknowledged, want the next 2", n)
	}
}

// TestStandIn: an offer in flight for which a snapshot has no room gets a small one in its place. A
// successor that has the state does not need it; the peer of another takes one of the two, and
// LinkDown ends the link.
func TestStandIn(t *testing.T) {
	s := logged(t)
	var list []*Source
	for i := range 5 {
		src := s.e.NewSource(SourceConfig{State: newState(s, "data"), Message: []byte("M"), Ref: uint64(i)})
		list = append(list, src)
		if err := s.c.Link(src, false); err != nil {
			t.Fatal(err)
		}
	}
	s.wait(time.Second)
	s.store()
	if n := len(s.sent); n != 5 {
		t.Fatalf("%d offers are sent, want 5", n)
	}
	for _, src := range list[:4] { // they grow while they are in flight
		set(src, 0, "204e"+strings.Repeat("61", 20_000))
	}
	s.flush()
	snapshot := s.c.AppendCheckpoint(nil)
	if n := len(snapshot); n > 64<<10 {
		t.Errorf("a checkpoint with four offers of 20 kB has %d bytes", n)
	}
	for _, known := range []bool{true, false} {
		e, err := New(Config{Logged: true, LivenessInterval: -1, ScrubInterval: -1, Refresh: []time.Duration{}})
		if err != nil {
			t.Fatal(err)
		}
		r := &connTest{T: t, e: e, now: s.now}
		var again []*Source
		for i := range 5 {
			src := e.NewSource(SourceConfig{State: newState(t, "data"), Message: []byte("M"), Ref: uint64(i)})
			if i < 4 {
				set(src, 0, "204e"+strings.Repeat("61", 20_000))
			}
			again = append(again, src)
		}
		r.c, err = e.Restore(r.now, peerAddr, snapshot, func(ref uint64) *Source {
			if known {
				return again[ref]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.pump()
		offers := ""
		for n, d := range r.sent[:5] {
			whole := len(d)/2 > 20_000 || n == 4 && d[16:18] == "4d"
			offers += fmt.Sprint(whole, " ")
			if _, drop := checkReliable(wire.CommandReliableLinkState, unhex(d)[1:]); drop != dropNothing || d[:10] != fmt.Sprintf("05%02x00%02x80", n, n) {
				t.Errorf("offer %d is %.40s", n, d)
			}
		}
		if want := map[bool]string{true: "true true true true true ", false: "true true true false true "}[known]; offers != want {
			t.Errorf("with states %v the offers are whole: %s, want %s", known, offers, want)
		}
		r.recv("06 0000 00", "06 0100 00", "06 0200 00", "06 0300 00", "06 0400 00")
		r.sent = nil
		r.wait(100 * time.Millisecond)
		if downs := len(r.sent) > 0; downs == known {
			t.Errorf("with states %v the peer is sent %.60q", known, r.sent)
		}
	}
}

// TestCheckpointOfStored: a checkpoint has the commands of the peer that are stored, and no others.
func TestCheckpointOfStored(t *testing.T) {
	s := logged(t)
	s.recv("04 0100 62")
	s.store()
	s.recv("04 0000 61", "04 0200 63")
	e, err := New(Config{Logged: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &connTest{T: t, e: e, now: s.now}
	nothing := func(uint64) *Source { return nil }
	if r.c, err = e.Restore(s.now, peerAddr, s.c.AppendCheckpoint(nil), nothing); err != nil {
		t.Fatal(err)
	}
	r.pump()
	r.want("what was not stored is not acknowledged by the next owner either")
	r.events("and not passed on")
	if err := r.c.Replay(r.now, s.c.Changes(1<<20), nothing); err != nil {
		t.Fatal(err)
	}
	r.pump()
	r.events("the write of the checkpoint has the others", "message 0 a", "message 1 b", "message 2 c")
}

// TestHoldsBounded: values are held within bounds, and what is not held any more leaves room.
func TestHoldsBounded(t *testing.T) {
	s := serve(t, quiet())
	src := s.source("data", "data")
	if err := s.c.Link(src, false); err != nil {
		t.Fatal(err)
	}
	value := func(size int) []byte { return append([]byte{byte(size), byte(size >> 8)}, make([]byte, size)...) }
	for range 10 { // a later write replaces an earlier one
		s.c.Writes().Hold(0x8000, 0, 0, value(60_000))
	}
	s.c.Writes().Hold(0x8000, 1, 0, value(60_000))
	s.dropped("the second value does not fit", DropHoldsFull, 1)
	s.c.Writes().Refuse(0x8000, 0)
	s.c.Writes().Hold(0x8000, 1, 0, value(60_000))
	s.dropped("now it does", DropHoldsFull, 1)
	s.c.Writes().Hold(0x8000, 1, 0, value(64<<10-1))
	s.dropped("this would not", DropHoldsFull, 2)
	if n := s.c.links.holds.bytes; n != 0 || len(s.c.Writes().Held()) != 0 {
		t.Errorf("%d bytes in %d values are held, want none: the older write is not the truth either", n, len(s.c.Writes().Held()))
	}
	s.c.Writes().Hold(0x8000, 0, 0, value(10))
	s.c.links.remove(0)
	if n := s.c.links.holds.bytes; n != 0 {
		t.Errorf("%d bytes are held of a link that is gone", n)
	}
	many := s.source(slices.Repeat([]string{"uint8"}, 5000)...)
	if err := s.c.Link(many, false); err != nil {
		t.Fatal(err)
	}
	link, _ := s.c.LinkOf(many)
	for range 2 { // the second time they are held already
		for i := range 5000 {
			s.c.Writes().Hold(link.ID, i, 0, []byte{1})
		}
	}
	if n := len(s.c.Writes().Held()); n != 4096 {
		t.Errorf("%d small values are held, want 4096", n)
	}
}

// TestLoggedEvident takes an acknowledgement for evidence although the command was stored before
// it was sent, so that the log does not know that it was.
func TestLoggedEvident(t *testing.T) {
	s := logged(t)
	s.c.Send([]byte("x"), 0)
	s.pump()
	ckpt := s.c.AppendCheckpoint(nil)
	for datagram, want := range map[string]bool{"06 0000 00": true, "06 0100 00": false, "04 0000 78": true, "04 3075 78": false, "02": false, "07 0080": false} {
		if got := LoggedEvident(ckpt, nil, unhex(datagram)); got != want {
			t.Errorf("%s is evidence: %v, want %v", datagram, got, want)
		}
	}
}
