package webtransport

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestSegments sends packets of several sizes to two clients and wants each client to get its own, one by one and in order.
func TestSegments(t *testing.T) {
	socket := listenLocal(t)
	s := newSocket(socket).(*segmenting)
	a, b := listenLocal(t), listenLocal(t)
	to := func(c *net.UDPConn) *net.UDPAddr { return c.LocalAddr().(*net.UDPAddr) }
	var wantA, wantB []string
	for i, size := range []int{1200, 1200, 900, 1200, 1200, 1200, 40, 1300, 1200} { // the kernel has none yet, so they can be joined
		p := bytes.Repeat([]byte{byte(i)}, size)
		wantA = append(wantA, string(p))
		send(t, s, p, 1400, to(a))
		send(t, s, p[:30], 1400, to(b))
		wantB = append(wantB, string(p[:30]))
	}
	send(t, s, bytes.Repeat([]byte{9}, 2500), 1000, to(a)) // quic-go joined these
	for _, n := range []int{1000, 1000, 500} {
		wantA = append(wantA, string(bytes.Repeat([]byte{9}, n)))
	}
	send(t, s, []byte("a probe"), 0, to(a)) // no part of others
	wantA = append(wantA, "a probe")
	if n := len(s.queue); n != 6 {
		t.Errorf("%d messages wait, want 6: one for the second client, and for the first 1200, 1200, 900; 3 of 1200 and 40; 1300, 1200; 1000, 1000, 500; and the probe", n)
	}
	var running sync.WaitGroup
	running.Go(s.run)
	if got := receive(t, a, len(wantA)); !slices.Equal(got, wantA) {
		t.Errorf("the first client got %s, want %s", sizes(got), sizes(wantA))
	}
	if got := receive(t, b, len(wantB)); !slices.Equal(got, wantB) {
		t.Errorf("the second client got %s, want %s", sizes(got), sizes(wantB))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	running.Wait() // run ends with the socket
	if _, _, err := s.WriteMsgUDP([]byte("late"), nil, to(a)); err == nil {
		t.Error("a closed socket takes packets")
	}
}

// TestSegmentSize takes the size out of control messages and leaves the others.
func TestSegmentSize(t *testing.T) {
	other := appendSegmentSize(nil, 7)
	other[8] = 0 // of another level
	for _, before := range [][]byte{nil, other} {
		oob := append(appendSegmentSize(slices.Clone(before), 1300), other...)
		at, end, size := segmentSize(oob)
		if size != 1300 || !bytes.Equal(oob[:at], before) || !bytes.Equal(oob[end:], other) {
			t.Errorf("%x: found %d from %d to %d", oob, size, at, end)
		}
		if at, end, size := segmentSize(oob[:len(before)+20]); size != 0 || at != len(before)+20 || end != at {
			t.Errorf("%x: found %d in a control message that is cut", oob[:len(before)+20], size)
		}
	}
}

func send(t *testing.T, s *segmenting, p []byte, size int, to *net.UDPAddr) {
	t.Helper()
	var oob []byte
	if size > 0 {
		oob = appendSegmentSize(nil, size)
	}
	if n, _, err := s.WriteMsgUDP(p, oob, to); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
}

func receive(t *testing.T, c *net.UDPConn, n int) (got []string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); len(got) < n; {
		size, err := c.Read(buf)
		if err != nil {
			t.Fatalf("after %s: %v", sizes(got), err)
		}
		got = append(got, string(buf[:size]))
	}
	return got
}

func sizes(list []string) (text string) {
	for _, p := range list {
		text += fmt.Sprintf(" %d×%q", len(p), p[:1])
	}
	return text
}

func listenLocal(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
