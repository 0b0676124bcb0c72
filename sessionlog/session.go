package sessionlog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
)

// A Config is how the sessions of an edge behave. The zero value of each field stands for its
// default.
type Config struct {
	Node string     // name of the edge; required
	Rand *rand.Rand // makes the owner numbers by which a Session knows its own writes; required

	// Format returns the lowest format that all members of the cluster read; see package
	// format. nil stands for the oldest.
	Format func() uint8

	BlockBytes          int // of commands in one write, which has at least one; default 256 KiB
	UndeliveredBytesMax int // of messages that are not delivered; more are not acknowledged; default 1 MiB
}

// Bounds of a log.
const (
	ckptWrites     = 32              // writes after which a checkpoint is due
	ckptBytes      = 64 << 10        // their bytes
	ckptInterval   = 5 * time.Second // age at which a checkpoint is due if there were writes
	writeDelay     = time.Second     // how long a change for which the client does not wait may stay unwritten
	logBytesMax    = 4 << 20         // of a log without its checkpoint; more ends the session
	handBytesMax   = 480 << 10       // of the messages and the snapshot of a hand-over; without those that have no number beyond it
	undeliveredMax = 1024            // messages that are not delivered; more are not acknowledged
)

// Pauses before the log is asked again.
const (
	busyPause  = time.Millisecond       // after Busy: the other write takes about as long
	tornPause  = 20 * time.Millisecond  // after entries that do not fit together
	faultPause = 100 * time.Millisecond // after no answer
)

// wipedAfter is how long a log must be seen shorter than it was until its writes count as
// lost. A leader that was deposed and does not know it may answer so for that long.
const wipedAfter = 12 * time.Second

// adoptionsMax is how often an adoption that another edge forestalled is tried again.
const adoptionsMax = 5

// An ActionKind is the kind of an Action.
type ActionKind uint8

const (
	// ActionAppend asks the log to append Write, ActionRead to read Log. One of them is under
	// way at a time, and each must be answered by one call of Answer.
	ActionAppend ActionKind = iota + 1
	ActionRead

	// ActionOpened says that the session of a new client exists.
	ActionOpened

	// ActionFound says that there is a session to adopt, of the client Info. Node owns it;
	// Node is empty if the session was handed over. Call Claim when the states that the
	// session is linked to are there.
	ActionFound

	// ActionAdopted says that this edge owns the session. Call Restore at once.
	ActionAdopted

	// ActionDeliver hands over a message of the client, in order, possibly again after an
	// adoption: consumers recognize it by Message.Number and see from Message.Previous that
	// none is missing. Call Delivered as soon as it cannot be lost.
	ActionDeliver

	// ActionElsewhere says that another edge owns the session: Node in Epoch. Node is empty
	// if it is not known, as that of a session whose log has another format. The connection
	// of a client that wanted to open a session is gone, and the client is told nothing.
	ActionElsewhere

	// ActionGone says that there is nothing to adopt.
	ActionGone

	// ActionLost says that another edge has adopted the session: Node, if it is known. The
	// connection is gone, and the client is told nothing.
	ActionLost

	// ActionUncertain says that the history of the session cannot be established, so that it
	// ends: Reason, and the numbers that the log knows. If there is no connection, tell the
	// client by a ConnectionClose.
	ActionUncertain

	// ActionEnded says that the session is over and the log says so.
	ActionEnded

	// ActionHanded says that the session belongs to the edge that adopts it next.
	ActionHanded
)

func (k ActionKind) String() string {
	return [...]string{
		"none", "append", "read", "opened", "found", "adopted", "deliver", "elsewhere", "gone", "lost", "uncertain", "ended", "handed",
	}[k]
}

// An Action is what a Session wants done, or reports.
type Action struct {
	Kind    ActionKind
	Log     string // ActionRead
	Write   Write  // ActionAppend
	Info    Info   // ActionFound; ActionUncertain, if it is known
	Message Message
	Node    string
	Epoch   uint64
	Reason  string

	// ActionUncertain: the next number that the log expects of the client, and the next
	// number of the edge.
	Received, Sent uint64

	// ActionHanded: how many messages to the client are lost, because they had no number and
	// there was no room for them.
	Lost int
}

// A Phase is a phase of a Session.
type Phase uint8

