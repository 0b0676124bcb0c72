package dnp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// trial requires a trial under this number since the last want, and says why. It returns the id of the
// question behind it.
func (s *connTest) trial(why string, number byte) (id string) {
	s.Helper()
	s.sent = slices.DeleteFunc(s.sent, func(d string) bool { return strings.HasPrefix(d, "08") })
	if len(s.sent) != 2 || s.sent[0] != hex.EncodeToString([]byte{10, number, 0, 1, 0, 0}) {
		s.Fatalf("%s:\nsent %s\nwant trial %d", why, strings.Join(s.sent, "\n     "), number)
	}
	s.sent = s.sent[1:]
	return s.asks(why, number+1)
}

// questions returns the ids of the questions since the last want, by number.
func (s *connTest) questions() map[byte]string {
	ids := make(map[byte]string)
	for _, d := range s.sent {
		if p := unhex(d); p[0] == byte(wire.CommandReliableLinkState) {
			ids[p[1]] = d[6:10]
		}
	}
	s.sent = nil
	return ids
}

// serveLong returns a test with a long message and a short one that wait for the trial 0.
func serveLong(t *testing.T, cfg Config) (s *connTest, id string) {
	t.Helper()
	s = serve(t, cfg)
	s.sendLong()
	return s, s.trial("a long message waits for a trial", 0)
}

// sendLong sends a long message and a short one.
func (s *connTest) sendLong() {
	s.Helper()
	for i, size := range []int{WholeMax + 1, 1} {
		if err := s.c.Send(bytes.Repeat([]byte("a"), size), uint64(9+i)); err != nil {
			s.Fatal(err)
		}
	}
	s.pump()
}

func TestTrialOfJava(t *testing.T) {
	s, behind := serveLong(t, quiet())
	s.recv("06 0000 00", "06 0100 00")
	if base, ahead := s.c.send.ackState(); base != 0 || ahead != 0b10 {
		t.Fatalf("oldest %d, ahead %b: Java, which acknowledged the trial, has not counted it", base, ahead)
	}
	s.recv("07 ffff", "06 0000 00")
	s.dropped("a second acknowledgement is none that is awaited", DropUnknownAck, 1)
	src := s.source("uint8")
	if err := s.c.Link(src, true); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.want("an offer does not wait", "05 0200 0080 01 0100 4d 0100 01 00")
	s.recv("06 0200 00")
	s.wait(450 * time.Millisecond)
	ids := s.questions()
	if len(ids) != 2 || ids[0] == "" || ids[3] == "" || ids[0] == behind {
		t.Fatalf("questions %v: without an answer the trial becomes a question, and another follows", ids)
	}
	s.recv("06 0000 00")
	if s.c.send.base() != 0 {
		t.Fatal("the acknowledgement may be a late one of the part")
	}
	s.events("nothing is decided yet")
	s.recv("08 "+ids[0], "08 "+behind)
	if s.c.send.base() != 3 {
		t.Fatalf("oldest %d, want 3: who answers has counted the trial", s.c.send.base())
	}
	s.events("who does so to the trial itself is Java; what waited goes on", "too large 9", "answered", "sent 10 number=5")
	if !slices.Contains(s.sent, "04050061") {
		t.Fatalf("sent %v", s.sent)
	}
	if err := s.c.Send(make([]byte, WholeMax+1), 0); err != ErrTooLarge {
		t.Errorf("another long message: %v", err)
	}
	if err := s.c.Send(make([]byte, WholeMax), 0); err != nil {
		t.Errorf("the longest that Java takes: %v", err)
	}
}

// TestTrialAnswered: whoever answers two questions behind a part takes long messages.
func TestTrialAnswered(t *testing.T) {
	for _, answer := range []string{"07", "08"} {
		s, first := serveLong(t, quiet())
		s.recv(answer+first, answer+first)
		if s.c.send.base() != 0 {
			t.Fatal("one answer may be a guess, or one to an earlier question, however often it comes")
		}
		s.happen = nil
		second := s.asks("so another question follows at once", 2)
		s.recv(answer + second)
		if s.c.send.base() != 1 {
			t.Fatalf("oldest %d, want 1: the acknowledgement may be lost", s.c.send.base())
		}
		s.events("once for the session", "answered", "sent 9 number=4", "sent 10 number=5")
		s.recv("06 0000 00", "06 0100 00", "06 0200 00")
		s.dropped("the late acknowledgement is no guess", DropUnknownAck, 1)
		if s.c.life.wrongAcks > 0 {
			t.Error("but counts as one")
		}
		s.wait(8 * time.Second)
		for _, d := range s.sent {
			if strings.HasPrefix(d, "05 0000") || strings.HasPrefix(d, "0a000001") && d[8:12] == "0000" {
				t.Fatalf("sent %s: the trial is over", d)
			}
		}
	}
}

