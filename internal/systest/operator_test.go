package systest

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var drill = flag.Bool("drill", false, "run TestDrill and TestGrow")

// TestGrow does what deploy/RUNBOOK.md says about the servers of NATS, with a deployment that plays: one server loses the last that it stored, as with
// its power, and becomes three, one of them is lost for good and replaced, the password of the edges changes, and three servers become five, of which two die.
func TestGrow(t *testing.T) {
	if !*drill {
		t.Skip("it takes -drill, because it takes half a minute or more; make drill runs it")
	}
	o := newSite(t, 1, 1, 1)
	o.play()
	o.lastWritesLost()
	o.plays("the NATS server lost what it had stored last")
	o.oneBecomesThree()
	o.plays("three servers have taken the place of one")
	o.lose("n3", "n4")
	o.plays("a server was replaced")
	o.rotateEdge()
	o.plays("the password of the edges has changed")
	o.threeBecomeFive()
	o.plays("two of five servers are dead")
	o.unbroken()
}

// TestDrill is what an operator should have done once before players come: a deployment of three NATS servers, two relays and two edges
// loses its power and starts with slow servers; a space gets back what it had yesterday; a NATS server is lost for good and replaced; the password of the
// edges changes.
func TestDrill(t *testing.T) {
	if !*drill {
		t.Skip("it takes -drill, because it takes a minute or more; make drill runs it")
	}
	o := newSite(t, 3, 2, 2)
	o.play()
	o.dnpctl("backup", filepath.Join(o.dir, "yesterday"))
	yesterday := o.value
	o.play()
	o.powerCut()
	o.plays("the power was cut")
	o.restoreSpace("space0", yesterday)
	o.plays("a space had the values of yesterday")
	o.lose("n3", "n4")
	o.plays("a server was replaced")
	o.rotateEdge()
	o.plays("the password of the edges has changed")
	o.unbroken()
}

// A site is a deployment by hand, of processes on this machine, as deploy/README.md and deploy/nats/README.md describe it.
type site struct {
	*testing.T
	dir      string
	servers  map[string]*siteServer
	copies   int // of session logs
	relays   []*process
	edges    []*process
	nodes    map[string][]string // flags by name, to start a node again
	webs     map[string]string   // addresses of --http
	udp      []netip.AddrPort
	listens  []string // addresses of five NATS servers, for nodes
	routes   []string
	game     *nats.Conn
	subjects subject.Names
	players  []*sitePlayer
	value    int // that all states have
	said     int // messages of players that were acknowledged
	heard    map[string]bool
}

// A siteServer is a NATS server, with the folder of its streams and its variables.
type siteServer struct {
	*process
	env   []string
	store string
}

// A sitePlayer is a client that remembers whether it was disconnected.
type sitePlayer struct {
	*dnptest.Peer
	broken atomic.Pointer[string]
}

// siteSpaces is the number of spaces with a state.
const siteSpaces = 12

