package natsbus

import (
	"errors"
	"testing"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/natsembed"
)

// BenchmarkPublish sends a batch of 1 KiB from one node to another through the server.
func BenchmarkPublish(b *testing.B) {
	s, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Shutdown()
	from, err1 := Connect(Config{URL: s.URL()})
	to, err2 := Connect(Config{URL: s.URL()})
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	if _, err := to.Subscribe("x", func(bus.Msg) {}); err != nil {
		b.Fatal(err)
	}
	if err := to.Flush(patience); err != nil {
		b.Fatal(err)
	}
	m := bus.Msg{Subject: "x", Data: make([]byte, 1024)}
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		for errors.Is(from.Publish(m), bus.ErrBusy) {
			if err := from.Flush(patience); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := errors.Join(from.Flush(patience), to.Flush(patience)); err != nil {
		b.Fatal(err)
	}
}