// The phases. Opening and Reading come first; a Session in Reading goes on to Found, Claiming
// and Adopted. Owning follows both ways.
const (
	Opening  Phase = iota + 1 // OPEN is being written
	Reading                   // the log is being read, to adopt the session
	Found                     // there is a session, which waits for Claim
	Claiming                  // ADOPT is being written
	Adopted                   // waits for Restore
	Owning
	Over
)

func (p Phase) String() string {
	return [...]string{"none", "opening", "reading", "found", "claiming", "adopted", "owning", "over"}[p]
}

// A Session is one session at one edge. Its caller calls the methods for what happens (the
// events of Receive and Advance of the Endpoint before Advance of the Session), carries out the
// actions of Advance in order, and calls Advance again at NextTimeout.
type Session struct {
	cfg   Config
	log   string
	phase Phase
	out   []Action
	spare []Action

	info    Info
	conn    *dnp.Conn
	toAdopt chain // what the log says of a session that is being adopted

	epoch, owner uint64
	number       uint64 // of the newest write
	seq          uint64 // of the newest stored write; 0 if the log is empty

	asked         ActionKind // the request that the log has not answered; 0 for none
	retryAt       time.Time  // the log is not asked before
	revalidate    bool       // the log has to show before anything else who owns the session
	outdatedRead  bool       // the read under way was asked before Revalidate
	shortSince    time.Time  // since when the log is shorter than it was; zero if it is not
	adoptionTries int
	pending       *pendingWrite // not known to be stored

	undelivered undelivered
	token       uint64
	commands    command.Progress // as far as its answers have numbers
	writeNow    bool             // there is something to write, and the client waits for it
	writeBy     time.Time        // there is something to write until then; zero for nothing
	writes      int              // since the checkpoint
	bytes       int
	ckptAt      time.Time // of the newest
	refreshAt   time.Time // when another one is due, even if there is nothing to write; zero for never
	handingOver bool
	successor   string // of a hand-over; empty for any edge
}

// A pendingWrite is the write under way, with what it does besides recording changes.
type pendingWrite struct {
	Write
	kind   RecordKind // RecordOpen, RecordAdopt, RecordHand or RecordClose; 0 for none of them
	reason string     // of RecordClose
	lost   int        // messages that RecordHand has no room for
	proof  bool       // if it is stored, this edge owned the session after Revalidate
}

// Open begins the session of a client that proved its address. conn has to be logged; info is
// who it is. The client is not served before ActionOpened.
func Open(cfg Config, log string, conn *dnp.Conn, info Info) *Session {
	s := newSession(cfg, log, Opening)
	s.conn, s.info = conn, info
	s.writeNow = true
	return s
}

// Adopt begins to take a session over. Nothing is written before Claim.
func Adopt(cfg Config, log string) *Session {
	s := newSession(cfg, log, Reading)
	s.revalidate = true
	return s
}

func newSession(cfg Config, log string, phase Phase) *Session {
	if cfg.Node == "" || strings.ContainsAny(cfg.Node, " .*>") || cfg.Rand == nil {
		panic(fmt.Sprintf("sessionlog: no source of random numbers, or %q is not a valid name of a node", cfg.Node))
	}
	cfg.BlockBytes = cmp.Or(cfg.BlockBytes, 256<<10)
	cfg.UndeliveredBytesMax = cmp.Or(cfg.UndeliveredBytesMax, 1<<20)
	return &Session{cfg: cfg, log: log, phase: phase, owner: cfg.Rand.Uint64(), epoch: 1}
}

// Phase returns the phase of the session.
func (s *Session) Phase() Phase { return s.phase }

// Revalidating reports whether the log has to show first who owns the session, because another edge may own the
// session.
func (s *Session) Revalidating() bool { return s.revalidate }

// Epoch returns how often the session was opened and adopted under this name.
func (s *Session) Epoch() uint64 { return s.epoch }

// Conn returns the connection; nil if there is none.
func (s *Session) Conn() *dnp.Conn { return s.conn }

// Token returns the highest token of a message that has a number, also from former owners: a
// feed whose tokens grow goes on behind it.
func (s *Session) Token() uint64 { return s.token }

// Commands returns whether the client opted in to commands, and which answers to it have a number, also
// from former owners.
func (s *Session) Commands() command.Progress { return s.commands }