func newSite(t *testing.T, servers, relays, edges int) *site {
	o := &site{T: t, dir: t.TempDir(), servers: map[string]*siteServer{}, copies: servers, nodes: map[string][]string{}, webs: map[string]string{}, heard: map[string]bool{}}
	if raceDetector {
		t.Skip("it starts programs, in which the race detector is not; make test runs it")
	}
	if err := os.CopyFS(o.dir, os.DirFS(natsFolder)); err != nil {
		t.Fatal(err)
	}
	o.listens, o.routes = freePorts(t, 5), freePorts(t, 5)
	if servers == 1 {
		o.edit("nats-server.conf", `(?s)\ncluster \{.*?\n\}\n`, "\n")
	}
	for i := range servers {
		o.startServer(fmt.Sprint("n", i+1), i, servers)
	}
	o.awaitServers(servers)
	names, gossip := []string{}, freePorts(t, relays+edges)
	for i := range relays {
		names = append(names, fmt.Sprint("r", i+1))
	}
	for i := range edges {
		names = append(names, fmt.Sprint("e", i+1))
	}
	key, webs := keyFile(t, 0x52), freePorts(t, len(names))
	redis, client := "redis://"+miniredis.RunT(t).Addr(), freePorts(t, edges)
	for i, name := range names {
		role := map[byte]string{'r': "relay", 'e': "edge"}[name[0]]
		o.webs[name] = webs[i]
		o.write(name+".login", role+":secret-of-"+role)
		flags := []string{role, "serve", "--node", name, "--nats-url", "nats://" + strings.Join(o.listens, ",nats://"), "--nats-creds", filepath.Join(o.dir, name+".login"), "--http", webs[i],
			"--gossip-bind", gossip[i], "--gossip-join", strings.Join(gossip, ","), "--gossip-key-file", key}
		if role == "relay" {
			flags = append(flags, "--replicas", fmt.Sprint(servers))
		} else {
			at := client[i-relays]
			o.udp = append(o.udp, netip.MustParseAddrPort(at))
			flags = append(flags, "--listen", "udp://"+at, "--open-space", "space0", "--session-durability", "log", "--session-replicas", fmt.Sprint(servers), "--redis", redis, "--forward-listen", "127.0.0.1:0")
		}
		o.nodes[name] = flags
	}
	o.startNodes()
	o.ready()
	o.game = o.as("publisher")
	return o
}

func (o *site) write(name, text string) {
	o.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text+"\n"), 0o600); err != nil {
		o.Fatal(err)
	}
}

// edit changes a file of the configuration of all servers.
func (o *site) edit(name, pattern, text string) {
	o.Helper()
	before, err := os.ReadFile(filepath.Join(o.dir, name))
	if err != nil {
		o.Fatal(err)
	}
	after := regexp.MustCompile(pattern).ReplaceAllString(string(before), text)
	if after == string(before) {
		o.Fatalf("%s has no %q:\n%s", name, pattern, before)
	}
	o.write(name, after)
}

// startServer starts a NATS server at the i-th address.
func (o *site) startServer(name string, i, of int) {
	o.Helper()
	s := o.servers[name]
	if s == nil {
		s = &siteServer{store: natstest.Dir(o.T)}
		o.servers[name] = s
	}
	var routes []string
	for _, r := range o.routes[:max(of, 3)] {
		routes = append(routes, "nats://"+r)
	}
	s.env = append(natsEnv(name, o.listens[i], o.routes[i], routes, s.store), fmt.Sprint("NATS_LOG_COPY=dnprelay-log-", i+1))
	for _, user := range []string{"relay", "edge", "publisher", "observer", "admin", "sys"} {
		s.env = append(s.env, "NATS_"+strings.ToUpper(user)+"_PASSWORD=secret-of-"+user)
	}
	o.startAgain(name)
}

func (o *site) startAgain(name string) {
	o.Helper()
	self, err := os.Executable()
	if err != nil {
		o.Fatal(err)
	}
	s := o.servers[name]
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), natsServerEnv+"="+filepath.Join(o.dir, "secure.conf")), s.env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		o.Fatal(err)
	}
	s.process = startCommand(o.T, cmd)
	o.Cleanup(func() { _ = stdin.Close() })
}

// reload has servers read their configuration again, one after the other, as `nats-server --signal reload` does.
func (o *site) reload(names ...string) {
	o.Helper()
	for _, name := range names {
		s := o.servers[name]
		n := strings.Count(s.output.String(), "Reloaded server configuration")
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			o.Fatal(err)
		}
		eventually(o.T, name+" has read its configuration", func() bool {
			if strings.Contains(s.output.String(), "Failed to reload") {
				o.Fatal(s.output)
			}
			return strings.Count(s.output.String(), "Reloaded server configuration") > n
		})
	}
}

