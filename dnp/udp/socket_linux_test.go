package udp

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReusePort: the kernel distributes clients over the sockets, and one client always
// reaches the same socket.
func TestReusePort(t *testing.T) {
	sockets, err := Listen(Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Sockets: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(sockets)
	to := sockets[0].LocalAddr()
	const clients, each = 64, 3
	for range clients {
		c := open(t, "127.0.0.1:0") // stays open, so that no two clients have the same port
		for range each {
			send(t, c, to, []byte("x"))
		}
	}
	total, used := 0, 0
	ds := make([]Datagram, 64)
	for i, s := range sockets {
		if s.LocalAddr() != to {
			t.Fatalf("socket %d is at %v, want %v", i, s.LocalAddr(), to)
		}
		seen := map[netip.AddrPort]int{}
		s.SetReadDeadline(time.Unix(1, 0)) // loopback delivers within send
		for {
			n, err := s.ReadBatch(ds)
			if err != nil {
				break
			}
			for _, d := range ds[:n] {
				seen[d.From]++
			}
		}
		for from, n := range seen {
			total += n
			if n != each {
				t.Errorf("socket %d has %d datagrams of %v, want all %d", i, n, from, each)
			}
		}
		if len(seen) > 0 {
			used++
		}
	}
	if total != clients*each || used < 2 {
		t.Fatalf("%d datagrams at %d sockets, want %d at more than one", total, used, clients*each)
	}
}

// TestNotShared: a port that is in use is not joined, although its sockets let others of the
// same call join.
func TestNotShared(t *testing.T) {
	first, err := Listen(Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Sockets: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(first)
	if s, err := Listen(Config{Addr: first[0].LocalAddr()}); err == nil {
		closeAll(s)
		t.Fatal("Listen joined a port that is in use")
	}
}

func TestBuffers(t *testing.T) {
	s, err := Open(Config{ReadBuffer: 100_000, WriteBuffer: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if r, w := s.Buffers(); r != 100_000 || w != 50_000 {
		t.Errorf("Buffers = %d, %d, want what was asked for", r, w)
	}
}

func TestOverflows(t *testing.T) {
	a, err := Open(Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	b, err := Open(Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), ReadBuffer: 1, ReadSlots: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for range 100 {
		send(t, a, b.LocalAddr(), pattern(1000))
	}
	n, err := b.ReadBatch(make([]Datagram, 1024))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Stats().Overflows; got == 0 || got != uint64(100-n) {
		t.Fatalf("%d overflows with %d of 100 received, want the difference", got, n)
	}
}

// faults makes a sender's system call fail as a list says. An entry n > 0 sends
// n datagrams only; calls after the last entry send everything.
func faults(s *Socket, list ...any) {
	out := s.Writer().sender.(*sender)
	out.sendmmsg = func(sock int, headers []mmsghdr) (int, syscall.Errno) {
		if len(list) == 0 {
			return sendmmsg(sock, headers)
		}
		f := list[0]
		list = list[1:]
		if n, ok := f.(int); ok {
			return sendmmsg(sock, headers[:n])
		}
		return -1, f.(syscall.Errno)
	}
}

// TestSendFaults: each fault costs at most the datagram that it hits.
func TestSendFaults(t *testing.T) {
	tests := []struct {
		name   string
		faults []any
		want   []int // datagrams of 0 to 4 that arrive
		drops  map[DropReason]uint64
		waits  uint64
	}{
		{"none", nil, []int{0, 1, 2, 3, 4}, nil, 0},
		{"partial", []any{2, 1}, []int{0, 1, 2, 3, 4}, nil, 0},
		{"no room, then room", []any{2, unix.EAGAIN}, []int{0, 1, 2, 3, 4}, nil, 1},
		{"ENOBUFS", []any{unix.ENOBUFS, 1, unix.ENOBUFS}, []int{1, 3, 4}, map[DropReason]uint64{DropFull: 2}, 0},
		{"too large", []any{1, unix.EMSGSIZE}, []int{0, 2, 3, 4}, map[DropReason]uint64{DropTooLarge: 1}, 0},
		{"late report", []any{1, unix.ECONNREFUSED}, []int{0, 1, 2, 3, 4}, map[DropReason]uint64{DropRefused: 1}, 0},
		{"two late reports", []any{unix.ECONNREFUSED, 1, unix.ECONNREFUSED}, []int{0, 1, 2, 3, 4}, map[DropReason]uint64{DropRefused: 2}, 0},
		{"refused itself", []any{unix.EHOSTUNREACH, unix.EHOSTUNREACH}, []int{1, 2, 3, 4}, map[DropReason]uint64{DropUnreachable: 2}, 0},
		{"interrupted", []any{unix.EINTR, 3, unix.EINTR}, []int{0, 1, 2, 3, 4}, nil, 0},
		{"forbidden", []any{4, unix.EPERM}, []int{0, 1, 2, 3}, map[DropReason]uint64{DropOther: 1}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
			faults(a, tt.faults...)
			w := a.Writer()
			for i := range 5 {
				// each longer than the last, so that each is a run of its own
				w.Send(b.LocalAddr(), append(w.Datagram(i+1), pattern(i+1)...))
			}
			if err := w.Flush(); err != nil {
				t.Fatalf("Flush: %v", err)
			}
			var got []int
			for _, d := range receive(t, b, len(tt.want)) {
				got = append(got, len(d.Data)-1)
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("received %v, want %v", got, tt.want)
			}
			s := a.Stats()
			for r := range NumDropReasons {
				if s.Drops[r] != tt.drops[r] {
					t.Errorf("%d dropped as %v, want %d", s.Drops[r], r, tt.drops[r])
				}
			}
			if s.WriteWaits != tt.waits || s.DatagramsOut != uint64(len(tt.want)) {
				t.Errorf("%d waits, %d sent, want %d, %d", s.WriteWaits, s.DatagramsOut, tt.waits, len(tt.want))
			}
		})
	}
}

// TestSendNoRoom: a socket that stays full costs one wait per flush, not one per
// datagram, and the datagrams are dropped.
func TestSendNoRoom(t *testing.T) {
	a := open(t, "127.0.0.1:0")
	calls := 0
	a.Writer().sender.(*sender).sendmmsg = func(int, []mmsghdr) (int, syscall.Errno) {
		calls++
		return -1, unix.EAGAIN
	}
	w := a.Writer()
	for range 5 {
		w.Send(a.LocalAddr(), append(w.Datagram(1), 0))
	}
	if err := w.Flush(); err != nil {
		t.Fatalf("Flush: %v", err)
	}
	if s := a.Stats(); s.WriteWaits != 1 || s.Drops[DropFull] != 5 {
		t.Fatalf("%d waits and %d drops, want 1 and 5", s.WriteWaits, s.Drops[DropFull])
	}
	a.Writer().sender.(*sender).sendmmsg = sendmmsg
	send(t, a, a.LocalAddr(), []byte("x")) // the deadline of the wait must not outlive it
	receive(t, a, 1)
}

// TestRefused lets the kernel report closed ports, which it does on request. Each report
// is counted and has no other effect.
func TestRefused(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	if err := unix.SetsockoptInt(a.conn.(*mmsgConn).descriptor.sock, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	gone := open(t, "127.0.0.1:0")
	closed := gone.LocalAddr()
	_ = gone.Close()
	w := a.Writer()
	for range 3 { // in a batch; sendmmsg swallows a report that is not at its start
		w.Send(closed, append(w.Datagram(1), 0))
		w.Send(b.LocalAddr(), append(w.Datagram(1), 1))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	send(t, a, closed, []byte("x")) // and one at the start
	send(t, a, b.LocalAddr(), []byte("x"))
	receive(t, b, 4)
	send(t, a, closed, []byte("x")) // and one that a read receives
	send(t, b, a.LocalAddr(), []byte("x"))
	receive(t, a, 1)
	if s := a.Stats(); s.Drops[DropRefused] == 0 {
		t.Fatalf("counters %+v, want refusals", s)
	}
}

func open(t testing.TB, addr string) *Socket {
	t.Helper()
	s, err := Open(Config{Addr: netip.MustParseAddrPort(addr)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestWriterWithinWriter: while one writer is in its system call, another one sends. Both datagrams arrive as they were built.
func TestWriterWithinWriter(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	first, second := a.NewWriter(), a.NewWriter()
	calls := 0
	first.sender.(*sender).sendmmsg = func(sock int, headers []mmsghdr) (int, syscall.Errno) {
		calls++
		second.Send(b.LocalAddr(), append(second.Datagram(3), "two"...))
		if err := second.Flush(); err != nil {
			t.Error(err)
		}
		return sendmmsg(sock, headers)
	}
	first.Send(b.LocalAddr(), append(first.Datagram(5), "first"...))
	if err := first.Flush(); err != nil || calls != 1 {
		t.Fatalf("%d system calls and %v, want 1 and no error", calls, err)
	}
	got := receive(t, b, 2)
	wantData(t, "the writer that came between", got[0], a.LocalAddr(), []byte("two"))
	wantData(t, "the writer that was interrupted", got[1], a.LocalAddr(), []byte("first"))
}
