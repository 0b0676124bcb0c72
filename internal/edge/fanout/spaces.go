package fanout

import (
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// Spaces are the spaces that one worker follows, and the sessions of its clients in them.
// Their methods may be called on the turns of the worker only.
type Spaces struct {
	base
	byName map[string]*space
	order  []*space // in the order in which they were followed first

	drainer drainer
}

// New returns Spaces that follow no space.
func New(c Config) *Spaces {
	return &Spaces{base: base{Config: c}, byName: make(map[string]*space)}
}

// ensure returns the space with this name, and follows it if it is not followed yet.
func (s *Spaces) ensure(name string) *space {
	if sp, ok := s.byName[name]; ok {
		return sp
	}
	sp := &space{
		spaceInfo: spaceInfo{base: &s.base, spaceName: name, shard: cluster.Shard(name, s.Shards)},
		ownByKey:  make(map[string]*ownState), levels: levels{base: &s.base},
	}
	sp.near.space, sp.sightings.space = sp, sp
	sp.replica = replication.NewReplica(name, sp)
	s.byName[name] = sp
	s.order = append(s.order, sp)
	s.Host.Follow(name, sp.shard)
	return sp
}

// Follow follows a space that clients will need, for Linger from now on at least, and
// returns its replica.
func (s *Spaces) Follow(now time.Time, name string) *replication.Replica {
	sp := s.ensure(name)
	if len(sp.sessions) == 0 {
		sp.emptyAt = now
	}
	return sp.replica
}

// NewSession makes a session and follows its space. Begin, or Resolve and Resume, must
// follow before the next Advance, which ends a space that has no session and that Follow
// did not ask for.
func (s *Spaces) NewSession(c SessionConfig) *Session {
	sp := s.ensure(c.Claims.Space)
	session := &Session{space: sp, peer: peer{spaceInfo: &sp.spaceInfo, SessionConfig: c}}
	p := &session.peer
	session.rights = rights{peer: p}
	session.writes = writes{peer: p, bySource: make(map[*dnp.Source]*writer)}
	session.ownStates = ownStates{peer: p, writes: &session.writes, byKey: sp.ownByKey, lost: &sp.lost}
	session.messages = messages{peer: p, replies: make(map[uint64]string)}
	session.commands = commands{
		peer: p, messages: &session.messages, ownStates: &session.ownStates, rights: &session.rights,
		open: make(map[uint16]time.Time), judged: make(map[uint64]verdict),
	}
	return session
}

// Replica returns the replica of a space, nil if the space is not followed.
func (s *Spaces) Replica(name string) *replication.Replica {
	if sp, ok := s.byName[name]; ok {
		return sp.replica
	}
	return nil
}

// ApplyHead gives the replica of a space, if it is followed, the holder's report of its last
// sequence number.
func (s *Spaces) ApplyHead(now time.Time, name string, epoch, seq uint64) {
	if sp, ok := s.byName[name]; ok {
		if held, _ := sp.replica.Position(); epoch >= held { // else a relay speaks that is no longer the holder
			sp.history.heard = now
		}
		sp.replica.ApplyHead(now, epoch, seq)
	}
}

// Knows reports whether the replica of a space has all states at its position, and those to which links
// of a client with these Refs are bound. It may have missed later changes.
func (s *Spaces) Knows(name, client string, refs []uint64) bool {
	sp := s.byName[name]
	if sp == nil || !sp.replica.Whole() {
		return false
	}
	return !slices.ContainsFunc(refs, func(ref uint64) bool {
		if ref&ownRef != 0 {
			return sp.replica.ByKey(ownKey(client, wire.LinkID(ref))) == nil
		}
		return sp.replica.State(ref) == nil
	})
}

// Names returns the names of the spaces that are followed, sorted.
func (s *Spaces) Names() []string {
	return slices.Sorted(maps.Keys(s.byName))
}

// Advance does what is due and returns when it must be called again.
func (s *Spaces) Advance(now time.Time) time.Time {
	next := s.drainer.advance(now, now.Add(time.Hour))
	for _, sp := range s.order {
		next = earlier(next, sp.advance(now))
	}
	s.forget(now)
	return next
}

// forget ends the spaces that have had no session for some time.
func (s *Spaces) forget(now time.Time) {
	s.order = slices.DeleteFunc(s.order, func(sp *space) bool {
		if len(sp.sessions)+len(sp.departures) > 0 || now.Before(sp.emptyAt.Add(s.Linger)) {
			return false
		}
		s.Host.Unfollow(sp.spaceName, sp.shard)
		delete(s.byName, sp.spaceName)
		for st := range sp.replica.All() {
			sp.levels.remove(st)
		}
		return true
	})
}

// Reconnected tells that the bus was away: every replica asks whether it missed
// something, and requests without an answer are made again.
func (s *Spaces) Reconnected(now time.Time) {
	for _, sp := range s.order {
		sp.replica.Reconnected(now)
		sp.repeatAll(now)
	}
}

// SendToAll sends a message of a game server to every client of a space.
func (s *Spaces) SendToAll(name string, m bus.Msg) {
	sp, ok := s.byName[name]
	if !ok {
		return
	}
	m.Reply = "" // no number is reported of a message to all clients
	for _, session := range sp.sessions {
		session.messages.send(m)
	}
}

// A Presence is one session in the answer to the question which sessions are in a space.
type Presence struct {
	Client  string `json:"client"`
	Session string `json:"session"`
}

// Presences returns the sessions in a space of which game servers heard that they joined.
func (s *Spaces) Presences(name string) []Presence {
	sp, ok := s.byName[name]
	if !ok {
		return nil
	}
	all := make([]Presence, 0, len(sp.sessions))
	for _, session := range sp.sessions {
		if session.announced {
			all = append(all, Presence{Client: session.Claims.Client, Session: session.ID})
		}
	}
	return all
}

// Counts returns what was counted so far.
func (s *Spaces) Counts() *Counts { return &s.counts }

// Replicas yields the replica of each space that is followed.
func (s *Spaces) Replicas(yield func(*replication.Replica) bool) {
	for _, sp := range s.order {
		if !yield(sp.replica) {
			return
		}
	}
}