// awaitServers waits until this many servers are a cluster with a leader.
func (o *site) awaitServers(n int) {
	o.Helper()
	if n == 1 {
		o.as("admin")
		return
	}
	eventually(o.T, fmt.Sprintf("%d NATS servers are a cluster", n), func() bool {
		nc, err := o.connect("sys")
		if err != nil {
			return false
		}
		defer nc.Close()
		m, err := nc.Request("$SYS.REQ.SERVER.PING.JSZ", []byte(`{"leader_only":true}`), time.Second)
		var jsz struct {
			Data struct {
				Meta struct {
					Size     int                               `json:"cluster_size"`
					Replicas []struct{ Current, Offline bool } `json:"replicas"`
				} `json:"meta_cluster"`
			} `json:"data"`
		}
		if err != nil || json.Unmarshal(m.Data, &jsz) != nil {
			return false
		}
		meta := jsz.Data.Meta
		current := 1
		for _, r := range meta.Replicas {
			if r.Current && !r.Offline {
				current++
			}
		}
		return current == n
	})
}

func (o *site) connect(user string) (*nats.Conn, error) {
	return nats.Connect("nats://"+strings.Join(o.listens, ",nats://"), nats.UserInfo(user, "secret-of-"+user), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(50*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

// as returns a connection of a user, until the end of the test.
func (o *site) as(user string) (nc *nats.Conn) {
	o.Helper()
	eventually(o.T, user+" is connected", func() bool {
		var err error
		nc, err = o.connect(user)
		return err == nil
	})
	o.Cleanup(nc.Close)
	return nc
}

func (o *site) startNodes() {
	o.relays, o.edges = nil, nil
	for _, name := range slices.Sorted(maps.Keys(o.nodes)) {
		p := start(o.T, o.nodes[name][0], o.nodes[name][1:]...)
		if name[0] == 'r' {
			o.relays = append(o.relays, p)
		} else {
			o.edges = append(o.edges, p)
		}
	}
}

// ready waits until all nodes are ready and miss nothing.
func (o *site) ready() {
	o.Helper()
	for name, web := range o.webs {
		o.nodeReady(name, web)
	}
}

func (o *site) nodeReady(name, web string) {
	o.Helper()
	last := ""
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		h, err := askReady(web)
		if err == nil && h.Ready && len(h.Missing) == 0 {
			return
		}
		if last = fmt.Sprint(h, err); time.Now().After(end) {
			o.printNodes()
			o.Fatalf("%s is not ready: %s", name, last)
		}
	}
}

// printNodes prints what the nodes said.
func (o *site) printNodes() {
	for _, p := range slices.Concat(o.relays, o.edges) {
		o.Logf("%s\n%s", p.cmd.Args, p.output)
	}
}

// askReady returns what /readyz of a node says, which may not run.
func askReady(web string) (h telemetry.Health, err error) {
	answer, err := http.Get("http://" + web + "/readyz")
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	return h, json.NewDecoder(answer.Body).Decode(&h)
}

// begin starts a relay with this number of --replicas.
func (o *site) begin(name, replicas string) *process {
	o.Helper()
	flags := o.nodes[name]
	flags[slices.Index(flags, "--replicas")+1] = replicas
	return start(o.T, flags[0], flags[1:]...)
}

// connectPlayers gives each edge two players.
func (o *site) connectPlayers() {
	o.Helper()
	o.players = nil
	for i := range 2 * len(o.udp) {
		p := &sitePlayer{}
		p.Peer = runClient(o.T, o.udp[i/2], dnptest.Cpp(), dnptest.App{Closed: func(reason string) { p.broken.CompareAndSwap(nil, &reason) }})
		o.players = append(o.players, p)
	}
	o.see()
}

// play gives every state the next value, and has every player send a message. All that is acknowledged at the end.
func (o *site) play() {
	o.Helper()
	o.put()
	for i := range o.players {
		if err := o.say(i); err != nil {
			o.printNodes()
			o.Fatal(err)
		}
	}
	o.stored()
}

// put gives every state the next value, which the players see.
func (o *site) put() {
	o.Helper()
	o.value++
	for i := range siteSpaces {
		body := fmt.Sprintf(`{"op":"put","key":"k","values":[{"name":"n","type":"uint16","value":%d}]}`, o.value)
		o.insist(o.subjects.Publish(fmt.Sprint("space", i), ""), body)
	}
	if o.players == nil {
		o.connectPlayers()
	}
	o.see()
}

// stored waits until all values are stored.
func (o *site) stored() {
	o.Helper()
	eventually(o.T, "all values are stored", func() bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(o.webs)), func(name string) bool { return name[0] == 'r' && shown(o.T, o.webs[name], "dnp_relay_unstored") != 0 })
	})
}

