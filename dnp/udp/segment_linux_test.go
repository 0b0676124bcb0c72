package udp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRunLength: which datagrams may leave as one piece, and why others may not.
func TestRunLength(t *testing.T) {
	s := open(t, "127.0.0.1:0")
	other := open(t, "127.0.0.1:0").LocalAddr()
	tests := []struct {
		name  string
		sizes []int
		want  int
	}{
		{"one", []int{10}, 1},
		{"equal", []int{10, 10, 10}, 3},
		{"the last may be shorter", []int{10, 10, 3}, 3},
		{"behind a shorter one nothing may come", []int{10, 3, 3}, 2},
		{"a longer one begins a run of its own", []int{10, 11}, 1},
		{"an empty datagram is none to the kernel", []int{10, 0}, 1},
		{"nor at the start", []int{0, 0}, 1},
		{"another peer", []int{10, -10}, 1},
		{"the length of an IP datagram", []int{30000, 30000, 30000}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := s.Writer()
			for _, size := range tt.sizes {
				to := s.LocalAddr()
				if size < 0 {
					size, to = -size, other
				}
				w.Send(to, append(w.Datagram(size), pattern(size)...))
			}
			if got := runLength(w.batch); got != tt.want {
				t.Errorf("runLength of %v = %d, want %d", tt.sizes, got, tt.want)
			}
			_ = w.Flush()
		})
	}
	memory := []byte("ab-cd")
	apart := []outgoing{{other, memory[:2]}, {other, memory[3:]}}
	if got := runLength(apart); got != 1 {
		t.Errorf("runLength of datagrams that lie apart = %d, want 1", got)
	}
}

// TestSegments sends random batches to two peers, of both address families, while some
// system calls fail. Every datagram must arrive unchanged and in order.
func TestSegments(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		a, peers := open(t, addr), []*Socket{open(t, addr), open(t, addr)}
		r, w := rand.New(rand.NewPCG(*seed, 0)), a.Writer()
		out, calls := a.Writer().sender.(*sender), 0
		out.sendmmsg = func(sock int, headers []mmsghdr) (int, syscall.Errno) {
			if calls++; r.IntN(4) == 0 && headers[0].hdr.Controllen > 0 {
				return -1, unix.EINVAL
			}
			return sendmmsg(sock, headers[:1+r.IntN(len(headers))])
		}
		for round := range 200 {
			var want [2][][]byte
			sizes := []int{1 + r.IntN(50), 1 + r.IntN(1200)}
			for range r.IntN(2 * writeBatch) {
				data := pattern(sizes[r.IntN(2)*r.IntN(2)])
				data[0] = byte(r.IntN(256))
				to := r.IntN(4) / 3
				want[to] = append(want[to], data)
				w.Send(peers[to].LocalAddr(), append(w.Datagram(len(data)), data...))
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			for i, p := range peers {
				if len(want[i]) == 0 {
					continue
				}
				for j, got := range receive(t, p, len(want[i])) {
					if !bytes.Equal(got.Data, want[i][j]) {
						t.Fatalf("seed %d, %s, round %d: datagram %d of peer %d is %d bytes, want %d",
							*seed, addr, round, j, i, len(got.Data), len(want[i][j]))
					}
				}
			}
		}
		s := a.Stats()
		if s.Uncut == 0 || s.Drops != [NumDropReasons]uint64{} {
			t.Errorf("%s: %d runs sent one by one, drops %v, want some and none", addr, s.Uncut, s.Drops)
		}
	}
}

// TestUncut: after some errors the datagrams of a run are sent one by one, after others
// the run is lost; in both cases all datagrams behind it are sent.
func TestUncut(t *testing.T) {
	tests := []struct {
		errno syscall.Errno // of every run
		got   int           // of two runs, of five and six, and a single datagram
		drops DropReason
		plain bool
	}{
		{unix.EINVAL, 12, 0, false},
		{unix.EMSGSIZE, 12, 0, false},
		{unix.EIO, 12, 0, true}, // the device cannot, so nothing is tried again
		{unix.ENOBUFS, 1, DropFull, false},
		{unix.EPERM, 1, DropOther, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.errno), func(t *testing.T) {
			a, b, c := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
			out, calls := a.Writer().sender.(*sender), 0
			out.sendmmsg = func(sock int, headers []mmsghdr) (int, syscall.Errno) {
				if calls++; calls > 20 {
					t.Fatal("a run is tried for ever")
				}
				if headers[0].hdr.Controllen > 0 {
					return -1, tt.errno
				}
				return sendmmsg(sock, headers[:1])
			}
			w := a.Writer()
			for _, p := range []*Socket{b, c} {
				for range 5 {
					w.Send(p.LocalAddr(), append(w.Datagram(100), pattern(100)...))
				}
			}
			w.Send(c.LocalAddr(), append(w.Datagram(7), pattern(7)...))
			w.Send(c.LocalAddr(), append(w.Datagram(8), pattern(8)...))
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			ds := receive(t, c, tt.got/2+1)
			if last := ds[len(ds)-1]; len(last.Data) != 8 {
				t.Errorf("the last datagram has %d bytes, want 8", len(last.Data))
			}
			s := a.Stats()
			if s.DatagramsOut != uint64(tt.got) || s.Drops[tt.drops] != uint64(12-tt.got) {
				t.Errorf("%d sent, %d dropped as %v, want %d and %d", s.DatagramsOut, s.Drops[tt.drops], tt.drops, tt.got, 12-tt.got)
			}
			if out.plain != tt.plain {
				t.Errorf("runs are given up: %v, want %v", out.plain, tt.plain)
			}
		})
	}
}

// BenchmarkSegments sends what an edge sends to a client: two full datagrams and a
// rest. One operation is one datagram; cut=false is without UDP_SEGMENT.
func BenchmarkSegments(b *testing.B) {
	for _, cut := range []bool{false, true} {
		b.Run(fmt.Sprintf("cut=%v", cut), func(b *testing.B) {
			from, to := open(b, "127.0.0.1:0"), open(b, "127.0.0.1:0")
			from.Writer().sender.(*sender).plain = !cut
			data, ds, w, addr := pattern(1190), make([]Datagram, 64), from.Writer(), to.LocalAddr()
			b.ReportAllocs()
			for range (b.N + 2) / 3 {
				for _, size := range []int{1190, 1190, 1000} {
					w.Send(addr, append(w.Datagram(size), data[:size]...))
				}
				_ = w.Flush()
				for got := 0; got < 3; {
					n, err := to.ReadBatch(ds)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
			}
		})
	}
}
