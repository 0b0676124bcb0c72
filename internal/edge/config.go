package edge

import (
	"cmp"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
)

// A Listener is one address that clients connect to.
type Listener struct {
	Addr    netip.AddrPort
	Profile wire.Profile
	Probe   dnp.Probe
}

// Config is what an edge is made of.
type Config struct {
	// Node is the name of this edge in events. It must not be empty.
	Node string

	// Listeners are the addresses to serve. Without one, AddWorker adds workers.
	Listeners []Listener

	// Shared lets other edges of this machine have the ports of the listeners, too (udp.Config.Shared).
	Shared bool

	// Workers is the number of workers for each listener. 0 means one per core.
	Workers int

	// Flush is the least time between two times that a worker sends changed values. 0
	// means that it sends them at once, after each batch.
	Flush time.Duration

	// BytesPerSecond is how much a worker sends to each client at most, headers included;
	// see dnp.Config. 0 means 256 KiB, less than 0 no limit.
	BytesPerSecond int

	// OfferBytesPerSecond is how much each worker sends at most for new links; see
	// dnp.Config. 0 means 4 MiB, less than 0 no limit.
	OfferBytesPerSecond int

	// ReadBuffer is the size in bytes that is requested for the receive buffer of each
	// socket. 0 means 4 MiB.
	ReadBuffer int

	// Auth says how clients tell who they are.
	Auth login.Auth

	// TokenKeys is the file with the public keys whose tokens are valid, see
	// auth.ParseKeys. The edge reads it again when it changes. AuthToken needs it.
	TokenKeys string

	// LoginTimeout is how long a client may take to send its login after it connected; see
	// dnp.Config. 0 means 5 s.
	LoginTimeout time.Duration

	// OpenSpace is the space that all clients join with AuthOpen, which needs it.
	OpenSpace string

	// Admission bounds what unknown clients may cost each worker. A rate of zero is off.
	Admission admit.Config

	// SessionsMax bounds the sessions of this edge, SessionsPerAddress those of one
	// IPv4 address or IPv6 /64. Workers that begin sessions in the same moment may
	// exceed them by one each. 0 means 65,536 and no bound, respectively.
	SessionsMax, SessionsPerAddress int

	// Rate is how much each client may send; see dnp.Config.
	Rate admit.Rate

	// ClientStates says what becomes of states that clients offer.
	ClientStates fanout.ClientStates

	// Describe makes link messages describe the states whose publishers gave them no message.
	Describe bool

	// Recycle says what becomes of sessions whose LinkIds are nearly used up.
	Recycle fanout.Recycle

	// LogAddresses says how much of clients' addresses log lines show; empty means
	// truncated.
	LogAddresses LogAddresses

	// Durable makes sessions durable, so that other edges can take them over. nil means
	// that sessions end with this edge.
	Durable *Durable

	// Carriers lets clients come otherwise than by UDP. nil means that none do.
	Carriers *Carriers

	// Drain, if not nil, is called for each request of an operator over the bus, from any goroutine. It calls tell
	// with what becomes of the sessions and then begins the drain, because an edge without sessions is gone at once.
	Drain func(tell func(telemetry.Drain))

	// DrainTimeout is how long Run may take to hand durable sessions over when it is to end,
	// and over which time it closes all others, evenly. 0 means 55 s for durable sessions, and
	// that others are closed at once.
	DrainTimeout time.Duration

	// Linger is how long a space is followed after its last client left.
	// 0 means 30 s.
	Linger time.Duration

	// Bus carries everything but the clients' datagrams.
	Bus      bus.Bus
	Subjects subject.Names

	// Shards is the number of shards of the deployment. 0 means 64.
	Shards int

	// NewID makes names of 26 letters and digits that are unique for ever and cannot be
	// guessed; Seed makes seeds. nil means that they are made from the system's secure
	// random numbers. Simulations set them.
	NewID func() string
	Seed  func() uint64

	// Log receives life-cycle events. nil means slog.Default().
	Log *slog.Logger

	// Telemetry receives traces and distributions of times. nil means none, which is for
	// simulations, because it reads the clock.
	Telemetry *telemetry.Telemetry
}

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.ReadBuffer = cmp.Or(c.ReadBuffer, 4<<20)
	c.Linger = cmp.Or(c.Linger, 30*time.Second)
	c.Shards = cmp.Or(c.Shards, 64)
	c.LoginTimeout = cmp.Or(c.LoginTimeout, 5*time.Second)
	c.SessionsMax = cmp.Or(c.SessionsMax, 65_536)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.NewID == nil {
		c.NewID = crand.Text
	}
	if c.Seed == nil {
		c.Seed = secureSeed
	}
	if c.Carriers != nil {
		k := *c.Carriers
		k.ConnsMax = cmp.Or(k.ConnsMax, c.SessionsMax)
		if k.Now == nil {
			k.Now = time.Now
		}
		c.Carriers = &k
	}
	if c.Durable != nil {
		d := *c.Durable
		c.DrainTimeout = cmp.Or(c.DrainTimeout, 55*time.Second)
		d.DrainLinger = cmp.Or(d.DrainLinger, 3*time.Second)
		c.Durable = &d
	}
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("edge: "+format, args...))
		}
	}
	want(c.Node != "", "no node name")
	want(c.Auth <= login.AuthCallout, "unknown kind of login %d", c.Auth)
	want((c.Auth == login.AuthToken) == (c.TokenKeys != ""), "token keys and logins with tokens need each other")
	want(c.Auth != login.AuthOpen || subject.ValidToken(c.OpenSpace), "%q is not the name of a space", c.OpenSpace)
	want(!strings.HasPrefix(c.OpenSpace, "_"), "space %q: names that start with _ are reserved", c.OpenSpace)
	want(c.ClientStates <= fanout.ClientStatesOff, "unknown rule %d for states of clients", c.ClientStates)
	want(c.Recycle <= fanout.RecycleTell, "unknown rule %d for sessions without LinkIds", c.Recycle)
	want(min(c.Workers, c.Shards, c.SessionsMax, c.SessionsPerAddress) >= 0 && min(c.Flush, c.Linger, c.DrainTimeout) >= 0,
		"negative workers, shards, flush, linger, drain timeout or sessions")
	want(c.Bus != nil, "no bus")
	if d := c.Durable; d != nil {
		want(d.Log != nil && len(d.Secret) > 0, "durable sessions need a log and a secret")
		want(d.From != nil, "durable sessions need a store for their messages")
	}
	return errors.Join(errs...)
}

