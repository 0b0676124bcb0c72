package gossip

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
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

// withDefaults returns c with the default of each field that is zero.
func (c Config) withDefaults() Config {
	c.KeyPoll = cmp.Or(c.KeyPoll, 2*time.Second)
	c.KeyDelay = cmp.Or(c.KeyDelay, 2*time.Minute)
	c.RejoinInterval = cmp.Or(c.RejoinInterval, 10*time.Second)
	c.Resolver = cmp.Or[Resolver](c.Resolver, net.DefaultResolver)
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
		if _, _, err := cluster.ParseTarget(name, DefaultPort); err != nil {
			errs = append(errs, fmt.Errorf("gossip: join: %w", err))
		}
	}
	return errors.Join(errs...)
}

// tuned returns the settings of memberlist that are the same for all nodes.
func tuned() *memberlist.Config {
	c := memberlist.DefaultLANConfig()

	// With memberlist's settings for a LAN a death shows after 5 to 9 s. With these it shows after
	// 0.6 to 1.1 s: up to one probe interval until a member probes the dead node, one more until the
	// probe has failed, and a suspicion of two.
	c.ProbeInterval, c.ProbeTimeout = 200*time.Millisecond, 100*time.Millisecond
	c.SuspicionMult = 2
	c.GossipInterval = 50 * time.Millisecond

	// PushPullInterval is how often two nodes compare everything they know. The comparison
	// brings news that gossip lost, such as the new address of a node that was restarted
	// elsewhere before its death was noticed.
	c.PushPullInterval = 5 * time.Second

	// DeadNodeReclaimTime is how long a name must be dead before a node at another address
	// may have it: a pod that is replaced gets a new address at once.
	c.DeadNodeReclaimTime = time.Millisecond

	c.TCPTimeout = 3 * time.Second // ends a connection to a node that does not answer
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = true, true
	c.EnableCompression = false // messages are small, and without decompression there are no bombs
	return c
}

// A Gossip is this node as a member of a cluster. Its methods may be called from any goroutine.
type Gossip struct {
	cfg    Config
	log    *slog.Logger
	logger *logger
	table  *table
	keys   *keys
	list   *memberlist.Memberlist

	bound, advertise netip.AddrPort
	machine          []netip.Addr // addresses of this machine

	announcing turn.Wake       // there is something to announce
	contested  turn.Wake       // another node has the name of this one
	ctx        context.Context // of all connections that are dialled
	stop       func()
	once       sync.Once // of end
}

// Open opens the ports of gossip and reads the keys. From then on others may join this node; Run joins
// them. A caller that does not call Run must call Close.
func Open(cfg Config) (*Gossip, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg: cfg, log: cfg.Log, logger: newLogger(cfg.Log), machine: machineAddresses(),
		announcing: turn.NewWake(), contested: turn.NewWake(),
	}
	var err error
	if g.keys, err = openKeys(cfg.KeyFile, cfg.KeyDelay, cfg.Log); err != nil {
		return nil, err
	}
	transport, bound, err := listen(cfg.Bind, g.logger.standard())
	if err != nil {
		return nil, err
	}
	g.bound = bound
	if err := g.create(transport); err != nil {
		transport.Shutdown()
		return nil, err
	}
	return g, nil
}

