package compose

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/examples/web"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/console"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/subject"
	"golang.org/x/sync/errgroup"
)

// A DevCommand is the command that runs everything in one process, with its flags.
type DevCommand struct {
	config.Dev      `group:"Development"`
	config.Edge     `group:"Edge" set:"listen=udp://127.0.0.1:3413"`
	config.Web      `group:"Edge" set:"web=127.0.0.1:3480"`
	config.LLUDP    `group:"Edge" set:"lludp=127.0.0.1:9000"`
	config.Variants `group:"Edge" set:"variant=127.0.0.1:3415"`
	config.Sessions `group:"Edge"`
	config.Sharding `group:"Relay"`
	config.Relay    `group:"Relay"`
	config.Admin    `group:"Health, metrics and logs" set:"http=127.0.0.1:8413"`
	config.Logging  `group:"Health, metrics and logs"`
}

// Problems lists what is wrong with the files of the flags, and with the environment.
func (c *DevCommand) Problems() (list config.Problems) {
	clientProblems(&list, &c.Edge, &c.Web)
	processProblems(&list, &c.Admin)
	switch {
	case c.Edges > 1:
		edgeProblem(&list)
	case c.Redis != "":
		list.Add("--redis", "needs --edges 2 or more")
	}
	return list
}

// A dev is everything that relay dev runs.
type dev struct {
	node
	relay   *relay.Relay
	edge    *edge.Edge       // nil with --edges
	edges   *edges           // nil without
	addrs   []netip.AddrPort // of DNP clients
	web     *webListeners
	logs    *Durable
	demo    *demo
	player  *player
	console net.Listener // nil without --console
	page    *console.Server
}

// Run serves until ctx ends.
func (c *DevCommand) Run(ctx context.Context, log *slog.Logger) error {
	d := &dev{}
	if err := d.openTelemetry("relay", config.DefaultNode(), c.Shards, log); err != nil {
		return err
	}
	defer d.close()
	defer func() {
		if d.edges != nil {
			d.edges.close()
		}
	}()
	if err := d.start(ctx, c); err != nil {
		return err
	}
	if slices.ContainsFunc(d.addrs, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) && c.Auth == "open" {
		log.Warn(openWarning)
	}
	return d.run(ctx, func() { d.tell(os.Stdout, c) })
}

// start opens all ports, so that a port in use is reported before anything runs.
func (d *dev) start(ctx context.Context, c *DevCommand) (err error) {
	d.embedded, err = natsembed.Start(natsembed.Config{
		Listen: c.NATSListen, Folder: c.Data, Mappings: d.subjects.Mappings(c.Shards), Log: d.log,
	})
	if errors.Is(err, natsembed.ErrInUse) {
		return fmt.Errorf("--nats-listen: %w", err)
	}
	if err != nil {
		return err
	}
	relayBus, err1 := d.connect("relay")
	demoBus, err2 := d.connect("demo")
	consoleBus, err3 := d.connect("console")
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	d.relay, err = relay.New(relay.Config{ // alone, it holds every shard and stores nothing
		Node: d.name, Bus: relayBus, Subjects: d.subjects, Shards: d.shards, Tick: c.Tick, Spaces: c.Spaces, Eye: c.EveryEye(), Log: d.log,
		Epoch: uint64(time.Now().UnixMilli()), Telemetry: d.tel,
	})
	if err != nil {
		return err
	}
	if err = d.relay.Start(); err == nil {
		err = relayBus.Flush(time.Second) // now NATS knows what the relay subscribes to
	}
	if err != nil {
		return err
	}
	open := d.openEdge
	if c.Edges > 1 {
		open = d.openEdges
	}
	health, err := open(ctx, c)
	if err != nil {
		return err
	}
	d.page = console.New(console.Config{Bus: consoleBus, Subjects: d.subjects, Shards: d.shards, Space: c.OpenSpace, Edit: true, Log: d.log})
	if d.console, err = d.listenConsole(c.Console); err != nil {
		return err
	}
	if c.Demo {
		d.demo = &demo{bus: demoBus, subjects: d.subjects, space: c.OpenSpace, heard: make(chan [2]float32, walkerKnows)}
		d.player = d.newPlayer(c)
	}
	if err := d.openAdmin(&c.Admin, func() []string { return []string{"edge"} }); err != nil {
		return err
	}
	metrics := slices.Concat(d.web.metrics(), d.relay.Metrics(), d.logs.Metrics())
	if d.edge != nil {
		metrics = append(metrics, d.edge.Metrics()...)
	}
	return d.show(&c.Admin, metrics, func() telemetry.Health {
		h := health()
		h.Ready = h.Ready && d.relay.Ready()
		return h
	}, nil, d.relay)
}