// TestTrialOfJavaGuessed: an answer that somebody guesses decides nothing.
func TestTrialOfJavaGuessed(t *testing.T) {
	s, guessed := serveLong(t, quiet())
	s.recv("06 0000 00", "06 0100 00", "08 "+guessed)
	second := s.asks("a second answer is needed", 2)
	s.recv("06 0200 00")
	s.wait(450 * time.Millisecond)
	own := s.questions()[0]
	if own == "" {
		t.Fatal("the trial does not become a question, although one behind it has no answer")
	}
	s.recv("06 0000 00", "08 "+own)
	if s.c.send.long != longLimited || s.c.send.base() != 3 {
		t.Fatalf("oldest %d, state %d: Java answers the trial and %s, and is limited", s.c.send.base(), s.c.send.long, second)
	}
}

// TestTrialInSeries: a trial begins while other questions wait for their answers.
func TestTrialInSeries(t *testing.T) {
	s := serve(t, quiet())
	s.c.Ask()
	s.pump()
	s.recv("06 0000 00", "08 "+s.asks("the client is asked", 0))
	second := s.asks("a second time", 1)
	s.sendLong()
	s.trial("a trial begins", 2)
	s.recv("06 0100 00", "08 "+second)
	s.sent = nil
	s.recv("06 0200 00", "06 0300 00", "06 0400 00")
	s.wait(450 * time.Millisecond)
	if s.questions()[2] == "" {
		t.Fatal("Java answers the questions before the trial and is stuck at it")
	}
}

// TestTrialOfNoQuestion: LinkUp of other ids shows nothing.
func TestTrialOfNoQuestion(t *testing.T) {
	s, _ := serveLong(t, quiet())
	own := fmt.Sprintf("%02x%02x", byte(s.c.send.flight[0].link), s.c.send.flight[0].link>>8)
	s.recv("08"+own, "07 ffff")
	if s.c.send.base() != 0 || s.c.send.long != longTried {
		t.Fatal("the trial was not sent as a question yet")
	}
	for range 2 { // as many answers as decide a trial
		src := s.source("uint8")
		if err := s.c.Link(src, true); err != nil {
			t.Fatal(err)
		}
		s.pump()
		s.c.Unlink(src, false)
	}
	s.recv("07 0080", "07 0180")
	if s.c.send.base() != 0 || s.c.send.long != longTried {
		t.Fatal("LinkIds that anybody can guess show that the trial was counted")
	}
}

// TestTrialOfNoLink: the first link that a client offers has the LinkId 0, which is no question.
func TestTrialOfNoLink(t *testing.T) {
	s := serve(t, quiet())
	s.c.Ask()
	s.pump()
	s.recv("05 0000 0000 00 0100 4d 0100 01 2a")
	if err := s.c.Accept(0, s.source("uint8")); err != nil {
		t.Fatal(err)
	}
	s.happen = nil
	s.recv("08 0000")
	s.events("the client takes its state back", "link down 0000")
	if s.c.send.long != longUnknown {
		t.Error("a link that ends says something of long messages")
	}
}

// TestTrialUnclear: answers get lost, so it is not known which form of the trial the peer counted.
func TestTrialUnclear(t *testing.T) {
	s, _ := serveLong(t, quiet())
	for i := range byte(trialsMax) {
		n := 4 * i // of the trial
		s.recv(fmt.Sprintf("06 %02x00 00", n), fmt.Sprintf("06 %02x00 00", n+1))
		s.wait(450 * time.Millisecond)
		id := s.questions()[n+2]
		if id == "" {
			t.Fatalf("no further question in trial %d", i)
		}
		s.recv(fmt.Sprintf("06 %02x00 00", n), fmt.Sprintf("06 %02x00 00", n+2), "08 "+id)
		second := s.asks("a second answer is needed", n+3)
		s.happen = nil
		s.c.links.question.rest = 0
		s.recv(fmt.Sprintf("06 %02x00 00", n+3), "08 "+second)
		if i < trialsMax-1 {
			s.trial("so another trial follows", n+4)
			s.events("nothing is decided", "answered")
		}
	}
	s.events("a bounded number of times", "too large 9", "answered", "sent 10 number=16")
}

