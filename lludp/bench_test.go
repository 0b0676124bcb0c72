package lludp

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// BenchmarkReliable sends a zero-coded reliable packet of 100 bytes from one circuit to
// another, with its share of the acknowledgements back.
func BenchmarkReliable(b *testing.B) {
	now := time.Unix(1000, 0)
	x, _ := New(now, Config{})
	y, _ := New(now, Config{})
	var there, back pipe
	m := Message{Number: wire.AgentUpdate, Body: make([]byte, 100), Reliable: true, ZeroCode: true}
	for i := 0; i < 100; i += 5 {
		m.Body[i] = 1
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Send(now, m, &there); err != nil {
			b.Fatal(err)
		}
		y.Receive(now, there.b, &back)
		if len(back.b) > 0 {
			x.Receive(now, back.b, &there)
			back.b = back.b[:0]
		}
	}
}

// A pipe is a Sender that stores the last datagram.
type pipe struct{ b []byte }

func (p *pipe) Datagram(size int) []byte {
	if cap(p.b) < size {
		p.b = make([]byte, 0, size)
	}
	return p.b[:0]
}

func (p *pipe) Send(b []byte) { p.b = b }