// connect makes a connection to NATS, which close closes.
func (d *dev) connect(name string) (*natsbus.Bus, error) {
	b, err := natsbus.Connect(natsbus.Config{InProcess: d.embedded, Name: name})
	if err == nil {
		d.add(b)
	}
	return b, err
}

// openEdge opens the edge of this process, and returns its health.
func (d *dev) openEdge(ctx context.Context, c *DevCommand) (health func() telemetry.Health, err error) {
	bus, err := d.connect("edge")
	if err != nil {
		return nil, err
	}
	d.logs, err = OpenDurable(ctx, &c.Sessions, d.name, func() (*natsbus.Bus, error) { return d.connect("log") }, nil,
		d.subjects, time.Second, d.log)
	if err != nil {
		return nil, err
	}
	drain := c.DrainTimeout
	if d.logs == nil {
		drain = 0 // there is no other edge, which many clients could overload
	}
	flags := webFlags{Web: &c.Web, Variants: &c.Variants, Viewers: &c.LLUDP, Edge: &c.Edge, Dev: true}
	if d.edge, err = newEdge(&d.node, flags, bus, d.logs.Edge(nil), drain, nil); err != nil {
		return nil, err
	}
	d.addrs = d.edge.Addrs()
	d.web, err = openWeb(flags, d.edge, d.logs.key(d.name), web.Files, d.log)
	return func() telemetry.Health { return edgeHealth(d.edge, bus, d.logs) }, err
}

// run runs everything until ctx ends. The edge ends first, so that the relay and NATS
// carry its last messages.
func (d *dev) run(ctx context.Context, tell func()) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after, stop := context.WithCancel(context.Background())
	var lasting errgroup.Group
	lasting.Go(func() error {
		defer cancel() // nothing works without the relay
		return d.relay.Run(after)
	})
	lasting.Go(func() error {
		d.logs.Run(after)
		return nil
	})
	lasting.Go(func() error {
		defer cancel()
		return d.web.run(after)
	})
	if d.edges != nil {
		group.Go(func() error { return d.edges.run(ctx, tell) })
	} else {
		tell()
		group.Go(func() error { return d.edge.Run(ctx) })
	}
	group.Go(func() error { return d.logs.Maintain(ctx) })
	group.Go(func() error { return d.admin.Run(ctx) })
	if d.console != nil {
		group.Go(func() error { return d.page.Serve(ctx, d.console) })
	}
	if d.demo != nil {
		group.Go(func() error { return d.demo.run(ctx) })
	}
	if d.demo != nil && d.console != nil { // where one sees the field
		group.Go(func() error { return d.demo.runField(ctx) })
	}
	if d.player != nil {
		group.Go(func() error { return d.player.run(ctx) })
	}
	err := group.Wait()
	stop()
	return cmp.Or(err, lasting.Wait())
}

// newPlayer returns the player of the demo; nil without the console that shows it, or if it cannot log in.
func (d *dev) newPlayer(c *DevCommand) *player {
	if d.console == nil || c.Auth != "open" || len(d.addrs) == 0 {
		return nil
	}
	return &player{url: "udp://" + Reachable(d.addrs[0]).String(), profile: c.Listen[0].Profile, heard: d.demo.heard, log: d.log}
}

// Reachable returns an address at which programs on this machine reach a listener.
func Reachable(a netip.AddrPort) netip.AddrPort {
	switch {
	case !a.Addr().Unmap().IsUnspecified():
		return a
	case a.Addr().Is4():
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), a.Port())
}