// noteToken notes the token of a message that has a number: of an answer to a command, or of another
// message.
func noteToken(token uint64, highest *uint64, commands *command.Progress) {
	if id, ok := command.TokenID(token); ok {
		commands.Note(id)
		return
	}
	*highest = max(*highest, token)
}

// Evident reports whether a datagram is evidence that the client of the session that was found
// wrote it; see [dnp.LoggedEvident].
func (s *Session) Evident(datagram []byte) bool {
	return s.phase == Found && dnp.LoggedEvident(s.toAdopt.ckpt.Snapshot, s.toAdopt.changes, datagram)
}

// Refs returns what the links of the session that was found are bound to; see [dnp.LoggedRefs].
func (s *Session) Refs() []uint64 {
	if s.phase != Found {
		return nil
	}
	return dnp.LoggedRefs(s.toAdopt.ckpt.Snapshot, s.toAdopt.changes)
}

// Claim begins to write that this edge owns the session that was found.
func (s *Session) Claim() {
	if s.phase == Found {
		s.phase = Claiming
		s.writeNow = true
	}
}

// HandOver gives the session to an edge, or to any edge if successor is empty, with everything
// that waits to be sent.
func (s *Session) HandOver(successor string) {
	if s.phase == Owning && !s.handingOver {
		s.handingOver, s.successor = true, successor
	}
}

// Revalidate says that this process was stopped for so long that another edge may have adopted
// its sessions. Nothing is sent to the client before the log shows that this edge still owns
// the session; answers to earlier requests do not show that.
func (s *Session) Revalidate() {
	switch s.phase {
	case Opening, Claiming, Owning:
	default:
		return // this edge does not own it
	}
	s.revalidate, s.outdatedRead = true, s.asked == ActionRead
	if s.pending != nil {
		s.pending.proof = false // it may have been stored before
	}
	if s.conn != nil {
		s.conn.Mute(true)
	}
}

// Refresh says that a part of the log may have lost what was written. The session writes a checkpoint at the given
// time at the latest, or as soon as one is possible.
func (s *Session) Refresh(at time.Time) {
	if s.refreshAt.IsZero() || at.Before(s.refreshAt) {
		s.refreshAt = at
	}
}

// Handle takes an event of the connection.
func (s *Session) Handle(now time.Time, ev *dnp.Event) {
	if s.phase == Over || ev.Conn != s.conn {
		return
	}
	switch ev.Kind {
	case dnp.EventUnstored:
		if s.conn.Urgent() {
			s.writeNow = true
		} else {
			s.writeSoon(now)
		}
	case dnp.EventMessage:
		if ev.Reliable {
			s.commands.OptIn(ev.Number, ev.Data)
		}
		if m, ok := s.undelivered.add(ev); ok {
			s.emit(Action{Kind: ActionDeliver, Message: m})
		}
	case dnp.EventSent:
		noteToken(ev.Token, &s.token, &s.commands)
	case dnp.EventClosed:
		s.conn = nil
		s.phase = Over
	}
}

// Delivered says that the message with this number and all before it have reached the game
// servers.
func (s *Session) Delivered(now time.Time, number uint64) {
	if s.undelivered.remove(number) {
		s.writeSoon(now)
	}
}

func (s *Session) writeSoon(now time.Time) {
	if s.writeBy.IsZero() {
		s.writeBy = now.Add(writeDelay)
	}
}

// Advance returns what is to be done, in order. The slice is valid until the next Advance.
func (s *Session) Advance(now time.Time) []Action {
	if s.asked == 0 && !now.Before(s.retryAt) && s.phase != Over {
		s.askNext(now)
	}
	out := s.out
	s.out, s.spare = s.spare[:0], out
	return out
}

// askNext makes the next request to the log.
func (s *Session) askNext(now time.Time) {
	switch {
	case s.revalidate && s.phase == Owning && s.pending == nil && s.shortSince.IsZero():
		s.writeProof()
	case s.revalidate && (s.pending == nil || !s.pending.proof):
		s.ask(Action{Kind: ActionRead, Log: s.log})
	case s.pending != nil:
		s.ask(Action{Kind: ActionAppend, Write: s.pending.Write})
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

// end ends the Session without telling the client.
func (s *Session) end(a Action) {
	if s.conn != nil {
		s.conn.Close(dnp.CloseMoved)
	}
	s.conn, s.phase, s.pending = nil, Over, nil
	s.emit(a)
}
