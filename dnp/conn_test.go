package dnp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestReliableInOrder(t *testing.T) {
	s := serve(t, quiet())
	s.recv("04 0000 61")
	s.want("acknowledged at once, code 0", "06 0000 00")
	s.events("and delivered", "message 0 a")
	s.recv("04 0200 63", "04 0100 62")
	s.want("in the order of numbers, each by itself", "06 0100 00", "06 0200 00")
	s.events("delivered in the order of numbers", "message 1 b", "message 2 c")
	s.recv("04 0100 62")
	s.want("a repeat means that the acknowledgement was lost", "06 0100 00")
	s.events("but it is not delivered again")
	s.dropped("a repeat is counted", DropRepeat, 1)
}

func TestReliableAhead(t *testing.T) {
	s := serve(t, quiet())
	s.recv("04 0f00 61")
	s.want("fifteen ahead is held: engines have 11 in flight")
	s.dropped("and not counted", DropOutsideWindow, 0)
	s.recv("04 1000 61")
	s.want("sixteen ahead is not")
	s.dropped("but counted", DropOutsideWindow, 1)
	s.recv("04 ffff 61")
	s.want("65535 does not exist")
	s.dropped("and counted", DropOutsideWindow, 2)
}

func TestReliableOld(t *testing.T) {
	s := serve(t, quiet())
	s.c.recv.next = 5000
	s.recv("04 8803 61")
	s.want("4096 + 4 = 904 is 4096 behind: acknowledged", "06 8803 00")
	s.recv("04 8703 61")
	s.want("an older one does not mean a lost acknowledgement")
}

// TestHole: a command that came before its turn is forgotten before the one that is due comes at last.
func TestHole(t *testing.T) {
	s := serve(t, quiet())
	s.recv("04 0100 62", "04 0300 64")
	s.want("what waits for others may be forged and is not acknowledged")
	s.wait(3900 * time.Millisecond)
	s.dropped("a sender repeats for 3 s", DropUnfinished, 0)
	s.recv("04 0000 61")
	s.want("what waited long enough is acknowledged with what was missing", "06 0000 00", "06 0100 00")
	s.events("and passed on", "message 0 a", "message 1 b")
	s.wait(3900 * time.Millisecond)
	s.dropped("the next hole has its own time", DropUnfinished, 0)
	s.wait(200 * time.Millisecond)
	s.dropped("after 4 s it will never be filled", DropUnfinished, 1)
	s.recv("04 0200 63")
	s.want("the session goes on, and the peer repeats what was not acknowledged", "06 0200 00")
	s.events("without what was forgotten", "message 2 c")
	s.recv("04 0300 65")
	s.events("in whose place the peer's own comes", "message 3 e")
}

// TestHoleOfServer: a client acknowledges what its server sent before its turn, so a hole ends the
// connection.
func TestHoleOfServer(t *testing.T) {
	s := newTest(t, quiet())
	if _, err := s.e.Connect(s.now, peerAddr); err != nil {
		t.Fatal(err)
	}
	s.pump()
	s.recv("01 00 0000")
	s.sent, s.happen = nil, nil
	s.recv("04 0100 62")
	s.want("held", "06 0100 00")
	s.wait(9900 * time.Millisecond)
	s.events("a server repeats for 10 s")
	s.wait(200 * time.Millisecond)
	s.want("after that the hole will never be filled", "02")
	s.events("the session cannot go on", "closed hole")
}

func TestSendWindow(t *testing.T) {
	s := serve(t, quiet())
	for range 12 {
		if err := s.c.Send([]byte("m"), 0); err != nil {
			t.Fatal(err)
		}
	}
	s.pump()
	s.want("ten in flight, no more", "04 0000 6d", "04 0100 6d", "04 0200 6d", "04 0300 6d", "04 0400 6d",
		"04 0500 6d", "04 0600 6d", "04 0700 6d", "04 0800 6d", "04 0900 6d")
	s.recv("06 0100 00")
	s.want("the window is counted from the oldest unacknowledged")
	s.recv("06 0000 00")
	s.want("which moves it by two", "04 0a00 6d", "04 0b00 6d")
	s.recv("06 0000 00")
	s.dropped("an acknowledgement is good once", DropUnknownAck, 1)
}