// say has a player send a message, which an edge acknowledges.
func (o *site) say(player int) error {
	p := o.players[player]
	o.said++
	text := fmt.Sprint("message ", o.said)
	if err := p.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, []byte(text)) }); err != nil {
		return err
	}
	return o.until(p, "its message is acknowledged", func(c *dnptest.Client) bool { return c.Queued() == 0 })
}

func (o *site) until(p *sitePlayer, what string, ok func(c *dnptest.Client) bool) error {
	ctx, cancel := context.WithTimeout(o.Context(), patience)
	defer cancel()
	if err := p.Until(ctx, func(c *dnptest.Client) bool { return p.broken.Load() != nil || ok(c) }); err != nil || p.broken.Load() != nil {
		reason := "not disconnected"
		if r := p.broken.Load(); r != nil {
			reason = *r
		}
		return fmt.Errorf("a player waits until %s: %v, %q", what, err, reason)
	}
	return nil
}

// see waits until every player sees the newest value.
func (o *site) see() {
	o.Helper()
	for _, p := range o.players {
		if err := o.until(p, "it sees the newest value", func(c *dnptest.Client) bool {
			return string(c.Value("k", 0)) == string(binary.LittleEndian.AppendUint16(nil, uint16(o.value)))
		}); err != nil {
			o.Fatal(err)
		}
	}
}

// insist sends a request as the game server until a relay answers it.
func (o *site) insist(subject, body string) (answer string) {
	o.Helper()
	eventually(o.T, "a relay answers "+subject, func() bool {
		m, err := o.game.Request(subject, []byte(body), time.Second)
		if err == nil {
			answer = string(m.Data)
		}
		return err == nil && !strings.Contains(answer, `"error"`)
	})
	return answer
}

