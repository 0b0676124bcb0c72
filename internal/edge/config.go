package edge

import (
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
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/login"
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

	// Workers is the number of workers for each listener. 0 means one per core.
	Workers int

	// Flush is the shortest time between two sendings of changed values of one
	// worker. 0 means at once, after each batch.
	Flush time.Duration

	// BytesPerSecond is what each client is sent at most, headers included; see
	// dnp.Config. 0 means 256 KiB, less than 0 no limit.
	BytesPerSecond int

	// OfferBytesPerSecond is what each worker sends at most for links that are new;
	// see dnp.Config. 0 means 4 MiB, less than 0 no limit.
	OfferBytesPerSecond int

	// ReadBuffer is the size in bytes asked for each socket's receive buffer.
	// 0 means 4 MiB.
	ReadBuffer int

	// Auth says how clients tell who they are.
	Auth login.Auth

	// TokenKeys is the file with the public keys whose tokens are good, see
	// auth.ParseKeys. It is read again when it changes. AuthToken needs it.
	TokenKeys string

	// OpenSpace is the space that clients join, which are not asked who they
	// are. It must not be empty with AuthOpen.
	OpenSpace string

	// Admission bounds what strangers may cost each worker. Zero rates are off.
	Admission admit.Config

	// SessionsMax bounds the sessions of this edge, SessionsPerAddress those of one
	// IPv4 address or IPv6 /64. Workers that begin sessions in the same moment may
	// exceed them by one each. 0 means 65,536, and no bound.
	SessionsMax, SessionsPerAddress int

	// RateDatagrams and RateBytes are how much each client may send per second, see
	// dnp.Config. 0 is no limit.
	RateDatagrams, RateBytes int

	// ClientStates says what becomes of states that clients offer.
	ClientStates fanout.ClientStates

	// LogAddresses is how much of clients' addresses log lines have; truncated if empty.
	LogAddresses LogAddresses

	// Durable keeps sessions in a log, so that other edges can go on with them. nil
	// means that they end with this edge.
	Durable *Durable

	// Linger is how long a space is followed after its last client left.
	// 0 means 30 s.
	Linger time.Duration

	// Bus carries everything but the clients' datagrams.
	Bus      bus.Bus
	Subjects subject.Names

	// Shards is the number of shards of the deployment. 0 means 64.
	Shards int

	// NewID makes names that are unique for ever and cannot be guessed, of 26
	// letters and digits; Seed makes seeds. nil means from the system's secure
	// random numbers. Simulations set them.
	NewID func() string
	Seed  func() uint64

	// Log receives life-cycle events. nil means slog.Default().
	Log *slog.Logger

	// Telemetry takes traces and distributions of times. nil means none, which is for
	// simulations, because it reads the clock.
	Telemetry *telemetry.Telemetry
}

func (c *Config) setDefaults() {
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.ReadBuffer == 0 {
		c.ReadBuffer = 4 << 20
	}
	if c.Linger == 0 {
		c.Linger = 30 * time.Second
	}
	if c.Shards == 0 {
		c.Shards = 64
	}
	if c.SessionsMax == 0 {
		c.SessionsMax = 65_536
	}
	if c.NewID == nil {
		c.NewID = crand.Text
	}
	if c.Seed == nil {
		c.Seed = secureSeed
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Durable != nil {
		c.Durable.setDefaults()
	}
}

// validate reports all problems at once.
func (c *Config) validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("edge: no node name"))
	}
	if c.Auth > login.AuthCallout {
		errs = append(errs, fmt.Errorf("edge: unknown way %d to tell who a client is", c.Auth))
	}
	if (c.Auth == login.AuthToken) != (c.TokenKeys != "") {
		errs = append(errs, errors.New("edge: a file of token keys and clients with tokens need each other"))
	}
	if c.Auth == login.AuthOpen && !subject.ValidToken(c.OpenSpace) {
		errs = append(errs, fmt.Errorf("edge: %q is no name of a space", c.OpenSpace))
	}
	if strings.HasPrefix(c.OpenSpace, "_") {
		errs = append(errs, fmt.Errorf("edge: space %q: names that start with _ are reserved", c.OpenSpace))
	}
	if c.ClientStates > fanout.ClientStatesOff {
		errs = append(errs, fmt.Errorf("edge: unknown rule %d for states of clients", c.ClientStates))
	}
	if c.Workers < 0 || c.Shards < 0 || c.Flush < 0 || c.Linger < 0 || c.SessionsMax < 0 || c.SessionsPerAddress < 0 {
		errs = append(errs, errors.New("edge: negative workers, shards, flush, linger or sessions"))
	}
	if c.Bus == nil {
		errs = append(errs, errors.New("edge: no bus"))
	}
	if c.Durable != nil {
		errs = append(errs, c.Durable.validate())
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
	AddressesTruncated LogAddresses = "truncated" // the /24 or /48, which is no person
	AddressesOff       LogAddresses = "off"
)

// text returns an address as log lines show it.
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
