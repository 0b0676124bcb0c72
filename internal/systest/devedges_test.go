package systest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ws "github.com/coder/websocket"
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
	t.Cleanup(func() {
		d.ended.Store(true)
		if t.Failed() {
			t.Log(p.output)
		}
	})
	d.connect(printed(devNATS), netip.MustParseAddrPort(printed(devUDP)), printed(devWeb)+"/dnp")

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
	*rescue         // with the client by UDP
	web      string // where the health of relay dev is
	space    *publisher.Space
	browser  *dnptest.Peer // at the edge of player, when both have connected
	clients  []string      // their names, and those of clients at the other edge
	towerIDs [2]wire.LinkID
}

// connect connects the game server, the player, and a client by WebSocket at the same edge: the kernel chooses it.
func (d *devEdges) connect(natsURL string, udp netip.AddrPort, web string) {
	d.Helper()
	var err error
	if d.nc, err = nats.Connect(natsURL); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(d.nc.Close)
	p, err := publisher.Connect(d.Context(), publisher.Config{Conn: d.nc})
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(p.Close)
	if d.space, err = p.Space("s"); err != nil {
		d.Fatal(err)
	}
	d.publish(1)
	d.listen()
	var player, browser publisher.Client
	d.player, player = d.play(udp)
	d.client = player.Client
	for player.Edge != browser.Edge {
		d.browser, browser = d.play(d.bridge(web))
	}
	d.towerIDs = d.ids(1)
}

// play connects a client, which must stay connected. It is as patient as the test: the machine may be slow.
func (d *devEdges) play(at netip.AddrPort) (*dnptest.Peer, publisher.Client) {
	d.Helper()
	patient := dnptest.Cpp()
	patient.GiveUp = patience
	peer := runClient(d.T, at, patient, dnptest.App{Closed: func(reason string) {
		if !d.ended.Load() {
			d.Errorf("a client was disconnected: %s", reason)
		}
	}})
	c := d.await(func(c publisher.Client) bool { return !slices.Contains(d.clients, c.Client) })
	d.clients = append(d.clients, c.Client)
	return peer, c
}

// await waits until edges name a client.
func (d *devEdges) await(is func(publisher.Client) bool) (found publisher.Client) {
	d.Helper()
	eventually(d.T, "edges name the client", func() bool {
		list, err := d.space.Who(d.Context())
		i := slices.IndexFunc(list, is)
		if err != nil || i < 0 {
			return false
		}
		found = list[i]
		return true
	})
	return found
}

// bridge returns the address of a program that sends what comes by UDP from one client over a WebSocket, and makes
// another one with the token of the session when that ends, as a browser does.
func (d *devEdges) bridge(web string) netip.AddrPort {
	d.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		d.Fatal(err)
	}
	ctx, stop := context.WithCancel(d.Context())
	var client atomic.Pointer[netip.AddrPort]
	var carrier atomic.Pointer[ws.Conn]
	var running sync.WaitGroup
	d.Cleanup(func() {
		stop()
		_ = socket.Close()
		running.Wait()
	})
	running.Go(func() {
		p := make([]byte, 1<<16)
		for {
			n, from, err := socket.ReadFromUDPAddrPort(p)
			if err != nil {
				return
			}
			if begins(p[:n]) {
				client.Store(&from)
			}
			if to := client.Load(); to == nil || *to != from {
				continue // an edge of another test, for a client that had this port before
			}
			if c := carrier.Load(); c != nil {
				_ = c.Write(ctx, ws.MessageBinary, p[:n]) // what is lost, the client repeats
			}
		}
	})
	running.Go(func() {
		for token := ""; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) { // an edge may refuse
			token = carry(ctx, web, token, &carrier, func(p []byte) {
				if to := client.Load(); to != nil {
					_, _ = socket.WriteToUDPAddrPort(p, *to)
				}
			})
		}
	})
	return socket.LocalAddr().(*net.UDPAddr).AddrPort()
}

// carry opens a WebSocket to a session, and gives its datagrams to receive until it ends. It returns the token of the
// session.
func carry(ctx context.Context, web, token string, carrier *atomic.Pointer[ws.Conn], receive func([]byte)) string {
	offer := []string{"dnp.v1"}
	if token != "" {
		offer = append(offer, "dnp.resume."+token)
	}
	c, _, err := ws.Dial(ctx, web, &ws.DialOptions{Subprotocols: offer})
	if err != nil {
		return token
	}
	defer c.CloseNow()
	var greeting struct{ Token string }
	if _, text, err := c.Read(ctx); err != nil || json.Unmarshal(text, &greeting) != nil {
		return token
	}
	carrier.Store(c)
	for {
		_, p, err := c.Read(ctx)
		if err != nil {
			return greeting.Token
		}
		receive(p)
	}
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
	for i, peer := range []*dnptest.Peer{d.player, d.browser} {
		err := peer.Until(ctx, func(c *dnptest.Client) bool {
			if string(c.Value("tower", 0)) != string([]byte{hp}) {
				return false
			}
			ids[i] = c.LinkNamed("tower").ID
			return true
		})
		if err != nil {
			d.Fatalf("client %d does not see %d hit points: %v", i+1, hp, err)
		}
	}
	return ids
}

// killEdge kills the edge of the player.
func (d *devEdges) killEdge() {
	d.Helper()
	edge := d.await(func(c publisher.Client) bool { return c.Client == d.client }).Edge
	started := regexp.MustCompile(`edge started" edge=`+edge+` process=(\d+)`).FindAllStringSubmatch(d.edges[0].output.String(), -1)
	pid, err := strconv.Atoi(started[len(started)-1][1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// goesOn gives the tower other hit points, which both clients see by the links that they had.
func (d *devEdges) goesOn(hp uint8) {
	d.Helper()
	d.publish(hp)
	if ids := d.ids(hp); ids != d.towerIDs {
		d.Errorf("the clients see the tower by the LinkIds %v, want %v as before", ids, d.towerIDs)
	}
}