// plays requires that everything that was acknowledged is there, and that the deployment works.
func (o *site) plays(after string) {
	o.Helper()
	for i := range siteSpaces {
		if a := o.insist(o.subjects.Get(fmt.Sprint("space", i), ""), ""); !strings.Contains(a, fmt.Sprintf(`"value":%d`, o.value)) {
			o.Errorf("after %s space%d is %s, want the value %d", after, i, a, o.value)
		}
	}
	o.see()
	var err error
	for end := time.Now().Add(patience); len(o.heard) < o.said || err != nil; err = o.hear() {
		if time.Now().After(end) {
			o.Fatalf("after %s the game server hears %d of %d messages of players that were acknowledged: %v", after, len(o.heard), o.said, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	o.play()
	o.Logf("%s: %d values and %d messages are there", after, siteSpaces, len(o.heard))
}

// hear reads messages of players from where the game server stopped reading.
func (o *site) hear() error {
	ctx, cancel := context.WithTimeout(o.Context(), 5*time.Second) // an election loses requests
	defer cancel()
	js, err := jetstream.New(o.game)
	if err != nil {
		return err
	}
	c, err := js.CreateOrUpdateConsumer(ctx, "DNP_FROM", jetstream.ConsumerConfig{Durable: "game", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return err
	}
	batch, err := c.Fetch(max(o.said-len(o.heard), 1), jetstream.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		o.heard[string(m.Data())] = true
		if err := m.DoubleAck(ctx); err != nil {
			return err
		}
	}
	return batch.Error()
}

// unbroken requires that no player was disconnected.
func (o *site) unbroken() {
	for i, p := range o.players {
		if reason := p.broken.Load(); reason != nil {
			o.Errorf("player %d was disconnected: %s", i, *reason)
		}
	}
}

// streams returns the streams of the deployment.
func (o *site) streams(js jetstream.JetStream) (all []*jetstream.StreamInfo) {
	list := js.ListStreams(o.Context())
	for s := range list.Info() {
		all = append(all, s)
	}
	return all
}

// awaitCopies waits until every stream is complete on as many servers as it should be on, among which no other server is.
func (o *site) awaitCopies(js jetstream.JetStream, gone string) {
	o.Helper()
	sys, last := o.as("sys"), ""
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		last = ""
		all := o.streams(js)
		for _, s := range all {
			if s.Cluster == nil || s.Cluster.Leader == "" || s.Cluster.Leader == gone || len(s.Cluster.Replicas) != s.Config.Replicas-1 ||
				slices.ContainsFunc(s.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline || p.Name == gone }) {
				last += fmt.Sprintf("%s on %+v\n", s.Config.Name, s.Cluster)
				continue
			}
			last += o.consumersWithout(js, s)
		}
		last += o.unhealthy(sys)
		if last == "" && len(all) > 0 {
			return
		}
		if time.Now().After(end) {
			o.Fatalf("of %d streams, not on all servers:\n%s", len(all), last)
		}
	}
}

// unhealthy returns what servers say that are not healthy. A server counts as current for a stream when it has the entries that the leader sends, even
// while it still fetches the messages that were there before: the stream is lost with its leader then.
func (o *site) unhealthy(sys *nats.Conn) (list string) {
	inbox, err := sys.SubscribeSync(sys.NewInbox())
	if err != nil {
		o.Fatal(err)
	}
	defer func() { _ = inbox.Unsubscribe() }()
	if err := sys.PublishRequest("$SYS.REQ.SERVER.PING.HEALTHZ", inbox.Subject, nil); err != nil {
		return err.Error()
	}
	for range o.servers {
		m, err := inbox.NextMsg(2 * time.Second)
		if err != nil {
			return list + err.Error()
		}
		if !strings.Contains(string(m.Data), `"status":"ok"`) {
			list += string(m.Data) + "\n"
		}
	}
	return list
}

// dnpctl runs a command as user admin.
func (o *site) dnpctl(args ...string) {
	o.Helper()
	o.write("admin.login", "admin:secret-of-admin")
	start(o.T, "dnpctl", append(args, "--nats-url", "nats://"+strings.Join(o.listens, ",nats://"), "--nats-creds", filepath.Join(o.dir, "admin.login"))...).ends(0)
}

// restoreSpace is "A space from yesterday", for the space of the players, which had a value. The others keep theirs.
func (o *site) restoreSpace(space string, value int) {
	o.Helper()
	now := o.value
	o.dnpctl("restore", filepath.Join(o.dir, "yesterday"), space, "--replace")
	o.value = value
	o.see()
	o.value = now
	for i := range siteSpaces {
		want := now
		if fmt.Sprint("space", i) == space {
			want = value
		}
		if a := o.insist(o.subjects.Get(fmt.Sprint("space", i), ""), ""); !strings.Contains(a, fmt.Sprintf(`"value":%d`, want)) {
			o.Errorf("after the restore of %s space%d is %s, want the value %d", space, i, a, want)
		}
	}
	o.play()
}

// consumersWithout names the consumers of a stream that are not complete on as many servers as they should be on. One that keeps its former servers
// loses its quorum with them.
func (o *site) consumersWithout(js jetstream.JetStream, of *jetstream.StreamInfo) (list string) {
	stream, err := js.Stream(o.Context(), of.Config.Name)
	if err != nil {
		return err.Error()
	}
	consumers := stream.ListConsumers(o.Context())
	for c := range consumers.Info() {
		want := cmp.Or(c.Config.Replicas, of.Config.Replicas)
		if c.Cluster == nil || len(c.Cluster.Replicas) != want-1 || slices.ContainsFunc(c.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline }) {
			list += fmt.Sprintf("consumer %s of %s on %+v, want %d servers\n", c.Name, of.Config.Name, c.Cluster, want)
		}
	}
	if err := consumers.Err(); err != nil {
		list += err.Error()
	}
	return list
}

// lastWritesLost gives the only NATS server back what it had stored before the last values, which the relay then stores again.
func (o *site) lastWritesLost() {
	o.Helper()
	n1, before := o.servers["n1"], filepath.Join(o.dir, "before")
	n1.term()
	n1.ends(0)
	if err := os.CopyFS(before, os.DirFS(n1.store)); err != nil {
		o.Fatal(err)
	}
	o.startAgain("n1")
	o.ready()
	began := time.Now()
	o.put()
	o.storedSince(began)
	n1.kill()
	if err := errors.Join(os.RemoveAll(n1.store), os.CopyFS(n1.store, os.DirFS(before))); err != nil {
		o.Fatal(err)
	}
	again := time.Now()
	o.startAgain("n1")
	eventually(o.T, "the relay notices in each of its four streams", func() bool {
		return strings.Count(o.relays[0].output.String(), "lacks a write that it had confirmed") >= 4
	})
	o.storedSince(again)
	o.relays[0].kill()
	o.relays[0] = o.begin("r1", "1")
	o.ready()
}

// storedSince waits until every value is stored in a message that is younger than a time.
func (o *site) storedSince(at time.Time) {
	o.Helper()
	js := jetStream(o.T, o.as("admin"))
	for i := range siteSpaces {
		space := fmt.Sprint("space", i)
		n := cluster.Shard(space, 64)
		eventually(o.T, "the value of "+space+" is stored", func() bool {
			stream, err := js.Stream(o.Context(), natslease.StreamName(n%4))
			if err != nil {
				return false
			}
			m, err := stream.GetLastMsgForSubject(o.Context(), strings.TrimSuffix(o.subjects.StoreKeyframe(n, space, 0), "0")+"*")
			return err == nil && m.Time.After(at)
		})
	}
}

// closed are lines of secure.conf that keep nodes and game servers away: a variable of a file counts, not that of the environment.
const closed = "NATS_RELAY_PASSWORD: closed\nNATS_EDGE_PASSWORD: closed\nNATS_PUBLISHER_PASSWORD: closed\n"

// oneBecomesThree is "One NATS server becomes three".
func (o *site) oneBecomesThree() {
	for _, r := range o.relays {
		r.term()
		r.ends(0)
	}
	o.edit("secure.conf", `^`, closed)
	o.reload("n1")
	js := jetStream(o.T, o.as("admin"))
	var saved []*natstest.Backup
	for _, s := range o.streams(js) {
		saved = append(saved, natstest.BackUp(o, js.Conn(), s.Config.Name))
	}
	n1 := o.servers["n1"]
	n1.term()
	n1.ends(0)
	if err := os.Rename(n1.store, n1.store+".former"); err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { _ = os.RemoveAll(n1.store + ".former") })
	conf, err := os.ReadFile(filepath.Join(natsFolder, "nats-server.conf")) // with its block cluster
	if err != nil {
		o.Fatal(err)
	}
	o.write("nats-server.conf", string(conf))
	for i, name := range []string{"n1", "n2", "n3"} {
		o.startServer(name, i, 3)
	}
	o.awaitServers(3)
	js = jetStream(o.T, o.as("admin"))
	for _, b := range saved {
		b.Restore(o, js.Conn(), 3)
	}
	o.awaitCopies(js, "")
	o.edit("secure.conf", closed, "")
	o.reload("n1", "n2", "n3")
	for i := range o.relays {
		o.relays[i] = o.begin(fmt.Sprint("r", i+1), "3")
	}
	o.ready()
}

