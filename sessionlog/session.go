package sessionlog

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

// A Phase is where a Session is.
type Phase uint8

// The phases.
const (
	Opening  Phase = iota + 1 // OPEN is being written
	Reading                   // the log is being read, to adopt
	Found                     // found; waits for Claim
	Claiming                  // ADOPT is being written
	Adopted                   // waits for Restore
	Owning
	Over
)

func (p Phase) String() string {
	return [...]string{"none", "opening", "looking", "ready", "claiming", "adopted", "owning", "over"}[p]
}

// A Session is one session at one edge. Its owner calls the methods for what it hears
// (the events of Receive and Advance of the Endpoint before Advance of the Session),
// carries out the actions of Advance in order, and calls it again at NextTimeout.
type Session struct {
	cfg   Config
	log   string
	phase Phase
	out   []Action
	spare []Action

	info  Info
	conn  *dnp.Conn
	toAdopt chain // while adopting

	epoch, owner uint64
	number       uint64 // of the newest write
	seq          uint64 // of the newest stored write; 0 if the log is empty

	asked   ActionKind // what the log was asked and has not answered; 0 for nothing
	retryAt time.Time  // it is not asked before
	revalidate   bool       // the log has to be read before anything else
	outdatedRead  bool       // the read that was asked is from before the doubt
	shortSince   time.Time  // since when the log is shorter than it was
	adoptionTries   int
	pending *Write // not known to be stored
	means   meaning

	undelivered   undelivered
	token  uint64
	need   need
	writes int // since the checkpoint
	bytes  int
	ckptAt time.Time // of the newest
	successor string
	handingOver bool
}

// A meaning is what the pending write is, besides changes.
type meaning struct {
	open, adopt, ckpt, hand bool
	end                     string
	size                    int
}

// need is what is to be written.
type need struct {
	now  bool
	soon time.Time // zero for nothing
}

// Open begins the session of a client that proved its address. conn has to be logged;
// info is who it is. The client is not served before ActionOpened.
func Open(cfg Config, log string, conn *dnp.Conn, info Info) *Session {
	s := newSession(cfg, log, Opening)
	s.conn, s.info = conn, info
	s.need.now = true
	return s
}

// Adopt begins to take a session over. Nothing is written before Claim.
func Adopt(cfg Config, log string) *Session {
	s := newSession(cfg, log, Reading)
	s.revalidate = true
	return s
}

func newSession(cfg Config, log string, phase Phase) *Session {
	if problems := cfg.Validate(); len(problems) > 0 {
		panic("session: " + problems[0])
	}
	return &Session{cfg: cfg.withDefaults(), log: log, phase: phase, owner: cfg.Rand.Uint64(), epoch: 1}
}

// Phase returns where the session is.
func (s *Session) Phase() Phase { return s.phase }

// Doubts reports whether the log has to say first whose the session is.
func (s *Session) Revalidating() bool { return s.revalidate }

// Info returns who the session is; nothing before it is found.
func (s *Session) Info() Info { return s.info }

// Epoch returns how often the session was opened and adopted under this name.
func (s *Session) Epoch() uint64 { return s.epoch }

// Conn returns the connection; nil if there is none.
func (s *Session) Conn() *dnp.Conn { return s.conn }

// Token returns the highest token of a message that has a number, also from owners
// before: a feed whose tokens grow goes on behind it.
func (s *Session) Token() uint64 { return s.token }

// Claim takes the session that was found.
func (s *Session) Claim() {
	if s.phase == Found {
		s.phase = Claiming
		s.need.now = true
	}
}

// HandOver gives the session to the node to, or to anybody if it is empty, with all
// that waits to be sent.
func (s *Session) HandOver(to string) {
	if s.phase == Owning && !s.handingOver {
		s.handingOver, s.successor = true, to
	}
}

// Doubt says that this process was stopped for so long that another edge may have
// taken its sessions. Nothing is sent to the client before the log says otherwise, and
// answers to what was asked before do not.
func (s *Session) Revalidate() {
	switch s.phase {
	case Opening, Claiming, Owning:
	default:
		return // it is not this edge's
	}
	s.revalidate, s.outdatedRead = true, s.asked == ActionRead
	if s.conn != nil {
		s.conn.Mute(true)
	}
}

// Handle takes an event of the connection.
func (s *Session) Handle(now time.Time, ev *dnp.Event) {
	if s.phase == Over || ev.Conn != s.conn {
		return
	}
	switch ev.Kind {
	case dnp.EventUnstored:
		s.unstored(now)
	case dnp.EventMessage:
		if m, ok := s.undelivered.add(ev); ok {
			s.emit(Action{Kind: ActionDeliver, Message: m})
		}
	case dnp.EventSent:
		s.token = max(s.token, ev.Token)
	case dnp.EventClosed:
		s.conn = nil
		s.phase = Over
	}
}

func (s *Session) unstored(now time.Time) {
	if s.conn.Urgent() {
		s.need.now = true
	} else if s.need.soon.IsZero() {
		s.need.soon = now.Add(s.cfg.WriteDelay)
	}
}

// Delivered says that the message with this number and all before it have reached the
// game servers.
func (s *Session) Delivered(now time.Time, number uint64) {
	if s.undelivered.remove(number) && s.need.soon.IsZero() {
		s.need.soon = now.Add(s.cfg.WriteDelay)
	}
}

// Advance returns what is to be done, in order. It is valid until the next Advance.
func (s *Session) Advance(now time.Time) []Action {
	if s.asked == 0 && !now.Before(s.retryAt) && s.phase != Over {
		s.step(now)
	}
	out := s.out
	s.out, s.spare = s.spare[:0], out
	return out
}

// step asks the log what is to be asked next.
func (s *Session) step(now time.Time) {
	switch {
	case s.revalidate:
		s.ask(Action{Kind: ActionRead, Log: s.log})
	case s.pending != nil:
		s.ask(Action{Kind: ActionAppend, Write: *s.pending})
	case s.phase == Opening:
		s.writeOpen(now)
	case s.phase == Claiming:
		s.writeAdopt()
	case s.phase == Owning:
		s.writeChanges(now)
	}
}

// NextTimeout returns when Advance must be called; the zero time means at once.
func (s *Session) NextTimeout() (time.Time, bool) {
	switch {
	case len(s.out) > 0:
		return time.Time{}, true
	case s.asked != 0, s.phase == Over:
		return time.Time{}, false
	case s.revalidate, s.pending != nil, s.phase == Opening, s.phase == Claiming:
		return s.retryAt, true
	case s.phase != Owning:
		return time.Time{}, false
	}
	at, ok := s.writeDue()
	if ok && at.Before(s.retryAt) {
		at = s.retryAt
	}
	return at, ok
}

func (s *Session) ask(a Action) {
	s.asked = a.Kind
	s.emit(a)
}

func (s *Session) emit(a Action) { s.out = append(s.out, a) }

// over ends the Session without a word to the client.
func (s *Session) over(a Action) {
	if s.conn != nil {
		s.conn.Close(dnp.CloseMoved)
	}
	s.conn, s.phase, s.pending = nil, Over, nil
	s.emit(a)
}
