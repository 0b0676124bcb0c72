package dnp

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Probe is how a peer that asks for a connection proves that it receives what is
// sent to its address. Before that it gets no Conn and no game data.
type Probe uint8

const (
	// ProbePing sends a command 10 without flags and data, at 0, 0.25, 0.5, 1,
	// 1.5 and 2 s. Its acknowledgement, or any reliable command, is the proof.
	// The number can be guessed, and peers older than library 1.2 or engine 1.24
	// never answer.
	ProbePing Probe = iota

	// ProbeHello sends a small LinkState with a random LinkId at 0, 0.5, 1.5, 2.5, 3.5
	// and 4.5 s, of which unprovenFactor allows only the first two to a peer that sends
	// nothing. A LinkUp or LinkDown of that LinkId is the proof. Every peer answers.
	ProbeHello

	// ProbeNone takes the request itself as the proof.
	ProbeNone
)

// LinksPossible is the largest LinksMax, because the number of a link's slot has 16 bits.
const LinksPossible = 32767

// A Config configures an Endpoint. The zero value of each field stands for its
// default; New reports values that cannot work.
type Config struct {
	// Profile is the dialect of all connections.
	Profile wire.Profile

	// Listen accepts connection requests. Connect works with and without it.
	Listen bool

	// Probe is how peers that connect prove their address. Default ProbePing, in
	// profile spec ProbeHello, because that profile has no command 10.
	Probe Probe

	// Gate, if set, is asked first about everything that could begin a connection. Its
	// tables bound what forged requests cost. No other Endpoint may use it.
	Gate *admit.Gate

	// Admit, if set, is asked whether there is room for a connection: about each
	// request that passed the Gate, and again when the connection begins. It must not call
	// the Endpoint.
	Admit func(from netip.AddrPort) AdmitVerdict

	// Login, if set, makes peers speak first: until Login accepts the first reliable
	// message of a peer, the peer is sent only ConnectionAck and leaves no state. Probe
	// then only decides whether to find out if peers understand command 10.
	Login LoginFunc

	// Proven, if set, says which addresses need no proof, because something else than
	// UDP brings their datagrams: a request is believed, and the rates of the Gate for
	// addresses and networks do not count. It must not call the Endpoint.
	Proven func(from netip.AddrPort) bool

	// LoginTimeout is how long a peer may take to send its first message after its request,
	// where Login is set. Then it is told with ConnectionClose, if it answers a question
	// before. 0 is off.
	LoginTimeout time.Duration

	// Rate is how much a peer that connected to us may send. The buckets hold two seconds.
	// Datagrams beyond that are dropped unread, but for some that are likely the peer's.
	// Acknowledgements, LinkUps and LinkDowns that answer us are free.
	Rate admit.Rate

	// Logged (a log, not a login) makes the connections of peers that connected to us
	// wait for a log that the owner writes; see journal.go.
	Logged bool

	// DatagramMax is the size in bytes up to which commands are packed together
	// and messages split. Default 1200; 256 to 65,000.
	DatagramMax int

	// ReliableResend is how long a reliable command waits at most for its acknowledgement
	// before it is sent again, which the round trip shortens; ReliableTimeout is how long
	// after its first sending the connection is given up. Defaults 500 ms and 10 s. Libraries
	// store each needless copy, so less than 500 ms is unwise.
	ReliableResend, ReliableTimeout time.Duration

	// HoleTimeout is how long we hold reliable commands that arrived before their turn. Then
	// we forget those of a client. Default 4 s: libraries give a command up after 3 s, so the
	// one that is missing will never arrive. A connection made by Connect closes instead,
	// because we acknowledged the commands of its server, and waits for ReliableTimeout at
	// least, as servers repeat for longer.
	HoleTimeout time.Duration

	// ConnectResend is the pause between two requests of Connect, ConnectTimeout how
	// long Connect waits for the answer. Defaults 1 s and 5 s.
	ConnectResend, ConnectTimeout time.Duration

	// LivenessInterval is how long a peer that understands command 10 may acknowledge
	// nothing before it is probed. Default 15 s; negative is off. A peer that connected to
	// us and has acknowledged nothing for 40 s is asked, and given up after 15 more.
	LivenessInterval time.Duration

	// BytesPerSecond is the budget of each connection for all datagrams to the peer,
	// with headers of UDP and IP; a quarter of a second of it is saved for bursts.
	// When it is used up, LinkUpdates wait, the most urgent the least, and so do messages; see
	// DESIGN.md. A connection is sent less where datagrams wait on the path.
	// Default 262,144; negative is off.
	BytesPerSecond int

	// OfferBytesPerSecond is the rate that all connections share for their offers of
	// links, with headers. Default 4 MiB; negative is off.
	OfferBytesPerSecond int

	// Refresh lists the times after the last change of a Source at which its latest
	// changes are sent again. nil is 60, 180, 500 and 1500 ms; an empty list is off. At
	// most 16, ascending.
	Refresh []time.Duration

	// ScrubInterval is the least time in which all values of all links are sent
	// again. Default 5 s; negative is off. A round with much to send takes longer,
	// because the scrub takes at most 2 % of BytesPerSecond, or of its default.
	ScrubInterval time.Duration

	LinksMax      int // links per connection that we offer; default 4096, at most LinksPossible
	PeerLinksMax  int // links per connection that the peer offers; default 64, at most LinksPossible
	PeerValuesMax int // values of a link that the peer offers; default 1024
	LongMax       int // bytes of a reliable message, both ways; default 1 MiB
	UnprovenMax   int // peers that have not proven their address; default 65,536

	// Rand makes the LinkIds of ProbeHello. It is required if Listen is set.
	Rand *rand.Rand
}