// lose is "A NATS server is lost for good", replaced by one with another name.
func (o *site) lose(lost, next string) {
	s := o.servers[lost]
	delete(o.servers, lost)
	s.kill()
	i := slices.Index(o.listens, strings.TrimPrefix(s.env[1], "NATS_LISTEN="))
	o.startServer(next, i, 3)
	js := jetStream(o.T, o.as("admin"))
	if o.copies == 3 {
		for g := range 4 {
			ctx, cancel := context.WithTimeout(o.Context(), 5*time.Second)
			_ = js.DeleteStream(ctx, fmt.Sprintf("DNP_LOG_C%d_%d", i+1, g)) // may time out, and happens all the same
			cancel()
		}
	}
	o.awaitServers(len(o.servers)) // otherwise there is nothing that could take the place of the lost one
	natstest.Call(o, o.as("sys"), "SERVER.REMOVE", map[string]string{"peer": lost}, &struct{}{})
	o.awaitServers(len(o.servers))
	o.awaitCopies(js, lost)
	o.ready()
}

// rotateEdge is "A password of NATS changes", for the edges, while players send messages.
func (o *site) rotateEdge() {
	names := slices.Sorted(maps.Keys(o.servers))
	stop, talked := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for i := 0; ; i++ {
			select {
			case <-stop:
				talked <- err
				return
			case <-time.After(50 * time.Millisecond):
				err = cmp.Or(err, o.say(i%len(o.players)))
			}
		}
	}()
	o.edit("secure.conf", `(?m)^(\s*\{ user: edge)(, password: )\$NATS_EDGE_PASSWORD(,.*)$`, "$0\n${1}2${2}\"another secret\"${3}")
	o.reload(names...)
	for i := range o.edges {
		o.write(fmt.Sprintf("e%d.login", i+1), "edge2:another secret")
	}
	o.edit("secure.conf", `(?m)^\s*\{ user: edge,.*$`, "")
	o.reload(names...)
	if _, err := nats.Connect("nats://"+o.listens[0], nats.UserInfo("edge", "secret-of-edge")); !errors.Is(err, nats.ErrAuthorization) {
		o.Errorf("a server takes the former password: %v", err)
	}
	o.ready()
	close(stop)
	if err := <-talked; err != nil {
		o.Error(err)
	}
}

