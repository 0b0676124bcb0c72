package sessionlog

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

func (s *Session) writeAdopt() {
	k := s.block()
	k.Adopt = &s.cfg.Node
	k.Delivered = s.toAdopt.delivered
	s.write(&k, meaning{adopt: true})
}

// Restore makes the connection of the session that was adopted. resolve finds the
// Source with a SourceConfig.Ref. It returns nil if the log does not tell enough; the
// next action says so. ActionDeliver for what may not have been delivered follows.
func (s *Session) Restore(now time.Time, ep *dnp.Endpoint, resolve func(ref uint64) *dnp.Source) *dnp.Conn {
	c := s.toAdopt
	s.toAdopt = chain{}
	conn, err := ep.Restore(now, s.info.Addr, c.ckpt.Snapshot, resolve)
	if err != nil {
		s.uncertain(err.Error(), c)
		return nil
	}
	if c.last.Hand == nil { // later writes numbered some of what waited when it was handed over
		conn.DropQueue()
	}
	for _, ch := range c.changes {
		if err := conn.Replay(now, ch, resolve); err != nil {
			conn.Abandon()
			s.uncertain("the log does not continue", c)
			return nil
		}
	}
	conn.Mute(s.revalidate)
	s.phase = Owning
	s.conn, s.token, s.writes, s.bytes = conn, c.token, s.cfg.CkptWrites, c.bytes // a checkpoint is due
	for _, m := range s.undelivered.restore(c.ckpt, c.delivered) {
		s.emit(Action{Kind: ActionDeliver, Message: m})
	}
	s.need.soon = now.Add(s.cfg.WriteDelay)
	return conn
}