func (g *Gossip) create(transport *memberlist.NetTransport) (err error) {
	if g.advertise, err = advertised(g.cfg.Advertise, g.bound, g.machine); err != nil {
		return err
	}
	self := g.cfg.Self
	self.Gossip = g.advertise
	g.table = newTable(self)
	g.table.conflict = func(addr netip.AddrPort) {
		g.complain("the name of this node is in use", fmt.Errorf("%s is also at %v: names must differ, unless that was this node before a restart", self.Name, addr))
		g.contested.Wake()
	}
	c := tuned()
	c.Name, c.Logger = self.Name, g.logger.standard()
	c.BindPort = int(g.bound.Port())
	c.AdvertiseAddr, c.AdvertisePort = g.advertise.Addr().String(), int(g.advertise.Port())
	c.Keyring = g.keys.keyring
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict = g.table, g.table, g.table, g.table, g.table
	g.ctx, g.stop = context.WithCancel(context.Background())
	c.Transport = dialling{transport, g.ctx}
	if g.cfg.spoil != nil {
		g.cfg.spoil(c)
	}
	if g.list, err = memberlist.Create(c); err != nil {
		g.stop()
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// Run joins the others, joins them again when they were lost, follows the key file and announces
// changes, until ctx ends; then it leaves and closes. It returns an error if all others that answered
// refused this node for its key or its number of shards, and it has never met one: it cannot work, and
// they have not noticed it.
func (g *Gossip) Run(ctx context.Context) error {
	if g.cfg.KeyFile == "" && !g.bound.Addr().IsLoopback() {
		g.log.Warn("gossip is not encrypted: any host that reaches the port can pretend to be a member", "address", g.bound)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, g.stop)()   // dials nothing from then on
	defer context.AfterFunc(g.ctx, cancel)() // Close ends Run
	var wait sync.WaitGroup
	wait.Go(func() { g.keys.follow(running, g.cfg.KeyPoll) })
	wait.Go(func() { g.announce(running) })
	wait.Go(func() { g.narrate(running) })
	wait.Go(func() { g.settle(running) })
	err := g.keepJoined(running)
	g.end(err == nil)
	cancel()
	wait.Wait()
	return err
}

// Close stops without telling the others, which will take this node for dead. Run leaves in order and
// needs no Close after it; Close ends a Run that is under way.
func (g *Gossip) Close() { g.end(false) }

func (g *Gossip) end(leave bool) {
	g.once.Do(func() {
		g.logger.silent.Store(true) // from here on errors mean nothing
		g.stop()
		if leave {
			if err := g.list.Leave(time.Second); err != nil {
				g.log.Debug("gossip", "event", err.Error())
			}
		}
		g.list.Shutdown() // its only error is that of closing sockets
	})
}

// Roster returns the members. This node is always among them, with its present description.
func (g *Gossip) Roster() cluster.Roster { return g.table.snapshot() }

// Changes returns a channel of one slot that says that Roster may have changed. Every call returns the
// same channel, so only one goroutine should receive from it.
func (g *Gossip) Changes() <-chan struct{} { return g.table.changed }

// Addr returns the address at which the others reach this node.
func (g *Gossip) Addr() netip.AddrPort { return g.advertise }

// Stats are counters of a Gossip since its start, and its state.
type Stats struct {
	Health         int    // 0 = this node answers and is answered in time; more is worse
	Suspicions     uint64 // members that did not answer this node's probe
	Refutations    uint64 // times that others suspected this node or took it for dead
	Undecipherable uint64 // messages and streams under an unknown key
}

// Stats returns the counters.
func (g *Gossip) Stats() Stats {
	return Stats{
		Health: g.list.GetHealthScore(), Suspicions: g.logger.suspicions.Load(),
		Refutations: g.logger.refutations.Load(), Undecipherable: g.logger.undecipherable.Load(),
	}
}

const (
	announceInterval = 250 * time.Millisecond // least time between two announcements of this node
	announceTimeout  = 100 * time.Millisecond // until announceOnce checks whether the announcement took effect
)

// SetPhase tells the others the phase of this node.
func (g *Gossip) SetPhase(p cluster.Phase) {
	g.edit(func(m *cluster.Member) { m.Phase = p })
}

// SetAddresses tells the others where this node offers its services. It keeps the slice.
func (g *Gossip) SetAddresses(list []cluster.Address) error {
	m := g.cfg.Self
	m.Addresses = list
	if err := m.Validate(); err != nil {
		return err
	}
	g.edit(func(m *cluster.Member) { m.Addresses = list })
	return nil
}

// SetSender tells the others the id under which this process seals datagrams; see cluster/forward.
func (g *Gossip) SetSender(id uint64) {
	g.edit(func(m *cluster.Member) { m.Sender = id })
}

func (g *Gossip) edit(change func(*cluster.Member)) {
	if g.table.edit(change) {
		g.announcing.Wake()
	}
}

// announce announces the changes of this node until ctx ends. Changes between two announcements go
// together.
func (g *Gossip) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.announcing:
		}
		for ctx.Err() == nil && !g.announceOnce() {
		}
		turn.Pause(ctx, announceInterval)
	}
}

// announceOnce announces the description of this node. It reports false if the announcement had no
// effect: memberlist ignores an UpdateNode for good if this node refutes at the same instant what
// others say about it, as it does when it meets them after a restart, because the number of the update
// is then too low. UpdateNode returns at the end of the timeout in this case. Edges take an edge for
// dead whose address for datagrams they were not told, and it takes them for dead.
func (g *Gossip) announceOnce() bool {
	before := g.list.LocalNode().Meta
	// The next comparison of two nodes repairs a broadcast that did not get through in time.
	if err := g.list.UpdateNode(announceTimeout); err != nil {
		g.log.Debug("gossip", "event", err.Error())
	}
	after := g.list.LocalNode().Meta
	return !bytes.Equal(after, before) || bytes.Equal(after, g.table.NodeMeta(memberlist.MetaMaxSize))
}

// Times of settling which node has a name.
const (
	settleInterval = 500 * time.Millisecond
	settleTries    = 6 // 3 s; a death shows after one
	settleRest     = 30 * time.Second
	settleMembers  = 3 // that are told at once
)

// settle gets this node its name back, until ctx ends. If the node was killed and came back at another
// address before the others noticed, they hold on to the address that they know. After the death of
// the former process has shown, they would learn of this one within PushPullInterval; settle tells them
// sooner. If two nodes have the same name for good, it gives up for settleRest.
func (g *Gossip) settle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.contested:
		}
		for range settleTries {
			if turn.Pause(ctx, settleInterval) {
				g.tellAgain()
			}
		}
		turn.Pause(ctx, settleRest)
	}
}

// tellAgain compares everything that this node knows with a few members. settle repeats attempts that
// fail.
func (g *Gossip) tellAgain() {
	others := slices.Collect(g.Roster().All())
	others = slices.DeleteFunc(others, func(m cluster.Member) bool { return m.Name == g.cfg.Self.Name })
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for _, m := range others[:min(settleMembers, len(others))] {
		if err := g.joinOne(m.Gossip); err != nil {
			g.log.Debug("gossip", "event", err.Error())
		}
	}
}

// narrate logs the members that come and go, until ctx ends.
func (g *Gossip) narrate(ctx context.Context) {
	var old cluster.Roster
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.table.news:
		}
		now := g.Roster()
		joined, left := now.Since(old)
		for _, m := range left {
			g.log.Info("gossip: member is gone", "member", m.Name, "role", m.Role, "members", now.Len())
		}
		for _, m := range joined {
			if m.Name != g.cfg.Self.Name {
				g.log.Info("gossip: member is there", "member", m.Name, "role", m.Role, "address", m.Gossip, "members", now.Len())
			}
		}
		old = now
	}
}