// threeBecomeFive is "Three NATS servers become five". Then two of them die.
func (o *site) threeBecomeFive() {
	o.startServer("n5", 3, 5)
	o.startServer("n6", 4, 5)
	o.awaitServers(5)
	js := jetStream(o.T, o.as("admin"))
	for _, s := range o.streams(js) {
		s.Config.Replicas = 5
		var err error
		eventually(o.T, s.Config.Name+" gets five replicas", func() bool { // "no suitable peers" until the leader has heard of the new servers
			_, err = js.UpdateStream(o.Context(), s.Config)
			return err == nil || !strings.Contains(err.Error(), "no suitable peers")
		})
		if err != nil {
			o.Fatalf("%s: %v", s.Config.Name, err)
		}
	}
	o.awaitCopies(js, "")
	for i, r := range o.relays {
		r.term()
		r.ends(0)
		o.relays[i] = o.begin(fmt.Sprint("r", i+1), "5")
		o.ready()
	}
	o.servers["n1"].kill()
	o.servers["n2"].kill()
	o.ready()
}

// powerCut kills everything at once, and starts it again while the servers get a twelfth of the time.
func (o *site) powerCut() {
	all := slices.Concat(o.relays, o.edges)
	for _, s := range o.servers {
		all = append(all, s.process)
	}
	for _, p := range all {
		_ = p.cmd.Process.Kill()
	}
	for _, p := range all {
		<-p.ended
	}
	for name := range o.servers {
		o.startAgain(name)
	}
	o.startNodes()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(throttleRun) {
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			for _, s := range o.servers {
				_ = s.cmd.Process.Signal(signal)
			}
			if signal == syscall.SIGSTOP {
				time.Sleep(throttleStop)
			}
		}
	}
	o.awaitServers(3)
	o.ready()
	o.connectPlayers()
}
