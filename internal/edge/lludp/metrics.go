package lludp

import (
	"errors"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/lludp/viewer"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// An ignored says why a datagram got no answer.
type ignored uint8

const (
	unknownCode  ignored = iota // no login has this code, agent and session
	otherNetwork                // the login came from elsewhere
	stranger                    // a message of an address that has no circuit
	malformed                   // no packet of LLUDP

	numIgnored = int(iota)
)

// String returns the name of i in metrics.
func (i ignored) String() string {
	return [numIgnored]string{"unknown_code", "other_network", "stranger", "malformed"}[i]
}

func (s *Server) ignore(why ignored) { s.counts.ignored[why].Add(1) }

type counters struct {
	accepted, refused, unavailable, full, expired, malformed atomic.Uint64 // logins
	ignored                                                  [numIgnored]atomic.Uint64
	unset, unsaid                                            atomic.Uint64
}

// Counts are counters of a Server.
type Counts struct {
	Accepted, Refused, Unavailable, Full, Expired, Malformed uint64 // logins
	Ignored                                                  uint64 // datagrams without an answer
}

// Counts returns them.
func (s *Server) Counts() Counts {
	c := &s.counts
	n := Counts{
		Accepted: c.accepted.Load(), Refused: c.refused.Load(), Unavailable: c.unavailable.Load(), Full: c.full.Load(), Expired: c.expired.Load(),
		Malformed: c.malformed.Load(),
	}
	for i := range c.ignored {
		n.Ignored += c.ignored[i].Load()
	}
	return n
}

// login counts a login that the edge judged.
func (c *counters) login(err error) {
	var end *client.EndError
	switch {
	case err == nil:
		c.accepted.Add(1)
	case errors.As(err, &end) && end.Reason == client.Refused:
		c.refused.Add(1)
	default:
		c.unavailable.Add(1)
	}
}

// stats returns the sums over all viewers.
func (s *Server) stats() (t viewer.Stats) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t = s.past
	for _, p := range s.peers {
		p.mu.Lock()
		stats := p.core.Stats()
		p.mu.Unlock()
		telemetry.Sum(&t, &stats)
	}
	return t
}

// unsent returns how many datagrams the socket did not send.
func (s *Server) unsent() (n uint64) {
	drops := s.socket.Stats().Drops
	for _, r := range []udp.DropReason{udp.DropTooLarge, udp.DropUnreachable, udp.DropFull, udp.DropOther} {
		n += drops[r]
	}
	return n
}

func (s *Server) viewers() (circuits, waiting int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.peers), len(s.logins.byCode)
}

// Metrics returns the metrics of the listener.
func (s *Server) Metrics() []telemetry.Metric {
	of := telemetry.Group[viewer.Stats]{Prefix: "dnp.lludp.", Read: s.stats}
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.lludp.viewers", "{viewer}", "Viewers of Second Life or OpenSimulator; login = logged in, without a circuit yet.", "kind", func(observe func(string, float64)) {
			circuits, waiting := s.viewers()
			observe("circuit", float64(circuits))
			observe("login", float64(waiting))
		}),
		telemetry.CounterBy("dnp.lludp.logins", "{login}", "Logins of viewers, by outcome; expired = no circuit followed.", "outcome", func(observe func(string, uint64)) {
			c := s.Counts()
			observe("accepted", c.Accepted)
			observe("refused", c.Refused)
			observe("unavailable", c.Unavailable)
			observe("full", c.Full)
			observe("malformed", c.Malformed)
			observe("expired", c.Expired)
		}),
		telemetry.CounterBy("dnp.lludp.ignored", "{datagram}", "Datagrams by LLUDP that got no answer, by reason.", "reason", func(observe func(string, uint64)) {
			for i := range s.counts.ignored {
				observe(ignored(i).String(), s.counts.ignored[i].Load())
			}
		}),
		of.InOut("packets", "{packet}", "Packets from and to viewers.", func(t *viewer.Stats) (in, out uint64) { return t.Circuits.PacketsIn, t.Circuits.PacketsOut }),
		of.InOut("io", "By", "Bytes of packets from and to viewers.", func(t *viewer.Stats) (in, out uint64) { return t.Circuits.BytesIn, t.Circuits.BytesOut }),
		of.CounterBy("objects", "{object}", "Objects sent to viewers, by kind; repeat = of those, because a viewer did not confirm them in time.", "kind", func(t *viewer.Stats, observe func(string, uint64)) {
			observe("full", t.Objects)
			observe("move", t.Moves)
			observe("kill", t.Kills)
			observe("repeat", t.Repeats)
		}),
		of.Counter("asked", "{object}", "Objects that viewers asked for because they lacked them.", func(t *viewer.Stats) uint64 { return t.Asked }),
		of.Counter("writes", "{value}", "Values that viewers set.", func(t *viewer.Stats) uint64 { return t.Writes }),
		of.Counter("said", "{message}", "Chat messages of viewers, which game servers get.", func(t *viewer.Stats) uint64 { return t.Said }),
		of.CounterBy("lost", "{packet}", "Packets that viewers did not confirm; message = given up for good.", "kind", func(t *viewer.Stats, observe func(string, uint64)) {
			observe("packet", t.Circuits.Lost)
			observe("message", t.GivenUp)
		}),
		of.CounterBy("drops", "{drop}", "What viewers sent, or what was to be sent to them, that was dropped, by reason.", "reason", func(t *viewer.Stats, observe func(string, uint64)) {
			telemetry.Named[viewer.DropReason](observe, t.Drops[:])
			observe("unsent", s.unsent())
			observe("unset", s.counts.unset.Load())
			observe("unsaid", s.counts.unsaid.Load())
		}),
	}
}