// Bounds that are not configurable.
const (
	datagramLimit    = 65499   // the libraries refuse to send more, dnp/PROTOCOL.md, Datagrams and commands
	specMessageLimit = 60000   // profile spec has no long messages, only command 4
	longMaxMax       = 1 << 30 // of Config.LongMax
	connsMax         = 65536
	backlogMessages  = 256 // reliable messages that wait for the send window
	backlogBytes     = 64 << 10
	laneMessages     = 64 // unreliable messages that wait for the next Advance
	laneBytes        = 128 << 10
	holdsMax         = 4096 // values of a connection that are remembered because the peer wrote them
	holdBytesMax     = 64 << 10
	downsMax         = 4096 // LinkDowns of a connection that are being repeated, or that the peer may have missed
	refreshStepsMax  = 16
)

// defaultBytesPerSecond is that of Config.BytesPerSecond.
const defaultBytesPerSecond = 256 << 10

func (cfg Config) withDefaults() Config {
	if cfg.Profile == wire.Spec && cfg.Probe == ProbePing {
		cfg.Probe = ProbeHello
	}
	cfg.DatagramMax = cmp.Or(cfg.DatagramMax, 1200)
	cfg.ReliableResend = cmp.Or(cfg.ReliableResend, 500*time.Millisecond)
	cfg.ReliableTimeout = cmp.Or(cfg.ReliableTimeout, 10*time.Second)
	cfg.HoleTimeout = cmp.Or(cfg.HoleTimeout, 4*time.Second)
	cfg.ConnectResend = cmp.Or(cfg.ConnectResend, time.Second)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 5*time.Second)
	cfg.LivenessInterval = cmp.Or(cfg.LivenessInterval, 15*time.Second)
	cfg.ScrubInterval = cmp.Or(cfg.ScrubInterval, 5*time.Second)
	cfg.BytesPerSecond = cmp.Or(cfg.BytesPerSecond, defaultBytesPerSecond)
	cfg.OfferBytesPerSecond = cmp.Or(cfg.OfferBytesPerSecond, 4<<20)
	cfg.LinksMax = cmp.Or(cfg.LinksMax, 4096)
	cfg.PeerLinksMax = cmp.Or(cfg.PeerLinksMax, 64)
	cfg.PeerValuesMax = cmp.Or(cfg.PeerValuesMax, 1024)
	cfg.LongMax = cmp.Or(cfg.LongMax, 1<<20)
	cfg.UnprovenMax = cmp.Or(cfg.UnprovenMax, 65536)
	if cfg.Refresh == nil {
		cfg.Refresh = []time.Duration{60 * time.Millisecond, 180 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond}
	}
	return cfg
}

// validate reports everything that is wrong with cfg. Defaults must be set.
func (cfg Config) validate() error {
	var errs []error
	between := func(name string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("dnp: %s is %d, must be %d to %d", name, v, low, high))
		}
	}
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("dnp: %s is %v, must be positive", name, d))
		}
	}
	between("Profile", int(cfg.Profile), 0, int(wire.Spec))
	between("Probe", int(cfg.Probe), 0, int(ProbeNone))
	between("DatagramMax", cfg.DatagramMax, 256, 65000)
	between("LinksMax", cfg.LinksMax, 1, LinksPossible)
	between("PeerLinksMax", cfg.PeerLinksMax, 1, LinksPossible)
	between("PeerValuesMax", cfg.PeerValuesMax, 1, netstate.ValuesMax)
	between("LongMax", cfg.LongMax, 1, longMaxMax)
	between("UnprovenMax", cfg.UnprovenMax, 1, 1<<24)
	between("Rate.Datagrams", cfg.Rate.Datagrams, 0, 1_000_000)
	between("Rate.Bytes", cfg.Rate.Bytes, 0, 1<<30)
	between("BytesPerSecond", cfg.BytesPerSecond, -1<<30, 1<<30)
	between("OfferBytesPerSecond", cfg.OfferBytesPerSecond, -1<<30, 1<<30)
	between("len(Refresh)", len(cfg.Refresh), 0, refreshStepsMax)
	positive("ReliableResend", cfg.ReliableResend)
	positive("ReliableTimeout", cfg.ReliableTimeout)
	positive("HoleTimeout", cfg.HoleTimeout)
	positive("ConnectResend", cfg.ConnectResend)
	positive("ConnectTimeout", cfg.ConnectTimeout)
	if cfg.LoginTimeout != 0 && cfg.LoginTimeout < loginTimeoutMin {
		errs = append(errs, fmt.Errorf("dnp: LoginTimeout is %v, must be 0 or at least %v", cfg.LoginTimeout, loginTimeoutMin))
	}
	for i, d := range cfg.Refresh {
		if d <= 0 || i > 0 && d <= cfg.Refresh[i-1] {
			errs = append(errs, fmt.Errorf("dnp: Refresh %v must be positive and ascending", cfg.Refresh))
			break
		}
	}
	if cfg.Listen && cfg.Rand == nil {
		errs = append(errs, errors.New("dnp: Listen needs Rand"))
	}
	return errors.Join(errs...)
}
