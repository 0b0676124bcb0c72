package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// DefaultPort is where gossip is spoken when nobody says otherwise, TCP and UDP.
const DefaultPort = 7946

// Config says who a node is and how it finds the others.
type Config struct {
	Self cluster.Member // what the node tells; Gossip is filled in

	// Bind is [ADDRESS]:PORT; without an address on all of them, IPv4 and IPv6.
	// Port 0 is any free one.
	Bind string

	// Advertise is the address, with or without port, at which the others reach
	// this node. Empty: that of Bind, or else the first private one of the machine.
	Advertise string

	// Join are HOST or HOST:PORT, at most joinNamesMax. A host may have several
	// addresses; the port is DefaultPort unless said. Empty: wait to be joined.
	Join []string

	// KeyFile holds the keys; empty = gossip is neither encrypted nor protected.
	KeyFile string

	KeyPoll        time.Duration // how often KeyFile is read; 2 s
	KeyDelay       time.Duration // how long the others may take to see a new KeyFile; 2 min, as in Kubernetes
	RejoinInterval time.Duration // how often members that are missing from Join are looked for; 10 s
	LeaveTimeout   time.Duration // how long telling the others may take at the end; 1 s

	Resolver Resolver     // nil = net.DefaultResolver
	Log      *slog.Logger // nil = no logs

	spoil func(*memberlist.Config) // tests put trouble in here
}

// A Resolver finds the addresses of a host; *net.Resolver is one. It may block
// until ctx ends.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// withDefaults returns c with zero values replaced, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if err := c.Self.Validate(); err != nil {
		return c, fmt.Errorf("gossip: %w", err)
	}
	if len(c.Join) > joinNamesMax {
		return c, fmt.Errorf("gossip: %d names to join, at most %d", len(c.Join), joinNamesMax)
	}
	for _, name := range c.Join {
		if _, _, err := splitTarget(name); err != nil {
			return c, err
		}
	}
	for d, value := range map[*time.Duration]time.Duration{
		&c.KeyPoll: 2 * time.Second, &c.KeyDelay: 2 * time.Minute, &c.RejoinInterval: 10 * time.Second, &c.LeaveTimeout: time.Second,
	} {
		if *d <= 0 {
			*d = value
		}
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
