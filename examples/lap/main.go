// Command lap is a DNP server that shows whether a client gets every reliable message once, over laps of the 65,535
// numbers that they have on the wire (dnp/PROTOCOL.md, The lap). It takes one client, loses some datagrams both ways,
// and sends the client messages that count from 0 on: 8 bytes, little endian. The client is the judge: each message
// has to be one more than the last, over all its connections. examples/README.md has such clients.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"log"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:25413", "address")
	laps := flag.Float64("laps", 3.2, "how many laps of messages to send")
	s := &server{}
	flag.Float64Var(&s.loss, "loss", 0.05, "share of datagrams that get lost each way")
	flag.Uint64Var(&s.lossUntil, "loss-until", 3000, "last message with loss")
	flag.BoolVar(&s.fault, "fault", false, "do not close connections: the libraries then pass on stale messages")
	flag.Parse()
	s.end = uint64(*laps * 65535)
	if err := s.serve(*listen); err != nil {
		log.Fatal(err)
	}
}

// A server sends one client messages.
type server struct {
	loss      float64
	lossUntil uint64
	fault     bool

	socket *net.UDPConn
	e      *dnp.Endpoint
	conn   *dnp.Conn // nil while there is none
	closes bool      // as soon as nothing is under way
	buf    []byte

	queued, sent, end uint64 // messages: handed to the connection, sent by it, all
}

// ahead is how many messages wait in the connection at most.
const ahead = 20

func (s *server) serve(listen string) (err error) {
	addr, err := netip.ParseAddrPort(listen)
	if err != nil {
		return err
	}
	if s.socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)); err != nil {
		return err
	}
	if s.e, err = dnp.New(dnp.Config{Listen: true, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}); err != nil {
		return err
	}
	for p := make([]byte, 65536); ; {
		at := time.Now().Add(20 * time.Millisecond)
		if due, ok := s.e.NextTimeout(); ok && due.Before(at) {
			at = due
		}
		if err := s.socket.SetReadDeadline(at); err != nil {
			return err
		}
		n, from, err := s.socket.ReadFromUDPAddrPort(p)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return err
		case n > 0 && !s.loses():
			s.handle(s.e.Receive(time.Now(), from, p[:n], s))
		}
		s.feed()
		s.handle(s.e.Advance(time.Now(), s))
		if _, idle := s.traffic(); idle && s.sent == s.end {
			log.Printf("all %d messages are acknowledged", s.end)
			s.conn.Close(dnp.CloseLocal)
			s.handle(s.e.Advance(time.Now(), s))
			return nil
		}
	}
}

func (s *server) traffic() (t dnp.Traffic, idle bool) {
	if s.conn != nil {
		t, idle = s.e.Traffic(s.conn)
	}
	return t, idle
}

// feed queues messages. Before the end of a lap it lets those under way arrive, and closes the connection.
func (s *server) feed() {
	if _, idle := s.traffic(); idle && s.closes {
		s.conn.Close(dnp.CloseRecycle)
		s.closes = false
	}
	for s.conn != nil && !s.closes && s.queued < min(s.sent+ahead, s.end) {
		if s.conn.Send(binary.LittleEndian.AppendUint64(nil, s.queued), s.queued+1) != nil {
			return // it is closing
		}
		s.queued++
	}
}

func (s *server) handle(events []dnp.Event) {
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case dnp.EventConnected:
			s.conn, s.closes, s.queued = ev.Conn, false, s.sent
			if s.fault {
				dnp.PeerForgets(s.conn)
			}
			log.Printf("%v is connected; the next message is %d", ev.Conn.Addr(), s.sent)
		case dnp.EventSent:
			s.sent = ev.Token
		case dnp.EventLap:
			s.closes = true
		case dnp.EventClosed:
			log.Printf("the connection ended (%v); %d messages were sent", ev.Reason, s.sent)
			if ev.Conn == s.conn {
				s.conn = nil
			}
		}
	}
}

func (s *server) loses() bool { return s.sent < s.lossUntil && rand.Float64() < s.loss }

// Datagram and Send make the server the Sender of its Endpoint.
func (s *server) Datagram(size int) []byte {
	if cap(s.buf) < size {
		s.buf = make([]byte, 0, size)
	}
	return s.buf[:0]
}

// Send loses no ConnectionClose, which libraries would not notice.
func (s *server) Send(to netip.AddrPort, p []byte) {
	if len(p) > 1 && s.loses() {
		return
	}
	_, _ = s.socket.WriteToUDPAddrPort(p, to) // what the system drops is lost like any other
}
