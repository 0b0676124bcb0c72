package webtransport_test

import (
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

func TestDatagramsBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		if p.Resumed || !s.Tokens.Valid(carrier.WebTransport, p.Token) {
			t.Errorf("the greeting is %+v", p)
		}
		p.send("a", bytes(1200))
		s.WantDatagram("a")
		c := s.WantDatagram(bytes(1200))
		if c.Addr() != s.addr(p) {
			t.Error("the datagrams come from another address than that of the token")
		}
		s.Send(c.Addr(), "b", bytes(1200), "c")
		p.want("b", bytes(1200), "c")
	})
}

// TestLongDatagrams sends datagrams that do not fit into a packet: the stream carries them.
func TestLongDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		largest := strings.Repeat("d", carrier.DatagramMax)
		p.sendFrame(largest)
		p.sendFrame("") // is ignored
		p.sendFrame("short")
		c := s.WantDatagram(largest)
		s.WantDatagram("short")
		s.Send(c.Addr(), bytes(2000), bytes(30000), "fits")
		p.wantFrame(bytes(2000))
		p.wantFrame(bytes(30000))
		p.want("fits")
		s.Send(c.Addr(), strings.Repeat("e", carrier.DatagramMax))
		p.wantFrame(strings.Repeat("e", carrier.DatagramMax))
	})
}
