//go:build linux

package bench

import (
	"context"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// Forged ends of connections: how long one a second comes for every player, and how many
// clients really leave afterwards.
const (
	closesFor   = 30 * time.Second
	closePause  = time.Second
	leavers     = 50
	closeDecide = 3 * time.Second        // longer than an edge waits for a sign of life
	leaveMax    = 2 * time.Second        // until a real Close has freed the session
	leaveLate   = 200 * time.Millisecond // for loops, events and this program
)

// A CloseResult is what forged and real ends of connections did.
type CloseResult struct {
	Forged  int // ConnectionClose, each as the player itself would have sent it
	Lost    int // players that were closed
	Left    int // of the leavers, within leaveMax, and a little
	Slowest time.Duration
}

// forgeCloses sends a Close in the name of every player, once a second, while they play.
// Sent from the player's own port it is what a forger sends, byte for byte.
func (s *scene) forgeCloses(ctx context.Context, res *CloseResult) {
	for end := time.Now().Add(closesFor); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(closePause) {
		s.swarm.mu.Lock()
		for i := range floodPlayers {
			s.swarm.sendClose(i)
			res.Forged++
		}
		s.swarm.socket.flush()
		s.swarm.mu.Unlock()
	}
	time.Sleep(closeDecide)
	s.swarm.mu.Lock()
	defer s.swarm.mu.Unlock()
	for i := range floodPlayers {
		if s.swarm.clients[i].phase != clientConnected {
			res.Lost++
		}
	}
}

func (w *swarm) sendClose(index int) {
	w.send(index, append(w.socket.room(), byte(wire.CommandConnectionClose)))
}

// leave lets the last players that have a session leave, and wants to hear that they left.
func (s *scene) leave(ctx context.Context, res *CloseResult) error {
	nc, err := nats.Connect(s.stack.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	left, err := nc.SubscribeSync(subject.Names{}.Event("*"))
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	s.swarm.mu.Lock()
	start := time.Now()
	for i, sent := len(s.swarm.clients)-1, 0; i >= 0 && sent < leavers; i-- {
		if c := &s.swarm.clients[i]; c.phase == clientConnected && c.has(s.c.States) { // others have no session
			s.swarm.sendClose(i)
			c.phase = clientClosed // it answers nothing any more
			sent++
		}
	}
	s.swarm.socket.flush()
	s.swarm.mu.Unlock()
	for res.Left < leavers {
		wait, cancel := context.WithDeadline(ctx, start.Add(leaveMax+leaveLate))
		m, err := left.NextMsgWithContext(wait)
		cancel()
		if err != nil {
			return nil // as many as it is
		}
		if strings.Contains(string(m.Data), `"type":"left"`) {
			res.Left++
			res.Slowest = time.Since(start)
		}
	}
	return nil
}

// write prints the figures beside the bar.
func (r *CloseResult) write(line func(good bool, format string, args ...any)) {
	line(r.Lost == 0, "forged closes    %d in %v: %d sessions lost (bar 0)", r.Forged, closesFor, r.Lost)
	line(r.Left == leavers, "real closes      %d of %d sessions free within %v, the last after %.2f s (bar all)", r.Left, leavers, leaveMax+leaveLate, r.Slowest.Seconds())
}
