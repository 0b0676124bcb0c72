package lludp

import (
	"errors"

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

func (s *Server) ignore(why ignored) { s.count(&s.counts.ignored[why]) }

// Counts are counters of a Server.
type Counts struct {
	Accepted, Refused, Unavailable, Full, Expired, Malformed uint64 // logins
	Ignored                                                  uint64 // datagrams without an answer
}

// A counters is what a Server counts.
type counters struct {
	Counts        // but for Ignored, which is the sum of ignored
	ignored       [numIgnored]uint64
	unset, unsaid uint64
}

// count counts one of s.counts.
func (s *Server) count(n *uint64) {
	s.counting.Lock()
	defer s.counting.Unlock()
	*n++
}

// counted returns what was counted.
func (s *Server) counted() counters {
	s.counting.Lock()
	defer s.counting.Unlock()
	return s.counts
}

// Counts returns the counters.
func (s *Server) Counts() Counts {
	c := s.counted()
	for _, n := range c.ignored {
		c.Ignored += n
	}
	return c.Counts
}

// judged counts a login that the edge judged.
func (s *Server) judged(err error) {
	var end *client.EndError
	switch {
	case err == nil:
		s.count(&s.counts.Accepted)
	case errors.As(err, &end) && end.Reason == client.Refused:
		s.count(&s.counts.Refused)
	default:
		s.count(&s.counts.Unavailable)
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
	type figures struct {
		viewer.Stats
		counters
		unsent uint64
	}
	of := telemetry.NewGroup("dnp.lludp.", func() figures { return figures{s.stats(), s.counted(), s.unsent()} })
	t := &of.All
	return []telemetry.Metric{
		telemetry.GaugeBy("dnp.lludp.viewers", "{viewer}", "Viewers of Second Life or OpenSimulator; login = logged in, without a circuit yet.", "kind", func(observe func(string, float64)) {
			circuits, waiting := s.viewers()
			observe("circuit", float64(circuits))
			observe("login", float64(waiting))
		}),
		of.CounterBy("logins", "{login}", "Logins of viewers, by outcome; expired = no circuit followed.", "outcome", telemetry.Parts{
			"accepted": &t.Accepted, "refused": &t.Refused, "unavailable": &t.Unavailable, "full": &t.Full, "malformed": &t.Malformed, "expired": &t.Expired,
		}),
		of.CounterBy("ignored", "{datagram}", "Datagrams by LLUDP that got no answer, by reason.", "reason", telemetry.Named[ignored](t.ignored[:])),
		of.InOut("packets", "{packet}", "Packets from and to viewers.", &t.Circuits.PacketsIn, &t.Circuits.PacketsOut),
		of.InOut("io", "By", "Bytes of packets from and to viewers.", &t.Circuits.BytesIn, &t.Circuits.BytesOut),
		of.CounterBy("objects", "{object}", "Objects sent to viewers, by kind; repeat = of those, because a viewer did not confirm them in time.", "kind",
			telemetry.Parts{"full": &t.Objects, "move": &t.Moves, "kill": &t.Kills, "repeat": &t.Repeats}),
		of.Counter("asked", "{object}", "Objects that viewers asked for because they lacked them.", &t.Asked),
		of.Counter("writes", "{value}", "Values that viewers set.", &t.Writes),
		of.Counter("said", "{message}", "Chat messages of viewers, which game servers get.", &t.Said),
		of.CounterBy("lost", "{packet}", "Packets that viewers did not confirm; message = given up for good.", "kind",
			telemetry.Parts{"packet": &t.Circuits.Lost, "message": &t.GivenUp}),
		of.CounterBy("drops", "{drop}", "What viewers sent, or what was to be sent to them, that was dropped, by reason.", "reason",
			telemetry.Named[viewer.DropReason](t.Drops[:]), telemetry.Parts{"unsent": &t.unsent, "unset": &t.unset, "unsaid": &t.unsaid}),
	}
}
