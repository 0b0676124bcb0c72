package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// DefaultPort is the port of gossip unless another is configured, TCP and UDP.
const DefaultPort = 7946

// Config says who a node is and how it finds the others.
type Config struct {
	Self cluster.Member // the description of the node; Open sets Gossip

	// Bind is [ADDRESS]:PORT; without an address gossip listens on all of them, IPv4 and IPv6.
	// Port 0 is any free one.
	Bind string

	// Advertise is the address, with or without port, at which the others reach this node.
	// Empty: the address of Bind, or otherwise the first private one of the machine.
	Advertise string

	// Join are HOST or HOST:PORT, at most joinNamesMax. A host may have several addresses; the
	// default port is DefaultPort. Empty: wait until other nodes join this one.
	Join []string

	// KeyFile is the file with the keys; empty = gossip is neither encrypted nor protected.
	KeyFile string

	KeyPoll        time.Duration // how often KeyFile is read; 2 s
	KeyDelay       time.Duration // how long other nodes may take to see a new KeyFile; 2 min, as in Kubernetes
	RejoinInterval time.Duration // how often the node tries to join the members of Join that are missing; 10 s

	Resolver Resolver     // nil = net.DefaultResolver
	Log      *slog.Logger // nil = no logs

	spoil func(*memberlist.Config) // tests change the configuration here
}

// A Resolver finds the addresses of a host, as *net.Resolver does. It may block until ctx ends.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// withDefaults returns c with the default of each field that is zero or negative.
func (c Config) withDefaults() Config {
	for d, value := range map[*time.Duration]time.Duration{
		&c.KeyPoll: 2 * time.Second, &c.KeyDelay: 2 * time.Minute, &c.RejoinInterval: 10 * time.Second,
	} {
		if *d <= 0 {
			*d = value
		}
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	if err := c.Self.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("gossip: %w", err))
	}
	if len(c.Join) > joinNamesMax {
		return errors.Join(append(errs, fmt.Errorf("gossip: %d names to join, at most %d", len(c.Join), joinNamesMax))...)
	}
	for _, name := range c.Join {
		_, _, err := splitTarget(name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// With memberlist's settings for a LAN a death shows after 5 to 9 s. With these it shows after 0.6 to
// 1.1 s: up to one probe interval until a member probes the dead node, one more until the probe has
// failed, and a suspicion of two.
const (
	probeInterval = 200 * time.Millisecond
	probeTimeout  = 100 * time.Millisecond
	suspicionMult = 2
	gossipPeriod  = 50 * time.Millisecond
)

const (
	// pushPullPeriod is how often two nodes compare everything they know. The comparison brings
	// news that gossip lost, such as the new address of a node that was restarted elsewhere before
	// its death was noticed.
	pushPullPeriod = 5 * time.Second

	// streamTimeout ends a connection to a node that does not answer.
	streamTimeout = 3 * time.Second

	// leaveTimeout is how long leaving may take.
	leaveTimeout = time.Second

	// reclaimTime is how long a name must be dead before a node at another address may have it: a
	// pod that is replaced gets a new address at once.
	reclaimTime = time.Millisecond
)

// tuned returns the settings of memberlist that are the same for all nodes.
func tuned() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.ProbeInterval, c.ProbeTimeout = probeInterval, probeTimeout
	c.SuspicionMult = suspicionMult
	c.GossipInterval = gossipPeriod
	c.PushPullInterval = pushPullPeriod
	c.TCPTimeout = streamTimeout
	c.DeadNodeReclaimTime = reclaimTime
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = true, true
	c.EnableCompression = false // messages are small, and without decompression there are no bombs
	return c
}
