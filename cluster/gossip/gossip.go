package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/hashicorp/memberlist"
)

// A Gossip is this node among the others. Its methods may be called from any
// goroutine.
type Gossip struct {
	cfg    Config
	log    *slog.Logger
	logger *logger
	table  *table
	keys   *keys
	list   *memberlist.Memberlist

	bound, advertise netip.AddrPort
	machine          []netip.Addr // addresses of this machine

	urgent, calm chan struct{}   // one slot each: there is something to tell
	contested    chan struct{}   // one slot: another node has our name
	ctx          context.Context // of all that is dialled
	stop         func()
	once         sync.Once // of end
}

// Open opens the ports of gossip and reads the keys. From then on others may join
// this node; Run joins them. Who does not call Run has to call Close.
func Open(cfg Config) (*Gossip, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg: cfg, log: cfg.Log, logger: newLogger(cfg.Log), machine: machineAddresses(),
		urgent: make(chan struct{}, 1), calm: make(chan struct{}, 1), contested: make(chan struct{}, 1),
	}
	if g.keys, err = openKeys(cfg.KeyFile, cfg.KeyDelay, cfg.Log); err != nil {
		return nil, err
	}
	transport, err := listen(cfg.Bind, g.logger.standard())
	if err != nil {
		return nil, err
	}
	if err := g.create(transport); err != nil {
		transport.Shutdown()
		return nil, err
	}
	return g, nil
}

func (g *Gossip) create(transport *memberlist.NetTransport) (err error) {
	bind, err := parseBind(g.cfg.Bind)
	if err != nil {
		return err
	}
	g.bound = netip.AddrPortFrom(bind.Addr(), uint16(transport.GetAutoBindPort()))
	if g.advertise, err = advertised(g.cfg.Advertise, g.bound, g.machine); err != nil {
		return err
	}
	self := g.cfg.Self
	self.Gossip = g.advertise
	g.table = newTable(self)
	g.table.conflict = func(addr netip.AddrPort) {
		g.complain("the name of this node is in use", fmt.Errorf("%s is also at %v: names must differ, unless that was this node before a restart", self.Name, addr))
		select {
		case g.contested <- struct{}{}:
		default:
		}
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

// Run joins the others, joins them again when they were lost, follows the key
// file and tells what changes, until ctx ends; then it leaves and closes. It
// returns a [*RefusedError] or [*ShardsError] when others answered, all refused
// this node, and it has never met any: it cannot work, and they have not noticed.
func (g *Gossip) Run(ctx context.Context) error {
	if g.cfg.KeyFile == "" && !g.bound.Addr().IsLoopback() {
		g.log.Warn("gossip is not encrypted: everybody who reaches the port can pretend to be a member", "address", g.bound)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, g.stop)()   // nothing is dialled any more,
	defer context.AfterFunc(g.ctx, cancel)() // and Close ends Run
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

// Close stops without a word to the others, who will take this node for dead. Run,
// which leaves in order, needs no Close after it, and ends when somebody calls it.
func (g *Gossip) Close() { g.end(false) }

func (g *Gossip) end(leave bool) {
	g.once.Do(func() {
		g.logger.silent.Store(true) // from here on errors mean nothing
		g.stop()
		if leave {
			if err := g.list.Leave(g.cfg.LeaveTimeout); err != nil {
				g.log.Debug("gossip", "event", err.Error())
			}
		}
		g.list.Shutdown() // has no other error than that of closing sockets
	})
}

// Roster returns who is there. This node is always among them, as it is.
func (g *Gossip) Roster() cluster.Roster { return g.table.snapshot() }

// Changes returns a channel of one slot that says: Roster may be another one. It is
// the same at every call, so only one goroutine should listen.
func (g *Gossip) Changes() <-chan struct{} { return g.table.changed }

// Addr returns where the others reach this node.
func (g *Gossip) Addr() netip.AddrPort { return g.advertise }

// Stats are counters of a Gossip since its start, and what it is like.
type Stats struct {
	Members        int    // with this node
	Health         int    // 0 = answers and gets answers in time; more is worse
	Suspicions     uint64 // members that did not answer this node's probe
	Refutations    uint64 // times that others took this node for dead or suspected it
	Undecipherable uint64 // messages and streams under a key that is not known
}

// Stats returns the counters.
func (g *Gossip) Stats() Stats {
	return Stats{
		Members: g.Roster().Len(), Health: g.list.GetHealthScore(), Suspicions: g.logger.suspicions.Load(),
		Refutations: g.logger.refutations.Load(), Undecipherable: g.logger.undecipherable.Load(),
	}
}