// tell prints the addresses and what to try next.
func (d *dev) tell(w io.Writer, c *DevCommand) {
	if d.edges == nil {
		fmt.Fprintf(w, "dnprelay: everything in one process\n")
	} else {
		fmt.Fprintf(w, "dnprelay: everything in one process, and %d edges, each in its own\n", len(d.edges.list))
	}
	for _, a := range d.addrs {
		fmt.Fprintf(w, "  DNP clients   udp://%s\n", a)
	}
	d.web.tell(w)
	if d.edges != nil {
		d.edges.tell(w)
	}
	fmt.Fprintf(w, "  game servers  %s\n", d.embedded.URL())
	if d.console != nil {
		fmt.Fprintf(w, "  console       http://%s\n", d.console.Addr())
	}
	if a := d.admin.Addr(); a != nil {
		fmt.Fprintf(w, "  health        http://%s/readyz and /metrics\n", a)
	}
	watch, nats := Reachable(d.addrs[0]).String(), ""
	if profile := c.Listen[0].Profile; profile != wire.Denetwork {
		watch += " --profile " + profile.String()
	}
	if c.Auth != "open" {
		watch += " --token TOKEN"
	}
	if u := d.embedded.URL(); u != defaultNATS {
		nats = " --nats-url " + u
	}
	fmt.Fprintf(w, `Try in another terminal:
  %[1]s watch %[2]s
  %[1]s publish %[3]s tower hp:float32=93.5%[4]s
  %[1]s events %[3]s%[4]s
`, beside(os.Args[0], "dnpctl"), watch, c.OpenSpace, nats)
	if d.edges != nil {
		d.edges.tellKill(w)
	} else if runtime.GOOS == "linux" {
		fmt.Fprintln(w, "With --edges 2, there are two edges, and the sessions of one that you kill go on at the other.")
	}
}

// defaultNATS is where programs look for NATS by themselves.
const defaultNATS = "nats://127.0.0.1:4222"

// beside returns how a shell finds a program that lies beside the one that was started by name.
func beside(name, program string) string {
	if !strings.Contains(name, "/") { // by PATH
		return program
	}
	return filepath.Dir(name) + "/" + program
}

// devConsole is the default of --console.
const devConsole = "127.0.0.1:8415"

// listenConsole opens the port of the console. If another program has the port that relay dev takes by itself, it
// goes on without; then the listener is nil.
func (d *dev) listenConsole(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, _, err := listenOr(d.log, true, "--console", address, devConsole, func(address string) (net.Listener, error) { return net.Listen("tcp", address) })
	return l, err
}

// demoInterval is how often the demo publishes: the rate of a typical game server.
const demoInterval = 50 * time.Millisecond

// demoPut makes the states of the demo. Clients may write the lamp.
const demoPut = `{"ops":[
 {"op":"put","key":"ball","message":"ball","farewell":"the ball is gone","values":[
  {"name":"pos","type":"vector3f32","value":[0,0,0],"precision":0.001}]},
 {"op":"put","key":"platform","message":"platform","values":[
  {"name":"pos","type":"vector3f32","value":[0,0,0],"precision":0.001},
  {"name":"rot","type":"quaternionf16","value":[0,0,0,1]}]},
 {"op":"put","key":"clock","message":"clock","values":[
  {"name":"seconds","type":"uint32","value":0},
  {"name":"text","type":"string","value":"00:00:00"}]},
 {"op":"put","key":"lamp","message":"lamp","access":"read-write","values":[
  {"name":"on","type":"uint8","value":0},
  {"name":"colour","type":"vector3f32","value":[1,0.8,0.6]}]}
]}`

// A demo is a small game server that publishes JSON, like any program with a NATS client.
type demo struct {
	bus      bus.Bus
	subjects subject.Names
	space    string
	heard    chan [2]float32 // from the player: where it saw itself
}

// run publishes until ctx ends. It makes the states when the relay does not have them
// because it has just started.
func (d *demo) run(ctx context.Context) error {
	start, body := time.Now(), demoPut
	for range turn.Every(ctx, demoInterval) {
		if d.publish(body) {
			body = demoSet(time.Since(start))
		} else {
			body = demoPut
		}
	}
	return nil
}

// publish sends one payload and reports whether the relay applied it.
func (d *demo) publish(body string) bool {
	answer, err := bus.Ask(context.Background(), d.bus, bus.Msg{Subject: d.subjects.Publish(d.space, ""), Data: []byte(body)}, time.Second)
	var a struct{ Error *json.RawMessage }
	return err == nil && json.Unmarshal(answer.Data, &a) == nil && a.Error == nil
}

// demoSet returns the values at time t after the start.
func demoSet(t time.Duration) string {
	s := t.Seconds()
	height := math.Abs(math.Sin(2 * s))
	angle := s / 2
	return fmt.Sprintf(`{"ops":[
 {"op":"set","key":"ball","values":{"pos":[%.4f,%.4f,%.4f]}},
 {"op":"set","key":"platform","values":{"pos":[0,%.4f,0],"rot":[0,%.5f,0,%.5f]}},
 {"op":"set","key":"clock","values":{"seconds":%d,"text":%q}}
]}`, 3*math.Cos(s), height, 3*math.Sin(s), math.Sin(s/3), math.Sin(angle/2), math.Cos(angle/2),
		int(s), time.Now().Format(time.TimeOnly))
}
