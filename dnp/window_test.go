package dnp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestRecvWindowModel sends numbered messages in any order, with repeats, through two
// wraps. The Endpoint must deliver each once and in order, and acknowledge like a twin
// that knows the true numbers.
func TestRecvWindowModel(t *testing.T) {
	rng := newRand(t)
	for _, profile := range []wire.Profile{wire.Denetwork, wire.Spec} {
		cfg := quiet()
		cfg.Profile = profile
		s := serve(t, cfg)
		total := 2*profile.Modulus() + 100
		var next uint64 // of the twin
		held := make(map[uint64]bool)
		var p []byte
		for next < total {
			n := next + uint64(rng.IntN(recvAhead+4))
			if rng.IntN(4) == 0 {
				n -= min(n, uint64(rng.IntN(recvBehind+100)))
			}
			p = wire.ReliableMessage{Seq: profile.Seq(n), Data: binary.LittleEndian.AppendUint64(nil, n)}.Append(p[:0])
			valid := n < next+recvAhead && n+recvBehind >= next
			s.sent = s.sent[:0]
			events := s.e.Receive(s.now, peerAddr, p, &s.recorder)
			due, acked, want := next, len(s.sent), 0
			switch {
			case valid && n >= next:
				held[n] = true
			case valid:
				want = 1
			}
			for _, v := range events {
				if v.Kind != EventMessage {
					continue // outside the window; only an attacker sends such a number
				}
				if got := binary.LittleEndian.Uint64(v.Data); got != next || v.Number != next || !held[next] {
					t.Fatalf("%v: delivered %d as %d, want %d", profile, got, v.Number, next)
				}
				delete(held, next)
				next++
			}
			if held[next] {
				t.Fatalf("%v: %d was not delivered", profile, next)
			}
			if want += int(next - due); acked != want { // what waits for others is acknowledged with them
				t.Fatalf("%v: number %d while %d is due: %d acknowledgements, want %d", profile, n, due, acked, want)
			}
		}
	}
}

// TestSendWindowModel lets a peer acknowledge at random, through two wraps, and compares
// the window with a twin that records what happened to each number.
func TestSendWindowModel(t *testing.T) {
	rng := newRand(t)
	for _, profile := range []wire.Profile{wire.Denetwork, wire.Spec} {
		cfg := quiet()
		cfg.Profile, cfg.ReliableTimeout = profile, time.Hour
		s := serve(t, cfg)
		PeerForgets(s.c)
		m := sendModel{t: t, s: s, open: make(map[uint64]*sentOnce)}
		total := 2*profile.Modulus() + 100
		for m.base < total {
			for m.queued < m.base+30 {
				s.c.Send(binary.LittleEndian.AppendUint64(nil, m.queued), 0)
				m.queued++
			}
			s.e.Advance(s.now, &m)
			for range 1 + rng.IntN(12) {
				m.ack(m.base + uint64(rng.IntN(12)))
			}
			if rng.IntN(20) == 0 {
				s.now = s.now.Add(time.Duration(rng.IntN(600)) * time.Millisecond)
			}
		}
	}
}

// A sendModel is the twin, as the Sender of the Endpoint.
type sendModel struct {
	t            *testing.T
	s            *connTest
	base, queued uint64               // oldest unacknowledged, next message
	sentTo       uint64               // numbers below were sent
	open         map[uint64]*sentOnce // sent and not acknowledged
}

// A sentOnce is what the twin knows of a command.
type sentOnce struct {
	last     time.Time // of its sendings
	again    bool      // it was sent more than once
	past     bool      // it was sent past the window of the peer
	overtook int       // commands sent once, not before the last sending, that were acknowledged since
}

func (m *sendModel) Datagram(size int) []byte { return make([]byte, 0, size) }

func (m *sendModel) Send(_ addrPort, b []byte) {
	n := binary.LittleEndian.Uint64(b[3:])
	profile := m.s.e.cfg.Profile
	window := uint64(sendWindowSize)
	oldest := m.open[m.base]
	switch {
	case uint64(profile.Seq(m.base)) >= profile.Modulus()-edgeDistance:
		window = sendWindowMax // after a long wait near the wrap the window widens
	case oldest != nil && oldest.again: // it most likely arrives now
		window = sendWindowPast
	}
	now, sent := m.s.now, m.open[n]
	want := wire.ReliableMessage{Seq: profile.Seq(n), Data: b[3:]}.Append(nil)
	switch {
	case !bytes.Equal(b, want):
		m.t.Fatalf("message %d went as % x", n, b)
	case n > m.sentTo || n >= m.base+window:
		m.t.Fatalf("message %d was sent while %d is the oldest and %d the next", n, m.base, m.sentTo)
	case n == m.sentTo:
		m.sentTo++
		m.open[n] = &sentOnce{last: now, past: n >= m.base+sendWindowSize}
	case sent == nil:
		m.t.Fatalf("message %d was repeated, which was acknowledged", n)
	case n == m.base && sent.last.Equal(now): // a second copy of the repeat for which the others wait, or the repeat in an instant
		sent.again = true
	case sent.overtook < 2 && !sent.past && now.Sub(sent.last) < resendLeast, n >= m.base+sendWindowSize && window == sendWindowPast:
		m.t.Fatalf("message %d was repeated after %v, %+v, while %d is the oldest", n, now.Sub(sent.last), *sent, m.base)
	default:
		*sent = sentOnce{last: now, again: true, past: sent.past}
	}
}

func (m *sendModel) ack(n uint64) {
	before := m.s.e.stats.Drops[DropUnknownAck]
	p := wire.ReliableAck{Seq: m.s.e.cfg.Profile.Seq(n)}.Append(nil)
	m.s.e.Receive(m.s.now, peerAddr, p, m)
	acked := m.open[n]
	if known := m.s.e.stats.Drops[DropUnknownAck] == before; known != (acked != nil) {
		m.t.Fatalf("acknowledgement of %d: known %v, in flight %v", n, known, acked)
	}
	delete(m.open, n)
	if acked != nil && !acked.again {
		for _, o := range m.open {
			if !o.last.After(acked.last) {
				o.overtook++
			}
		}
	}
	for m.base < m.sentTo && m.open[m.base] == nil {
		m.base++
	}
}
