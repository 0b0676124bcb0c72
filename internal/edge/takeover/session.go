package takeover

import (
	"crypto/sha256"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A departure is how far a session is on its way from this worker. Besides it, a session has
// the phases of its log: it begins as Opening (a client proved its address) or as Reading (it
// may be taken over), and in Found it waits for the replica of its space to be complete.
//
// A session is gone when it ends, when its history cannot be established, when another edge
// or worker owns it, when its space does not get complete in time, or when its client logs in
// here before it is owned. A session that a successor refuses, or that is given back, begins
// again as another Session in the phase Reading.
type departure uint8

const (
	staying     departure = iota
	handingOver           // the end of this ownership is being written
	given                 // the log says that it ended; a successor was asked, and has not answered
	gone
)

// A Session is a durable session at one worker.
type Session struct {
	Log       *sessionlog.Session
	About     About          // zero while the log was not read
	name      string         // of its log
	client    netip.AddrPort // invalid while only the name is known
	departure departure
	path      Path
	others    otherWays
	search    search
	feed      Feed // nil before it was served

	// Of a session that is taken over.
	alive     string        // the edge that claims it, if the affinity says that it lives
	yields    bool          // to the edge that owns it, if that edge lives
	dead      string        // the edge whose claim was inherited; empty for none
	unclaimed bool          // the edge that owns it, as the log says, has not claimed it for listPause: it may be a new process
	permitted time.Time     // when the affinity permitted to take over the session of a dead edge; zero for other sessions
	outdated  time.Time     // from when the replica may have missed changes
	refs      []uint64      // what the client's links are bound to; nil before it matters
	deadline  time.Time     // for the replica to be complete
	patience  time.Duration // how long its superseded claim was looked after; 0 if it was not
	found     uint64        // epoch of the session when its log was read; 0 before
	named     bool          // the edge that gave the session to this one named its return path
	asker     string        // reply subject of the edge that gave it to this one; empty if none waits

	// Of a carried client: the edge by which it came before, or when the session was handed over. Until leftUntil, its datagrams
	// may be late.
	left      string
	leftUntil time.Time

	// Of a session that is served.
	misplaced int   // datagrams that came to another worker of this edge
	toWorker  int   // handingOver: the worker that gets it; -1 for another edge
	givenBack *Path // the return path, if another edge gave the session to this one, which served it

	due       time.Time // when to advance it
	heapIndex int       // in the heap of times
	queued    bool      // to be advanced in this turn
}

// adopting reports whether this worker is taking the session over.
func (s *Session) adopting() bool {
	return s.Log.Phase() >= sessionlog.Reading && s.Log.Phase() <= sessionlog.Adopted
}

// stays reports whether this worker owns the session and does not hand it over.
func (s *Session) stays() bool { return s.Log.Phase() == sessionlog.Owning && s.departure == staying }

// way returns the return path to the client, which is unknown while the session searches.
func (s *Session) way() Path {
	if s.search.searching() {
		return Path{Unknown: true}
	}
	return s.path
}

// endFeed ends the delivery of the client's messages, if it began.
func (s *Session) endFeed() {
	if s.feed != nil {
		s.feed.End()
	}
}

// About is what the log tells a successor of a session besides its connection. It is part
// of logs.
type About struct {
	ID       string   `json:"id"`
	Space    string   `json:"space"`
	Client   string   `json:"client"`
	Listener uint16   `json:"listener"`
	Began    int64    `json:"began"`         // Unix microseconds
	Expires  int64    `json:"exp,omitempty"` // Unix microseconds; 0 for never
	Groups   []string `json:"groups,omitempty"`
	ReadOnly bool     `json:"ro,omitempty"`
}

func newAbout(id string, listener uint16, now time.Time, c *auth.Claims) About {
	a := About{
		ID: id, Space: c.Space, Client: c.Client, Listener: listener, Began: now.UnixMicro(), Groups: c.Groups, ReadOnly: !c.Write,
	}
	if !c.Expires.IsZero() {
		a.Expires = c.Expires.UnixMicro()
	}
	return a
}

// parseAbout parses what another edge wrote.
func parseAbout(data []byte) (a About, ok bool) {
	return a, json.Unmarshal(data, &a) == nil && a.Client != "" && a.Space != "" && a.ID != ""
}

// Claims returns what the client may do, as of its login.
func (a *About) Claims() *auth.Claims {
	c := &auth.Claims{Client: a.Client, Space: a.Space, Groups: a.Groups, Write: !a.ReadOnly}
	if a.Expires != 0 {
		c.Expires = time.UnixMicro(a.Expires)
	}
	return c
}

func (a *About) marshal() []byte {
	data, err := json.Marshal(a)
	if err != nil || len(data) > sessionlog.AboutMax {
		panic("takeover: the description of a session does not fit into its log") // claims are bounded
	}
	return data
}

func (a *About) logID() (id sessionlog.ID) {
	sum := sha256.Sum256([]byte(a.ID))
	copy(id[:], sum[:])
	return id
}
