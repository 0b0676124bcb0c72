package compose

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/cluster/forward/socket"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// keysInterval is how often the keys of gossip are read. Gossip knows a new key for two
// minutes before it uses it.
const keysInterval = time.Second

// A Forwarding carries datagrams of clients between an edge and the other edges. It
// implements takeover.Forwarder, and gives the edge what comes from the others.
type Forwarding struct {
	*socket.Forwarder
	gossip *gossip.Gossip
	edge   *edge.Edge // from Serve on
	log    *slog.Logger
	at     netip.AddrPort // where the others reach it
}

// NewForwarding opens the port for datagrams of other edges, and publishes its address and
// the name of this process through gossip. It forwards rate of each client. Without members or
// keys nothing can be forwarded: then it logs that, and returns nil.
func NewForwarding(c *config.Forward, rate admit.Rate, node string, members *gossip.Gossip, log *slog.Logger) (*Forwarding, error) {
	if members == nil || len(members.Keys()) == 0 {
		log.Info("datagrams of clients that other edges serve are not forwarded: forwarding needs --gossip-join and --gossip-key-file")
		return nil, nil
	}
	listen, err := cluster.ParseBind(c.Address(), "[::]")
	if err != nil {
		return nil, fmt.Errorf("--forward-listen: %w", err)
	}
	w := &Forwarding{gossip: members, log: log}
	w.Forwarder, err = socket.Open(socket.Config{
		Router: forward.Config{Node: node, Rate: rate, Serves: func(c forward.Client) (uint64, bool) { return w.edge.Serves(c) }},
		Listen: listen, Changed: w.changed, Log: log,
		Handle: func(_ time.Time, list []forward.Delivery) { w.edge.Forwarded(list) },
	})
	if err != nil {
		return nil, fmt.Errorf("--forward-listen %s: %w", c.Address(), err)
	}
	if w.at, err = advertisedAt(c.ForwardAdvertise, w.Addr(), members.Addr()); err == nil {
		err = tellAddresses(members, w, nil)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	members.SetSender(w.ID())
	log.Info("forwarding datagrams between edges", "listen", w.Addr(), "advertise", w.at)
	return w, nil
}

// tellAddresses publishes through gossip where other edges reach this one, and the addresses of its
// listeners: another edge that drains hands it only sessions of clients that talk to one of their ports.
// An edge with more ports than a member has room for tells none of them. forward may be nil.
func tellAddresses(members *gossip.Gossip, forward *Forwarding, listeners []netip.AddrPort) error {
	var list []cluster.Address
	if forward != nil {
		list = append(list, cluster.Address{Service: cluster.ServiceForward, Addr: forward.at})
	}
	all := list
	for i, l := range listeners {
		if slices.ContainsFunc(listeners[:i], func(x netip.AddrPort) bool { return x.Port() == l.Port() }) {
			continue
		}
		at, err := advertisedAt("", l, members.Addr())
		if err != nil {
			return err
		}
		all = append(all, cluster.Address{Service: cluster.ServiceDNP, Addr: netip.AddrPortFrom(at.Addr().WithZone(""), at.Port())})
	}
	if len(all) > cluster.AddressesMax {
		all = list
	}
	return members.SetAddresses(all)
}

// advertisedAt returns the address at which the other edges reach a socket: the one that
// the flag names, or else the socket's own, or else that of gossip.
func advertisedAt(asked string, bound, gossip netip.AddrPort) (netip.AddrPort, error) {
	switch {
	case asked != "":
		return cluster.ParseAdvertised(asked, bound.Port())
	case bound.Addr().IsUnspecified():
		return netip.AddrPortFrom(gossip.Addr(), bound.Port()), nil
	}
	return bound, nil
}

// Serve sets the edge, before Run.
func (w *Forwarding) Serve(e *edge.Edge) { w.edge = e }

// Run carries datagrams until ctx ends.
func (w *Forwarding) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { w.followKeys(ctx) })
	defer func() { cancel(); following.Wait() }()
	return w.Forwarder.Run(ctx)
}

// followKeys sets the keys to those of gossip whenever they change.
func (w *Forwarding) followKeys(ctx context.Context) {
	for range turn.Every(ctx, keysInterval) {
		if err := w.SetKeys(ctx, w.gossip.Keys()); err != nil && ctx.Err() == nil {
			w.log.Error("keeping the old keys for datagrams between edges", "error", err)
		}
	}
}

// SetRoster sets the edges that are there.
func (w *Forwarding) SetRoster(ctx context.Context, r cluster.Roster) {
	var list []forward.Peer
	for m := range r.All() {
		if at, ok := m.Address(cluster.ServiceForward); ok && m.Role == cluster.RoleEdge {
			list = append(list, forward.Peer{Name: m.Name, ID: m.Sender, Addr: at})
		}
	}
	w.SetPeers(ctx, list)
}

// changed takes over the sessions of an edge whose heartbeats are missing. If that edge is
// alive after all, each of its sessions moves once, which does no harm.
func (w *Forwarding) changed(c forward.Change) {
	if c.Is == forward.Suspect {
		w.edge.Gone(c.Node)
	}
}
