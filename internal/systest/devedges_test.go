package systest

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
)

var (
	devUDP    = regexp.MustCompile(`DNP clients   udp://(\S+)`)
	devWeb    = regexp.MustCompile(`web clients   (\S+)`)
	devHealth = regexp.MustCompile(`health        http://(\S+)/readyz`)
	devEdge   = regexp.MustCompile(`(edge-\d)        process \d+, (http://\S+)`)
)

// TestDevEdges runs relay dev with two edges and kills one after the other. A client by UDP and one by WebSocket go on
// at the edge that is left, with the same links, and no message is lost, doubled or out of order. An edge that was killed
// starts again. When relay dev is killed, its edges end.
func TestDevEdges(t *testing.T) {
	t.Parallel()
	p := dev(t, "--edges", "2", "--open-space", "s", "--no-demo", "--websocket", "127.0.0.1:0")
	p.says("kill -9")
	printed := func(re *regexp.Regexp) string { return re.FindStringSubmatch(p.output.String())[1] }
	d := &devEdges{rescue: &rescue{T: t, edges: []*process{p}, heard: make(chan int, 1000)}, web: printed(devHealth)}
	t.Cleanup(func() { d.ended.Store(true) })
	d.connect(printed(devNATS), printed(devUDP), printed(devWeb)+"/dnp")

	d.talk(10)
	for round := range 2 {
		d.killEdge()
		d.talk(20)
		d.goesOn(uint8(round + 2))
		eventually(t, "the edge is back", func() bool {
			h, _ := readiness(t, d.web)
			return h.Ready && len(h.Missing) == 0
		})
	}

	d.ended.Store(true)
	metrics := devEdge.FindAllStringSubmatch(p.output.String(), -1)
	if len(metrics) != 2 {
		t.Fatalf("relay dev names %d edges:\n%s", len(metrics), p.output)
	}
	for _, m := range metrics {
		if !reached(m[2]) {
			t.Errorf("%s does not answer at %s", m[1], m[2])
		}
	}
	p.kill()
	for _, m := range metrics {
		eventually(t, m[1]+" ends with relay dev", func() bool { return !reached(m[2]) })
	}
}

func reached(url string) bool {
	answer, err := http.Get(url)
	return err == nil && answer.Body.Close() == nil
}

// devEdges are the clients of relay dev with two edges, and a game server.
type devEdges struct {
	*rescue
	web      string // where its health is
	space    *publisher.Space
	browser  *client.Client // at the edge of player, when both have connected
	clients  []string       // their names
	tower    *client.State  // of browser
	towerIDs [2]wire.LinkID
}

// connect connects the game server, the player, and a client by WebSocket at the same edge: the kernel chooses it.
func (d *devEdges) connect(natsURL, udp, web string) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	nc, err := nats.Connect(natsURL)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(nc.Close)
	d.nc = nc
	p, err := publisher.Connect(ctx, publisher.Config{Conn: nc})
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(p.Close)
	if d.space, err = p.Space("s"); err != nil {
		d.Fatal(err)
	}
	d.publish(1)
	d.listen()
	patient := dnptest.Cpp()
	patient.GiveUp = patience
	d.player = runClient(d.T, netip.MustParseAddrPort(udp), patient, dnptest.App{Closed: func(reason string) {
		if !d.ended.Load() {
			d.Errorf("the client by UDP was disconnected: %s", reason)
		}
	}})
	player := d.arrives(ctx)
	d.client = player.Client
	for {
		if d.browser, err = client.Dial(ctx, web, client.Config{}); err != nil {
			d.Fatal(err)
		}
		d.Cleanup(func() { _ = d.browser.Close() })
		if d.arrives(ctx).Edge == player.Edge {
			break
		}
		_ = d.browser.Close() // its name stays among the clients, so that it is not taken for the next one
	}
	if d.tower, err = d.browser.Await(ctx, "tower"); err != nil {
		d.Fatal(err)
	}
	d.towerIDs = d.ids(1)
}

// arrives returns the client that is not among the clients yet.
func (d *devEdges) arrives(ctx context.Context) (c publisher.Client) {
	d.Helper()
	eventually(d.T, "a client is in the space", func() bool {
		list, err := d.space.Who(ctx)
		i := slices.IndexFunc(list, func(c publisher.Client) bool { return !slices.Contains(d.clients, c.Client) })
		if err != nil || i < 0 {
			return false
		}
		c = list[i]
		d.clients = append(d.clients, c.Client)
		return true
	})
	return c
}

// publish gives the tower so many hit points.
func (d *devEdges) publish(hp uint8) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	if _, err := d.space.Publish(ctx, publisher.Put{Key: "tower", Values: []publisher.Value{{Name: "hp", Type: "uint8", Value: hp}}}); err != nil {
		d.Fatal(err)
	}
}

// ids waits until both clients see that the tower has so many hit points, and returns the LinkIds by which they do.
func (d *devEdges) ids(hp uint8) (ids [2]wire.LinkID) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	err := d.player.Until(ctx, func(c *dnptest.Client) bool {
		if l := c.LinkNamed("tower"); l != nil {
			ids[0] = l.ID
		}
		return string(c.Value("tower", 0)) == string([]byte{hp})
	})
	if err != nil {
		d.Fatalf("the client by UDP does not see %d hit points: %v", hp, err)
	}
	if err := d.browser.Until(ctx, func() bool { return fmt.Sprint(d.tower.At(0)) == fmt.Sprint(hp) }); err != nil {
		d.Fatalf("the client by WebSocket does not see %d hit points: %v", hp, err)
	}
	ids[1] = wire.LinkID(d.tower.ID())
	return ids
}

// killEdge kills the edge of the player.
func (d *devEdges) killEdge() {
	d.Helper()
	started := regexp.MustCompile(`edge started" edge=` + d.edgeOf(d.client) + ` process=(\d+)`).FindAllStringSubmatch(d.edges[0].output.String(), -1)
	pid, err := strconv.Atoi(started[len(started)-1][1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// edgeOf waits until one edge says that it has a client.
func (d *devEdges) edgeOf(name string) (edge string) {
	d.Helper()
	eventually(d.T, "an edge has "+name, func() bool {
		ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
		defer cancel()
		list, err := d.space.Who(ctx)
		i := slices.IndexFunc(list, func(c publisher.Client) bool { return c.Client == name })
		if err != nil || i < 0 {
			return false
		}
		edge = list[i].Edge
		return true
	})
	return edge
}

// goesOn gives the tower other hit points, which both clients see by the links that they had.
func (d *devEdges) goesOn(hp uint8) {
	d.Helper()
	d.publish(hp)
	if ids := d.ids(hp); ids != d.towerIDs || !d.tower.Linked() {
		d.Errorf("the clients see the tower by the LinkIds %v, want %v as before", ids, d.towerIDs)
	}
}
