package systest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// Sizes of a flood of forged logins.
const (
	floodRate    = 100_000 // per second
	floodPlaying = 20
	floodJoining = 100
	floodJoinFor = 2 * time.Second // in which they begin
	floodWithin  = 5 * time.Second // in which each has to be in
)

// A counted counts what an edge asks the affinity and the log.
type counted struct {
	cluster.Affinity
	sessionlog.Log
	finds, reads int
}

func (c *counted) Find(name string, answer func(cluster.Served, error)) {
	c.finds++
	c.Affinity.Find(name, answer)
}

func (c *counted) Read(log string, answer func(sessionlog.Answer)) {
	c.reads++
	c.Log.Read(log, answer)
}

// A floodWorld is an edge whose clients log in, players, and forged logins.
type floodWorld struct {
	*world
	e       *simEdge
	asks    *counted
	door    *door
	callout bool
	forged  []byte
	next    uint32 // forged address
}

func newFloodWorld(t *testing.T, callout, durable bool) *floodWorld {
	w := &floodWorld{world: newWorld(t, *seed), callout: callout}
	w.startRelay()
	w.asks = &counted{
		Affinity: memaffinity.New(w.net.Now).Node("edge1"),
		Log:      memlog.New(memlog.Config{Schedule: w.net.Schedule, Rand: rand.New(rand.NewPCG(*seed, 1))}),
	}
	w.e = w.startEdge(wire.Denetwork, func(cfg *edge.Config) {
		if withCallout(cfg); !callout {
			w.withTokens(cfg)
		}
		if durable {
			cfg.Durable = &edge.Durable{Ports: takeover.Ports{Log: w.asks, Secret: []byte("secret"), Affinity: w.asks}, From: &gameInbox{bySession: map[string]*inbox{}}}
		}
	})
	w.door = w.withDoor(func(message string) string {
		if name, ok := strings.CutPrefix(message, "player "); ok {
			return fmt.Sprintf(`{"client":%q,"space":"s"}`, name)
		}
		return `{"error":"who is that?"}`
	})
	w.forged = []byte("a stranger, and what it says")
	if !callout {
		w.forged = w.token("eve", nil)
		w.forged[len(w.forged)-20] ^= 1
	}
	w.forged = wire.ReliableMessage{Data: w.forged}.Append(nil)
	w.mustPublish("s", doorPut)
	return w
}

// player has player i log in.
func (w *floodWorld) player(i int) *player {
	name := fmt.Sprint("p", i)
	message := []byte("player " + name)
	if !w.callout {
		message = w.token(name, nil)
	}
	return w.login(w.e, fmt.Sprintf("10.1.%d.%d:5000", i/50, 1+i%50), dnptest.Presets()[i%4], message)
}

// flood forges logins for as long as more reports true.
func (w *floodWorld) flood(more func() bool) {
	batch := make([]udp.Datagram, floodRate/10_000)
	w.net.Every(100*time.Microsecond, func() bool {
		for i := range batch {
			w.next++
			ip := [4]byte{11, byte(w.next >> 16), byte(w.next >> 8), byte(w.next)}
			batch[i] = udp.Datagram{From: netip.AddrPortFrom(netip.AddrFrom4(ip), 4000), Data: w.forged}
		}
		w.e.turn(w.net.Now(), batch)
		return more()
	})
}

// TestForgedLogins: 100,000 forged logins a second, from as many addresses, keep none of those
// out who join, interrupt none of those who play, and cost few questions to the game's service,
// to the affinity and to the log. Every library is among the players. By default it plays half of
// the combinations, because a million datagrams take their time; with -rounds all.
func TestForgedLogins(t *testing.T) {
	for _, c := range []struct {
		name             string
		callout, durable bool
	}{{name: "token"}, {name: "callout", callout: true}, {name: "token, durable", durable: true}, {name: "callout, durable", callout: true, durable: true}} {
		if *rounds == 0 && c.callout == c.durable {
			continue
		}
		t.Run(c.name, func(t *testing.T) { floodLogins(newFloodWorld(t, c.callout, c.durable)) })
	}
}

func floodLogins(w *floodWorld) {
	all := make([]*player, floodPlaying, floodPlaying+floodJoining)
	for i := range all {
		all[i] = w.player(i)
	}
	in := func(p *player) bool { return p.Phase() == dnptest.Connected && p.has("D", 0, u16(1)) }
	for _, p := range all {
		w.within(5*time.Second, "players are in before the flood", func() bool { return in(p) })
	}
	start, asked := w.net.Now(), len(w.door.asked)
	w.asks.finds, w.asks.reads = 0, 0
	flooding := true
	w.flood(func() bool { return flooding })
	w.net.Run(time.Second)
	late := 0
	for i := range floodJoining {
		p := w.player(floodPlaying + i)
		all = append(all, p)
		w.net.Schedule(floodWithin, func() {
			if !in(p) {
				late++
				w.Logf("%s (%s) is %v after %v", p.addr, p.Behaviour().Name, p.Phase(), floodWithin)
			}
		})
		w.net.Run(floodJoinFor / floodJoining)
	}
	w.net.Run(floodWithin - floodJoinFor/2)
	flooding = false
	took := w.net.Now().Sub(start).Seconds()
	w.net.Run(floodJoinFor) // links come up, and their numbers go on
	w.Logf("%d of %d are late; %d questions to the service, %d to the affinity, %d to the log in %.1f s", late, floodJoining, len(w.door.asked)-asked, w.asks.finds, w.asks.reads, took)
	if late > floodJoining/100 || w.count("left") > 0 {
		w.Errorf("%d of %d who joined were not in within %v; %d sessions ended", late, floodJoining, floodWithin, w.count("left"))
	}
	if n, most := max(len(w.door.asked)-asked, w.asks.finds, w.asks.reads), int(250*(took+1))+2*floodJoining; n > most {
		w.Errorf("%d questions, want at most %d", n, most)
	}
	w.mustPublish("s", `{"op":"set","key":"door","values":{"v":7}}`)
	w.net.Run(time.Second)
	for _, p := range all {
		if p.Phase() == dnptest.Connected && !p.has("D", 0, u16(7)) {
			w.Errorf("%s (%s) has % x, want the newest value", p.addr, p.Behaviour().Name, p.Value("D", 0))
		}
	}
}