// TestTrialLateAnswer: the answer of Java to the trial comes after those to questions behind it.
func TestTrialLateAnswer(t *testing.T) {
	s, _ := serveLong(t, quiet())
	s.recv("06 0000 00", "06 0100 00")
	s.wait(450 * time.Millisecond)
	ids := s.questions()
	s.recv("06 0000 00", "06 0200 00", "08 "+ids[2])
	second := s.asks("a second answer is needed", 3)
	s.recv("06 0300 00", "08 "+second)
	s.trial("these answers do not tell which form was counted, so another trial follows", 4)
	s.happen = nil
	s.recv("08 " + ids[0])
	s.events("this one does", "too large 9", "sent 10 number=6")
	s.sent = nil
	s.recv("06 0400 00", "06 0500 00", "06 0600 00")
	s.wait(time.Second)
	own, behind := "", ""
	for n, id := range s.questions() {
		if n == 4 {
			own = id
		} else {
			behind = id
		}
	}
	if own == "" {
		t.Fatal("Java is stuck at the second trial, which does not become a question")
	}
	s.recv("06 0400 00", "08 "+own, "08 "+behind)
	if s.c.send.base() < 7 || s.c.send.long != longLimited {
		t.Fatalf("oldest %d, state %d: the stream does not go on", s.c.send.base(), s.c.send.long)
	}
}

// TestTrialNearWrap: that a command was sent often shows that it arrived, and a trial may have arrived without
// being counted.
func TestTrialNearWrap(t *testing.T) {
	for flags, want := range map[wire.PartFlags]int{wire.PartFirst: 0, 0: 1} {
		w := sendWindow{next: 65521, flight: []outgoing{{kind: SentFrozen, flags: flags, sends: edgeSendings}}}
		if got := w.infer(wire.Denetwork, 65536); got != want {
			t.Errorf("flags %d: %d inferred, want %d", flags, got, want)
		}
	}
}

// TestTrialOfOld: a peer that does not know command 10 acknowledges no part.
func TestTrialOfOld(t *testing.T) {
	s, behind := serveLong(t, quiet())
	id := ""
	for n := byte(1); n < 4 && id == ""; n++ { // each lost copy makes the path look worse
		s.recv(fmt.Sprintf("06 %02x00 00", n))
		s.wait(450 * time.Millisecond)
		id = s.questions()[0]
	}
	if id == "" {
		t.Fatal("the trial does not become a question")
	}
	s.recv("06 0000 00", "08 "+id, "08 "+behind)
	s.events("the part may have got lost, so this is no verdict", "answered")
	if s.c.send.trials != 2 || s.c.send.long != longTried {
		t.Fatalf("%d trials, state %d, want another trial", s.c.send.trials, s.c.send.long)
	}
}

// TestTrialOfClient: servers are not tried.
func TestTrialOfClient(t *testing.T) {
	s := newTest(t, Config{})
	var err error
	if s.c, err = s.e.Connect(s.now, servAddr); err != nil {
		t.Fatal(err)
	}
	if s.c.send.needsTrial(&s.e.cfg) || s.c.send.long != longTaken {
		t.Error("a client tries its server")
	}
}

// successor restores the connection from its checkpoint.
func (s *connTest) successor() *connTest {
	s.Helper()
	cfg := quiet()
	cfg.Logged = true
	r := newTest(s.T, cfg)
	r.now = s.now
	var err error
	if r.c, err = r.e.Restore(r.now, peerAddr, s.c.AppendCheckpoint(nil), unresolvedSource); err != nil {
		s.Fatal(err)
	}
	return r
}

func unresolvedSource(uint64) *Source { return nil }

// TestTrialTakenOver: a successor sends the number of a trial as a question. Late acknowledgements of the
// part reach it, too, so it waits for an answer.
func TestTrialTakenOver(t *testing.T) {
	cfg := quiet()
	cfg.Logged = true
	s := serve(t, cfg)
	empty := s.c.AppendCheckpoint(nil)
	s.sendLong()
	ch := cloneChanges(s.c.Changes(1 << 20))
	s.want("nothing before it is stored")
	s.c.Stored()
	s.pump()
	s.trial("then the trial", 0)
	s.recv("06 0000 00", "06 0100 00")
	if acked := s.c.Changes(1 << 20); acked.Acked != 0 || acked.AckedAhead != 0b10 {
		t.Fatalf("the log has %d and %b, but Java has not counted the trial", acked.Acked, acked.AckedAhead)
	}
	s.c.Stored()
	replayed := newTest(t, cfg)
	replayed.now = s.now
	var err error
	if replayed.c, err = replayed.e.Restore(s.now, peerAddr, empty, unresolvedSource); err == nil {
		err = replayed.c.Replay(s.now, ch, unresolvedSource)
	}
	if err != nil {
		t.Fatal(err)
	}
	for why, r := range map[string]*connTest{"checkpoint": s.successor(), "log": replayed} {
		r.pump()
		own, behind := r.questions()[0], ""
		if own == "" {
			t.Fatalf("%s: the trial is no question", why)
		}
		r.store()
		r.recv("06 0000 00", "06 0100 00")
		if base, ahead := r.c.send.ackState(); base != 0 || ahead&1 != 0 {
			t.Fatalf("%s: a late acknowledgement of the part counts", why)
		}
		for n, id := range r.questions() {
			if n > 1 {
				behind = id
			}
		}
		r.sendLong()
		if n := len(slices.DeleteFunc(slices.Clone(r.c.send.flight), func(o outgoing) bool { return !o.tries() })); n != 1 {
			t.Fatalf("%s: %d trials are under way, although no other may begin before the first is counted", why, n)
		}
		if behind == "" {
			t.Fatalf("%s: no other question is asked, so a peer that had counted both would never answer", why)
		}
		r.happen = nil
		for _, ids := range [][]string{{own, behind}, {behind, own}} {
			o := r.successorOf()
			o.recv("08 "+ids[0], "08 "+ids[0])
			if o.c.send.base() != 0 {
				t.Errorf("%s: one answer, %s, may be a guess", why, ids[0])
			}
			o.recv("08 " + ids[1])
			if o.c.send.base() < 2 {
				t.Errorf("%s: %v answer, but the oldest is %d", why, ids, o.c.send.base())
			}
			if o.c.send.long != longUnknown {
				t.Errorf("%s: a successor does not know which form was counted", why)
			}
		}
	}
}