func secureSeed() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// LogAddresses says how much of a client's address log lines show.
type LogAddresses string

const (
	AddressesFull      LogAddresses = "full"
	AddressesTruncated LogAddresses = "truncated" // the /24 or /48, which identifies no person
	AddressesOff       LogAddresses = "off"
)

func (a LogAddresses) text(from netip.AddrPort) string {
	bits := 24
	if from.Addr().Unmap().Is6() {
		bits = 48
	}
	switch a {
	case AddressesFull:
		return from.String()
	case AddressesOff:
		return "-"
	}
	p, err := from.Addr().Unmap().WithZone("").Prefix(bits)
	if err != nil {
		return "-"
	}
	return p.String()
}

// A Durable is what durable sessions need, those that outlive their edge; see
// sessionlog/DESIGN.md and takeover/DESIGN.md.
type Durable struct {
	takeover.Ports

	// From stores reliable messages of clients for the game servers.
	From From

	// Missing names what durable sessions need and do not have, for those who look at the edge. nil means nothing.
	Missing func() []string

	// DrainLinger is for how long Run goes on to forward datagrams when the sessions are
	// handed over. 0 means 3 s if there is a Forwarder.
	DrainLinger time.Duration
}

// Carriers are what clients need that do not speak UDP; see carrier.Hub. They belong to the first listener.
type Carriers struct {
	// Secret makes the tokens of clients. Edges that take sessions over from each other must have the same. Without Durable each
	// process must have its own, because no other one knows the sessions of its tokens.
	Secret []byte

	// ConnsMax bounds their connections. 0 means SessionsMax.
	ConnsMax int

	// Now is the clock; nil means time.Now. Start starts the writer of a connection; nil means that it is a goroutine.
	// Simulations set them.
	Now   func() time.Time
	Start func(c *carrier.Conn)
}

// From is the port to the store of clients' reliable messages for game servers.
type From interface {
	// Begin returns the feed of a session. delivered is called, from any goroutine, when
	// the message with this number and all before it can no longer get lost; it does
	// not block.
	Begin(space, client, session string, delivered func(number uint64)) Feed
}

// A Feed is the messages of one session.
type Feed = takeover.Feed