func TestResend(t *testing.T) {
	s := serve(t, quiet())
	s.c.Send([]byte("m"), 7)
	s.pump()
	s.want("sent", "04 0000 6d")
	s.events("EventSent has its number", "sent 7 number=0")
	s.wait(499 * time.Millisecond)
	s.want("not sooner than half a second: libraries store each needless copy")
	s.wait(time.Millisecond)
	s.want("sent again", "04 0000 6d")
	s.recv("06 0000 01")
	s.want("\"again at once\" is not believed right after a sending")
	s.wait(100 * time.Millisecond)
	s.recv("06 0000 01")
	s.want("but later", "04 0000 6d")
	s.wait(9399 * time.Millisecond)
	s.want("the repeats go on", strings.Split(strings.Repeat("0400006d ", 18), " ")[:18]...)
	s.wait(time.Millisecond)
	s.want("and end after 10 s", "02")
	s.events("with the connection", "closed timeout")
}

func TestBacklogCloses(t *testing.T) {
	s := serve(t, quiet())
	for range backlogMessages {
		if err := s.c.Send([]byte("m"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.c.Send([]byte("m"), 0); err != ErrBacklog {
		t.Fatalf("Send to a full backlog: %v, want ErrBacklog", err)
	}
	s.pump()
	s.want("a peer that misses a message must know", "02")
	s.events("the peer is too slow", "closed slow")
	if err := s.c.Send([]byte("m"), 0); err != ErrClosed {
		t.Fatalf("Send after the end: %v, want ErrClosed", err)
	}
}

func TestLongMessages(t *testing.T) {
	cfg := quiet()
	cfg.DatagramMax = 256
	s := serve(t, cfg)
	s.c.Send(make([]byte, 1357), 0)
	s.pump()
	if len(s.sent) != 1 || len(s.sent[0]) != 2*1360 {
		t.Fatal("1357 bytes go as one command 4 to a peer that may be Java")
	}
	s.sent = nil
	s.recv("06 0000 00", "0a 0000 00")
	s.want("a probe is acknowledged", "06 0000 00")
	s.events("and nothing else")
	src := s.source("uint8")
	s.c.Link(src, true)
	s.c.Send(make([]byte, 1357), 0)
	s.pump()
	if len(s.sent) != 2 || len(s.sent[1]) != 2*1360 {
		t.Fatal("so do they afterwards: Java acknowledges a probe, too")
	}
	s.recv("06 0100 00", "06 0200 00")
	s.sent = nil
	s.c.Send(make([]byte, 1358), 9)
	s.c.Send([]byte("z"), 0)
	s.pump()
	id := s.trial("but Java does not take parts, and nothing else tells it from others", 3)
	s.recv("06 0300 00", "06 0400 00", "08 "+id)
	second := s.asks("one answer may be a guess", 5)
	s.recv("06 0500 00", "08 "+second)
	zeros := strings.Repeat("00", 246)
	s.want("parts have consecutive numbers; the next message does not get between",
		"0a 0600 01"+zeros, "0a 0700 00"+zeros, "0a 0800 00"+zeros, "0a 0900 00"+zeros, "0a 0a00 00"+zeros, "0a 0b00 02"+zeros[:256], "04 0c00 7a", "08"+id, "08"+second)
	s.events("the last part ends the message", "answered", "answered", "sent 9 number=11")
	s.recv("0a 0100 01 6162", "04 0200 78", "0a 0300 00 63", "0a 0400 02 64")
	s.events("other commands between parts are tolerated", "message 2 x", "message 4 abcd")
}

func TestLongMessageTooLong(t *testing.T) {
	cfg := quiet()
	cfg.LongMax = 4
	s := serve(t, cfg)
	s.recv("0a 0000 01 6162", "0a 0100 00 636465")
	s.want("a message without end would fill the memory", "06 0000 00", "06 0100 00", "02")
	s.events("a message that cannot be delivered ends the connection", "closed too_large")
}

func TestMessages(t *testing.T) {
	s := serve(t, quiet())
	s.recv("03 6869")
	s.events("an unreliable message is passed on", "message hi")
	s.recv("03")
	s.dropped("an empty one is not: no library sends it", DropTruncated, 1)
	s.c.SendUnreliable([]byte("yo"))
	s.pump()
	s.want("sent by the next Advance", "03 796f")
	if err := s.c.SendUnreliable(nil); err != ErrEmpty {
		t.Fatalf("an empty message: %v, want ErrEmpty; Python raises on it", err)
	}
	for range laneMessages + 1 {
		s.c.SendUnreliable([]byte("x"))
	}
	s.dropped("the lane is full", DropLaneFull, 1)
}

func TestClose(t *testing.T) {
	s := serve(t, quiet())
	s.c.Close(CloseDrain)
	s.pump()
	s.want("without acknowledgement", "02")
	s.events("it is over", "closed drain")
	s.recv("04 0000 61")
	s.want("late datagrams of a closed session are ignored")
	s.dropped("as a stranger's", DropStranger, 1)
	if len(s.e.byAddr) != 0 {
		t.Fatal("the connection is still there")
	}
}

func TestPeerCloses(t *testing.T) {
	s := serve(t, quiet())
	s.recv("02")
	s.asks("one forged byte is a reason to ask", 0)
	s.wait(time.Second)
	s.events("and must not end a session")
	s.recv("04 0000 61")
	s.wait(3 * time.Second)
	s.events("a peer that speaks after it is still there", "message 0 a")
	s.recv("06 0000 00")
	s.sent = nil
	s.c.loss = lossEstimate{weight: lossMemory}
	s.recv("02")
	s.wait(closeDelay - 1)
	s.events("it may speak")
	s.wait(1)
	s.events("silence confirms it", "closed peer")
	if last := s.sent[len(s.sent)-1]; last == "02" {
		t.Error("a close was answered")
	}
}

// TestPeerClosesOnBadPath: where half of the answers get lost, two seconds of silence mean
// nothing.
func TestPeerClosesOnBadPath(t *testing.T) {
	s := serve(t, quiet())
	s.c.loss = lossEstimate{share: 0.51, weight: lossMemory} // 30 % each way
	s.recv("02")
	s.wait(7*time.Second - 1) // SECURITY.md: two to seven seconds
	s.events("14 questions without an answer are needed")
	s.wait(1)
	s.events("they got none", "closed peer")
	for _, c := range []struct {
		share float32
		want  time.Duration
	}{{0, closeDelay}, {0.05, closeDelay}, {0.1, 2500 * time.Millisecond}, {lossPrior, 3500 * time.Millisecond}, {0.51, silenceMax}, {1, silenceMax}} {
		if got := (&lossEstimate{share: c.share}).silence(500 * time.Millisecond); got != c.want {
			t.Errorf("with a share of %v a peer must be silent for %v, want %v", c.share, got, c.want)
		}
	}
}

// TestRequestOnBadPath: after a request a peer must be silent for 3.5 s at most, because a client that starts again gives
// up after 5 s.
func TestRequestOnBadPath(t *testing.T) {
	s := serve(t, quiet())
	s.recv("04 0000 61")
	s.events("it is no new session", "message 0 a")
	s.c.loss = lossEstimate{share: 0.51, weight: lossMemory} // 30 % each way
	s.recv("00 0100 0000")
	s.wait(3500*time.Millisecond - 1)
	s.recv("00 0100 0000")
	s.events("it may be that the answers got lost")
	s.wait(1)
	s.recv("00 0100 0000")
	s.events("the client asks again after 3.5 s", "closed restarted", "connected")
}

func TestPeerClosesProbed(t *testing.T) {
	s := serve(t, quiet())
	s.c.send.peerLong = true
	s.recv("02")
	s.want("a peer that can answer is asked", "0a 0000 00")
	s.recv("06 0000 00")
	s.wait(5 * time.Second)
	s.events("it did answer")
}

func TestRequestAgain(t *testing.T) {
	s := newTest(t, quiet())
	s.recv("00 0100 0000", "00 0100 0000")
	s.want("the ConnectionAck may have been lost", "01 00 0000", "01 00 0000")
	s.events("it is one connection", "connected")
}

func TestRestartedClient(t *testing.T) {
	s := serve(t, quiet())
	s.c.send.peerLong = true
	s.recv("00 0100 0000")
	s.want("a request on a live session may be late or forged: ask", "0a 0000 00")
	s.recv("06 0000 00")
	s.wait(2 * time.Second)
	s.recv("00 0100 0000")
	s.events("the old session lives")
	s.wait(1900 * time.Millisecond)
	s.recv("00 0100 0000")
	s.events("two seconds are not over")
	s.wait(100 * time.Millisecond)
	s.sent = nil
	s.recv("00 0100 0000")
	s.want("a client that connects says nothing else", "01 00 0000")
	s.events("so the session is a new one", "closed restarted", "connected")
}

func TestRequestAfterClose(t *testing.T) {
	s := serve(t, quiet())
	s.recv("02", "00 0100 0000")
	s.asks("both can be forged, so they are a reason to ask", 0)
	for range 3 {
		s.events("a client that starts again repeats its request")
		s.wait(700 * time.Millisecond)
		s.recv("00 0100 0000")
	}
	s.events("and is let in after two seconds without an answer", "closed peer", "connected")
}

func TestLiveness(t *testing.T) {
	cfg := quiet()
	cfg.LivenessInterval = 15 * time.Second
	s := serve(t, cfg)
	s.wait(16 * time.Second)
	s.want("an old peer would never acknowledge the probe")
	s.recv("0a 0000 00")
	s.want("this one speaks command 10, and has acknowledged nothing for so long", "06 0000 00", "0a 0000 00")
	s.recv("06 0000 00")
	s.wait(14 * time.Second)
	s.recv("03 61")
	s.wait(time.Second)
	s.want("it is probed whatever it says, as it need not be the peer that says it", "0a 0100 00")
	s.recv("06 0100 00")
	s.wait(16 * time.Second)
	s.want("again, and repeated as any reliable command, after 60, 120, 240 and 480 ms", "0a 0200 00", "0a 0200 00", "0a 0200 00", "0a 0200 00", "0a 0200 00")
	s.wait(9 * time.Second)
	s.events("without answer the reliable timeout ends it", "message a", "closed timeout")
}

func TestLivenessNotWithinLongMessage(t *testing.T) {
	cfg := quiet()
	cfg.DatagramMax = 256
	s := serve(t, cfg)
	s.c.send.peerLong = true
	s.c.Send(make([]byte, 246*12), 0)
	s.pump()
	s.sent = nil
	s.recv("02")
	s.want("a probe would be taken for a part, and the parts ask as well")
}

func TestConnect(t *testing.T) {
	s := newTest(t, quiet())
	c, err := s.e.Connect(s.now, peerAddr)
	if err != nil {
		t.Fatal(err)
	}
	s.wait(4999 * time.Millisecond)
	s.want("requests at 0, 1, 2, 3, 4 s", "0001000000", "0001000000", "0001000000", "0001000000", "0001000000")
	s.recv("04 0000 61")
	s.want("a client that connects ignores everything but the ConnectionAck")
	s.wait(time.Millisecond)
	s.events("given up after 5 s", "closed timeout")
	if c.Established() || len(s.e.byAddr) != 0 {
		t.Fatal("the attempt is still there")
	}
}

func TestConnectAnswers(t *testing.T) {
	tests := []struct{ name, ack, want string }{
		{"accepted", "01 00 0000", "connected"},
		{"rejected", "01 01", "closed rejected"},
		{"no common protocol", "01 02", "closed no_protocol"},
		{"unknown result", "01 07", "closed rejected"},
		{"another protocol", "01 00 0100", "closed no_protocol"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTest(t, Config{})
			s.e.Connect(s.now, peerAddr)
			s.pump()
			s.recv(tt.ack)
			s.events(tt.name, tt.want)
			s.recv(tt.ack)
			s.events("a repeated answer is ignored")
		})
	}
}

// TestWindowEdge is the case that ends sessions of libraries: the acknowledgement of
// 65530 is lost, and the peer, which is beyond that number, does not repeat it.
func TestWindowEdge(t *testing.T) {
	s := serve(t, quiet())
	s.c.send.peerLong = true
	s.c.send.next = 65530
	s.c.Send([]byte("m"), 0)
	s.wait(1999 * time.Millisecond)
	s.sent = nil
	for n := uint64(65531); n < 65530+15; n++ {
		s.recv(fmt.Sprintf("06 %02x%02x 00", byte(n%65535), byte(n%65535>>8)))
	}
	s.wait(1500 * time.Millisecond)
	s.recv("06 0a00 00")
	if n := s.c.send.base(); n != 65530 {
		t.Fatalf("oldest unacknowledged is %d; a number fifteen beyond proves nothing, because our window holds as many", n)
	}
	s.recv("06 0b00 00")
	if n := s.c.send.base(); n <= 65530 {
		t.Fatal("a peer that acknowledges a number sixteen beyond has it")
	}
	if s.e.stats.Inferred != 1 {
		t.Fatalf("%d inferred, want 1", s.e.stats.Inferred)
	}
}

// TestWindowEdgeQuestion is the same with a question, of which the answer arrives: the next one of the series follows.
func TestWindowEdgeQuestion(t *testing.T) {
	s := serve(t, quiet())
	s.c.send.peerLong = true
	s.c.send.next = 65530
	s.c.Ask()
	s.wait(1999 * time.Millisecond)
	q := s.c.links.question
	s.recv(fmt.Sprintf("08 %02x%02x", byte(q.list[0].id), byte(q.list[0].id>>8)))
	s.events("the answer", "answered")
	for n := uint64(65531); n < 65530+17; n++ {
		s.wait(300 * time.Millisecond)
		s.recv(fmt.Sprintf("06 %02x%02x 00", byte(n%65535), byte(n%65535>>8)))
	}
	if s.e.stats.Inferred != 1 || len(q.list) != 2 {
		t.Fatalf("%d inferred, and %d questions, want 1 and 2", s.e.stats.Inferred, len(q.list))
	}
}

func TestWindowEdgeGuard(t *testing.T) {
	cfg := quiet()
	cfg.ReliableResend = 2 * time.Second
	s := serve(t, cfg)
	s.c.send.peerLong = true
	s.c.send.next = 65520
	s.c.Send([]byte("m"), 0)
	s.wait(3900 * time.Millisecond)
	s.recv("06 0100 00")
	if s.c.send.base() != 65520 {
		t.Fatal("a peer before the wrap takes 1 for an old number and acknowledges it blindly")
	}
}

// TestForgedLife: what anybody can write does not contradict a close.
func TestForgedLife(t *testing.T) {
	s := serve(t, quiet())
	s.recv("0a 0000 00")
	s.recv("02")
	for range 3 {
		s.wait(closeDelay / 4)
		s.recv("03 61", "07 0080", "08 0080", "09 01 0080 00")
	}
	s.wait(closeDelay / 4)
	s.events("the close counts", "message a", "message a", "message a", "closed peer")
}

// TestForgedCloses: after suspicions that evidence refuted, another one counts later: a short
// silence of the peer must not meet one of many.
func TestForgedCloses(t *testing.T) {
	s := serve(t, quiet())
	s.c.send.peerLong = true
	for i, want := range []time.Duration{closeDelay, closeDelay, 2 * closeDelay, 4 * closeDelay, 10 * time.Second, 10 * time.Second} {
		s.recv("02")
		if got := s.c.life.closeAt.sub(s.e.clock.now); got != want {
			t.Errorf("close %d counts after %v, want %v", i, got, want)
		}
		s.recv(fmt.Sprintf("06 %02x00 00", i))
		if s.c.life.suspected() {
			t.Fatal("the answer does not refute it")
		}
	}
}