// TestTrialInTheLog: a part in the log shows that the peer takes long messages, so a successor that replays it
// sends the next long message without another trial.
func TestTrialInTheLog(t *testing.T) {
	cfg := quiet()
	cfg.Logged = true
	s, r := serve(t, cfg), newTest(t, cfg)
	empty := s.c.AppendCheckpoint(nil)
	var log []Changes
	store := func() {
		log = append(log, cloneChanges(s.c.Changes(1<<20)))
		s.c.Stored()
		s.pump()
	}
	s.sendLong()
	store()
	first := s.trial("the first long message waits for a trial", 0)
	s.recv("07 " + first)
	store()
	second := s.asks("another question follows the answer", 2)
	s.recv("07 " + second)
	store()
	r.now = s.now
	var err error
	if r.c, err = r.e.Restore(r.now, peerAddr, empty, unresolvedSource); err != nil {
		t.Fatal(err)
	}
	for _, ch := range log {
		if err := r.c.Replay(r.now, ch, unresolvedSource); err != nil {
			t.Fatal(err)
		}
	}
	r.store()
	r.sendLong()
	ch := r.c.Changes(1 << 20)
	if len(ch.Sent) != 3 || ch.Sent[0].Kind != SentPart || ch.Sent[2].Kind != SentMessage {
		t.Errorf("the successor goes on with %+v, want the parts of the long message, and the short one", ch.Sent)
	}
}

// successorOf restores the connection once more, with what was sent counted as sent.
func (s *connTest) successorOf() *connTest {
	o := s.successor()
	for n := s.c.send.base(); n < s.c.send.next; n++ {
		if from := s.c.send.find(n); from == nil {
			o.c.send.flight[n-s.c.send.base()].acked = true
		}
	}
	return o
}

// TestTrialFarewell: a link whose farewell is refused is taken down all the same.
func TestTrialFarewell(t *testing.T) {
	s := serve(t, quiet())
	farewell := make([]byte, WholeMax+1)
	var sources []*Source
	for range 2 {
		src := s.e.NewSource(SourceConfig{State: newState(t, "uint8"), Message: []byte("M"), Farewell: farewell})
		if err := s.c.Link(src, true); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	s.pump()
	s.recv("06 0000 00", "07 0080", "06 0100 00", "07 0180")
	s.sent = nil
	s.c.Unlink(sources[0], true)
	s.pump()
	behind := s.trial("a farewell is a message", 2)
	s.recv("06 0200 00", "06 0300 00")
	s.wait(450 * time.Millisecond)
	s.recv("08 "+s.questions()[2], "08 "+behind)
	if !slices.Contains(s.sent, "080080") {
		t.Errorf("sent %v, without LinkDown of the first link", s.sent)
	}
	s.sent = nil
	s.c.Unlink(sources[1], true)
	s.pump()
	if !slices.Contains(s.sent, "080180") {
		t.Errorf("sent %v, without LinkDown of the second link", s.sent)
	}
}

// TestStuck: the reason tells a peer that acknowledges later commands from one that is silent.
func TestStuck(t *testing.T) {
	for _, acks := range []string{"", "06 0100 00"} {
		s := serve(t, quiet())
		s.c.Send([]byte("a"), 0)
		s.c.Send([]byte("b"), 0)
		s.pump()
		want := "closed timeout"
		if acks != "" {
			s.recv(acks)
			want = "closed stuck"
		}
		s.wait(10 * time.Second)
		s.events("after the timeout", want)
	}
}
