package udp

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
)

// BenchmarkSocket sends and receives batches of 64 datagrams over loopback. One
// operation is one datagram, out and in.
func BenchmarkSocket(b *testing.B) {
	for _, size := range []int{40, 1200} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			from, to := open(b, "127.0.0.1:0"), open(b, "127.0.0.1:0")
			data, ds, w, addr := pattern(size), make([]Datagram, 64), from.Writer(), to.LocalAddr()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for range rounds(b) {
				for range writeBatch {
					w.Send(addr, append(w.Datagram(size), data...))
				}
				to.SetReadDeadline(time.Now().Add(patience))
				for got := 0; got < writeBatch; {
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

// BenchmarkXNet is BenchmarkSocket with golang.org/x/net.
func BenchmarkXNet(b *testing.B) {
	for _, size := range []int{40, 1200} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			from, to := listenXNet(b), listenXNet(b)
			data := pattern(size)
			out, in := make([]ipv4.Message, writeBatch), make([]ipv4.Message, writeBatch)
			for i := range out {
				out[i].Buffers, in[i].Buffers = [][]byte{make([]byte, size)}, [][]byte{make([]byte, 2048)}
			}
			addr := to.LocalAddr().(*net.UDPAddr).AddrPort()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for range rounds(b) {
				for i := range out { // each datagram has an address of its own, as in an edge
					out[i].Addr = net.UDPAddrFromAddrPort(addr)
					copy(out[i].Buffers[0], data)
				}
				if n, err := from.WriteBatch(out, 0); n != writeBatch {
					b.Fatal(n, err)
				}
				_ = to.SetReadDeadline(time.Now().Add(patience))
				for got := 0; got < writeBatch; {
					n, err := to.ReadBatch(in, 0)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
			}
		})
	}
}

// BenchmarkPortable is BenchmarkSocket with the portable socket.
func BenchmarkPortable(b *testing.B) {
	from, err := portable(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to := open(b, "127.0.0.1:0")
	data, ds, w, addr := pattern(40), make([]Datagram, 64), from.Writer(), to.LocalAddr()
	b.ReportAllocs()
	for range rounds(b) {
		for range writeBatch {
			w.Send(addr, append(w.Datagram(len(data)), data...))
		}
		to.SetReadDeadline(time.Now().Add(patience))
		for got := 0; got < writeBatch; {
			n, err := to.ReadBatch(ds)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
}

// BenchmarkWake is a Wake and the ReadBatch that it ends.
func BenchmarkWake(b *testing.B) {
	s := open(b, "127.0.0.1:0")
	ds := make([]Datagram, 1)
	b.ReportAllocs()
	for b.Loop() {
		s.Wake()
		if _, err := s.ReadBatch(ds); err != ErrWoken {
			b.Fatal(err)
		}
	}
}

func rounds(b *testing.B) int { return (b.N + writeBatch - 1) / writeBatch }

func listenXNet(b *testing.B) *ipv4.PacketConn {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	_ = c.SetReadBuffer(bufferDefault)
	b.Cleanup(func() { _ = c.Close() })
	return ipv4.NewPacketConn(c)
}
