package systest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/conform"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/nats-io/nats.go"
)

// godotClient is the addon for Godot.
const godotClient = "../../clients/godot"

// engine runs a script with a real engine, or skips the test. The process ends with the test at the latest.
func engine(t *testing.T, script string, env ...string) *process {
	t.Helper()
	godot, err := exec.LookPath("godot3-server")
	if err != nil {
		t.Skip("godot3-server is not installed: apt-get install godot3-server")
	}
	if script, err = filepath.Abs(script); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(godot, "-s", script)
	cmd.Dir = t.TempDir() // where the engine logs
	cmd.Env = append(append(os.Environ(), "HOME="+cmd.Dir, "LC_ALL=C.UTF-8"), env...)
	return startCommand(t, cmd)
}

// clean reports what the engine says about faults in scripts.
func (p *process) clean() {
	p.Helper()
	for _, bad := range []string{"SCRIPT ERROR", "Parse Error"} {
		if strings.Contains(p.output.String(), bad) {
			p.Fatalf("the engine finds a fault in the script:\n%s", p.output)
		}
	}
}

// TestGodotClientConforms proves the GDScript client with the scripted edge, which has all 38 types, 30 % loss both
// ways and the wrap of the numbers.
func TestGodotClientConforms(t *testing.T) {
	t.Parallel()
	godotConforms(t, conform.Config{Quick: testing.Short()})
}

// TestGodotClientConformsWithToken is TestGodotClientConforms for a client that logs in, without the steps that take long.
func TestGodotClientConformsWithToken(t *testing.T) {
	t.Parallel()
	godotConforms(t, conform.Config{Token: "a token", Quick: true})
}

func godotConforms(t *testing.T, cfg conform.Config) {
	t.Helper()
	cfg.Patience = patience / 4
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	p := engine(t, godotClient+"/test/conform.gd", "EDGE="+socket.LocalAddr().String(), "TOKEN="+cfg.Token)
	results, err := conform.Run(t.Context(), socket, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Error(r)
		}
	}
	if len(results) < 30 {
		t.Errorf("%d steps, want at least 30", len(results))
	}
	p.says("closed: local")
	p.clean()
}

// TestGodotClientVectors reads the values that the denetwork libraries wrote, and wants the same bytes written again.
func TestGodotClientVectors(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("../../dnp/wire/testdata/denetwork.json")
	if err != nil {
		t.Fatal(err)
	}
	p := engine(t, godotClient+"/test/types.gd", "VECTORS="+file)
	p.ends(0, "values: ")
	p.clean()
	if strings.Contains(p.output.String(), "want") || strings.Contains(p.output.String(), "parse") || strings.Contains(p.output.String(), "values: 0") {
		t.Errorf("the engine says\n%s", p.output)
	}
}

// godotValues has a value of each of the 38 types, at the ends of their ranges, in JSON.
func godotValues() string {
	var list []string
	for typ := range wire.ValueType(wire.ValueTypes) {
		value := ""
		switch bits := uint(8 * typ.Width()); {
		case typ == wire.TypeString:
			value = `"Adá ☃"`
		case typ == wire.TypeData:
			value = `"AP8B"`
		case typ.Kind() == wire.KindUint:
			value = fmt.Sprint(uint64(1<<bits - 2))
		case typ.Kind() == wire.KindSint:
			value = fmt.Sprint(-(int64(1) << (bits - 1)) + 1)
		default:
			value = "-0.375"
		}
		if n := typ.Components(); n > 1 {
			value = "[" + strings.Repeat(value+",", n-1) + "1]"
		}
		list = append(list, fmt.Sprintf(`{"name":"v%d","type":%q,"value":%s}`, typ, typ, value))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// TestGodotClientTypes sends a value of each type to the GDScript client, which writes it to another state and
// offers it as a value of its own. A game server gets the same values.
func TestGodotClientTypes(t *testing.T) {
	t.Parallel()
	s := newStackWith(t, describeLinks, local(wire.Denetwork))
	s.publish(`{"op":"put","key":"all","values":` + godotValues() + `}`)
	var zeros []map[string]any
	if err := json.Unmarshal([]byte(godotValues()), &zeros); err != nil {
		t.Fatal(err)
	}
	for _, v := range zeros {
		delete(v, "value")
		v["value"] = zeroOf(v["type"].(string))
	}
	text, err := json.Marshal(zeros)
	if err != nil {
		t.Fatal(err)
	}
	s.publish(`{"op":"put","key":"back","access":"read-write","values":` + string(text) + `}`)
	p := engine(t, godotClient+"/test/types.gd", "EDGE=udp://"+s.edge.Addrs()[0].String())
	want := s.valuesOf("all")
	for _, key := range []string{"back", "mine"} {
		eventually(t, "the game gets the values of "+key, func() bool { return len(want) == wire.ValueTypes && reflect.DeepEqual(s.valuesOf(key), want) })
	}
	p.clean()
}

// TestGodotClientFields: the GDScript client reads the fields of a data value and writes them, so that the game server
// has them by name, and sees those that the game server sets.
func TestGodotClientFields(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	s.publish(`{"op":"put","key":"tank","describe":true,"access":"read-write","values":[{"name":"gun","type":"data","value":{"aim":[1,2,-3],"shots":7,"on":[0,9]},
		"fields":[{"name":"aim","type":"vector3f16"},{"name":"shots","type":"uint16"},{"name":"on","type":"point2s64"}]}]}`)
	p := engine(t, godotClient+"/test/fields.gd", "EDGE=udp://"+s.edge.Addrs()[0].String())
	p.says("fields (1, 2, -3) 7 [0, 9]")
	p.says("fields (0, 0.5, 0) 8 [1, 2]")
	eventually(t, "the game has what the client wrote", func() bool {
		return slices.Equal(s.valuesOf("tank"), []string{`{"aim":[0,0.5,0],"shots":8,"on":[1,2]}`})
	})
	s.publish(`{"op":"set","key":"tank","values":{"gun":{"aim":[4,0,0],"shots":65535,"on":[-1,3]}}}`)
	p.says("fields (4, 0, 0) 65535 [-1, 3]") // no repeat of the client's write overtakes it
	p.clean()
}

// TestGodotClientCommands: commands of the GDScript client are executed and answered once, in any number, and its messages that
// look like one arrive as they are. A command without an answer ends with the connection.
func TestGodotClientCommands(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	s.publish(`{"op":"put","key":"gate","access":"read-write","values":[{"name":"open","type":"uint8","value":0}]}`)
	s.publish(`{"op":"put","key":"wall","values":[{"name":"open","type":"uint8","value":0}]}`)
	said := make(chan bus.Msg, 10)
	for subject, handle := range map[string]func(bus.Msg){
		s.subjects.CommandAll("s"): func(m bus.Msg) {
			answer := bus.Msg{Subject: m.Reply, Data: append([]byte("done "), m.Data...)}
			switch m.Header["Dnp-Command"] {
			case "wait":
				return
			case "break":
				answer = bus.Msg{Subject: m.Reply, Header: map[string]string{"Dnp-Code": "unknown_command"}, Data: []byte("it is of stone")}
			}
			if err := s.game.Publish(answer); err != nil {
				t.Error(err)
			}
		},
		s.subjects.From("s", "*"): func(m bus.Msg) { said <- m },
	} {
		end, err := s.game.Subscribe(subject, handle)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
	}
	p := engine(t, godotClient+"/test/commands.gd", "EDGE=udp://"+s.edge.Addrs()[0].String())
	for _, text := range []string{"refused: -1 -1", "answer 1: unknown_command it is of stone", "answer 2: not_authorised", "all are answered"} {
		p.says(text)
	}
	if m := receive(t, said, "a message like an envelope"); string(m.Data) != "\xC5\x01\x02" {
		t.Errorf("the game gets % x", m.Data)
	}
	m := receive(t, said, "another message")
	if err := s.game.Publish(bus.Msg{Subject: strings.Replace(m.Subject, ".from.", ".to.", 1), Data: []byte("\xC5\x81\x01\x00\x00")}); err != nil {
		t.Fatal(err)
	}
	p.says("message [197, 129, 1, 0, 0]")
	s.publish(fmt.Sprintf(`{"op":"kick","client":%q}`, m.Subject[strings.LastIndex(m.Subject, ".")+1:]))
	p.says("answer 3: ended")
	p.clean()
	for _, bad := range []string{"another number", "twice", "is answered"} {
		if strings.Contains(p.output.String(), bad) {
			t.Errorf("the script says\n%s", p.output)
		}
	}
}

// zeroOf is what a value of a type is before a client writes it.
func zeroOf(typ string) any {
	switch {
	case typ == "string":
		return "x"
	case typ == "data":
		return "AAAA"
	case strings.HasPrefix(typ, "point2"), strings.HasPrefix(typ, "vector2"):
		return []int{0, 0}
	case strings.HasPrefix(typ, "point3"), strings.HasPrefix(typ, "vector3"):
		return []int{0, 0, 0}
	case strings.HasPrefix(typ, "quaternion"):
		return []int{0, 0, 0, 0}
	}
	return 0
}

// valuesOf asks the relay for the values of a state, as they are in JSON. "mine" is the state that the client made.
func (s *stack) valuesOf(key string) (list []string) {
	s.Helper()
	var answer struct {
		States []struct {
			Key, Message string
			Values       []struct{ Value json.RawMessage }
		}
	}
	if err := json.Unmarshal(s.ask(s.subjects.Get("s", ""), nil, nil), &answer); err != nil {
		s.Fatal(err)
	}
	for _, state := range answer.States {
		if state.Key == key || key == "mine" && strings.HasPrefix(state.Key, "client.") {
			for _, v := range state.Values {
				list = append(list, string(v.Value))
			}
		}
	}
	return list
}

func describeLinks(_ *relay.Config, e *edge.Config) { e.Describe = true }

// play connects a GDScript client, which must stay connected until the test ends.
func (r *rescue) play(url string) *process {
	r.Helper()
	r.listen()
	var p *process
	r.joins(func() { p = engine(r.T, godotClient+"/test/player.gd", "EDGE="+url) })
	return p
}

// answers has the game send n messages, each of which the player answers. All arrive once, in order.
func (r *rescue) answers(p *process, n int) {
	r.Helper()
	for range n {
		r.tell()
		r.said++
	}
	r.hear(n)
	p.clean()
	if text := p.output.String(); strings.Contains(text, "closed") || strings.Contains(text, "of the game is") || strings.Count(text, "opened") != 1 {
		r.Fatalf("the player says\n%s", text)
	}
}

// TestGodotClientFailover kills the edge of a GDScript client by UDP, whose session goes on at another edge: no message is
// lost, doubled or out of order.
func TestGodotClientFailover(t *testing.T) {
	t.Parallel()
	r := newRescueEdges(t, startRedis(t))
	p := r.play("udp://" + r.balancer.addr().String())
	r.answers(p, 20)
	r.edges[0].kill()
	r.route(1)
	r.answers(p, 20)
}

// TestGodotClientForward sends the datagrams of a GDScript client to two edges in turn, so that one of them forwards.
func TestGodotClientForward(t *testing.T) {
	t.Parallel()
	r := newRescueEdges(t, startRedis(t), "--gossip-key-file", keyFile(t, 0x0f), "--forward-listen", "127.0.0.1:0")
	eventually(t, "the edges know each other", func() bool {
		return r.metric(0, `dnp_forward_peers`) == 1 && r.metric(1, `dnp_forward_peers`) == 1
	})
	p := r.play("udp://" + r.balancer.addr().String())
	r.answers(p, 5)
	r.balancer.alternate(r.addrs)
	eventually(t, "datagrams are forwarded", func() bool {
		r.answers(p, 20)
		const forwarded = `dnp_session_orphans_total{fate="forwarded"}`
		return r.metric(0, forwarded)+r.metric(1, forwarded) >= 20
	})
}

// TestGodotClientLoss loses 30 % of all datagrams, both ways, between a GDScript client and an edge: no message is lost,
// doubled or out of order. It does not run beside other tests: with this loss, an engine that stands still for some seconds has its
// connection closed.
func TestGodotClientLoss(t *testing.T) {
	s := newStack(t, local(wire.Denetwork))
	s.publish(lampPut)
	b := newBalancer(t, func() netip.AddrPort { return s.edge.Addrs()[0] })
	b.mu.Lock()
	b.loss = 0.3
	b.mu.Unlock()
	nc := natsClient(t, s.nats.URL())
	heard := make(chan string, 100)
	on(t, nc, "dnp.v1.from.s.*", func(m *nats.Msg) { heard <- string(m.Data) })
	joined := make(chan struct{}, 10)
	on(t, nc, "dnp.v1.event.s", func(m *nats.Msg) {
		if strings.Contains(string(m.Data), `"left"`) {
			t.Log(string(m.Data))
		}
		if strings.Contains(string(m.Data), `"linked"`) {
			joined <- struct{}{}
		}
	})
	p := engine(t, godotClient+"/test/player.gd", "EDGE=udp://"+b.addr().String())
	<-joined
	const messages = 40
	for i := range messages {
		if err := nc.Publish("dnp.v1.toall.s", fmt.Append(nil, "g", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range messages {
		select {
		case got := <-heard:
			if want := fmt.Sprint("c", i); got != want {
				t.Fatalf("the game hears %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("the game does not hear message %d:\n%s", i, p.output)
		}
	}
	p.clean()
	if strings.Contains(p.output.String(), "of the game is") {
		t.Errorf("the player says\n%s", p.output)
	}
}

// A pipe passes TCP connections on to one of several addresses.
type pipe struct {
	listener net.Listener
	mu       sync.Mutex // a goroutine for each connection, and the test
	to       string
	open     []net.Conn
	running  sync.WaitGroup
}

func newPipe(t *testing.T, to string) *pipe {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pipe{listener: l, to: to}
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.pass(c)
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut("")
		p.running.Wait()
	})
	return p
}

// pass connects a client with the address of the moment.
func (p *pipe) pass(near net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		near.Close() // the client tries again
		return
	}
	p.open = append(p.open, near, far)
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		p.running.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // until one of them ends
			pair[0].Close()
			pair[1].Close()
		})
	}
}

// route has later connections go to another address.
func (p *pipe) route(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// cut ends all connections. Later ones go to another address.
func (p *pipe) cut(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}

// A webRescue is a rescue whose edges are reached by WebSocket through a pipe, at first the first one.
type webRescue struct {
	*rescue
	through *pipe
	port    uint16
}

func newWebRescue(t *testing.T) webRescue {
	t.Helper()
	addr := netip.MustParseAddrPort(freePorts(t, 1)[0])
	r := newRescueEdges(t, startRedis(t), "--websocket", fmt.Sprint("EDGE:", addr.Port()), "--gossip-key-file", keyFile(t, 0x0f), "--forward-listen", "127.0.0.1:0")
	eventually(t, "the edges know each other", func() bool {
		return r.metric(0, `dnp_forward_peers`) == 1 && r.metric(1, `dnp_forward_peers`) == 1
	})
	w := webRescue{rescue: r, port: addr.Port()}
	w.through = newPipe(t, w.at(0))
	return w
}

// at is where an edge takes WebSockets.
func (w webRescue) at(edge int) string {
	return netip.AddrPortFrom(w.addrs[edge].Addr(), w.port).String()
}

// TestGodotClientResumes cuts the WebSocket of a GDScript client, and then kills its edge. The session goes on with its token.
func TestGodotClientResumes(t *testing.T) {
	t.Parallel()
	w := newWebRescue(t)
	p := w.play("ws://" + w.through.listener.Addr().String())
	w.answers(p, 20)
	for range 3 {
		w.through.cut(w.at(0))
		w.answers(p, 5)
	}
	w.edges[0].kill()
	w.through.cut(w.at(1))
	w.answers(p, 20)
}

// TestGodotClientDrain drains the edge of a GDScript client by WebSocket, which tells the client to come back: the session
// goes on at the other edge.
func TestGodotClientDrain(t *testing.T) {
	t.Parallel()
	w := newWebRescue(t)
	p := w.play("ws://" + w.through.listener.Addr().String())
	w.answers(p, 20)
	w.through.route(w.at(1))
	w.edges[0].term()
	w.answers(p, 20)
}

// TestGodotClientReconnects kicks a GDScript client, by UDP and by WebSocket. It connects again by itself.
func TestGodotClientReconnects(t *testing.T) {
	t.Parallel()
	relay := start(t, "relay", "dev", "--listen", "udp://127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--websocket", "127.0.0.1:0", "--webtransport", "")
	relay.says("dnpctl watch")
	nc := natsClient(t, devNATS.FindStringSubmatch(relay.output.String())[1])
	joined := make(chan string, 10)
	on(t, nc, "dnp.v1.event.demo", func(m *nats.Msg) {
		var ev struct{ Type, Client string }
		if json.Unmarshal(m.Data, &ev) == nil && ev.Type == "joined" {
			joined <- ev.Client
		}
	})
	for _, pattern := range []string{`udp://\S+`, `http://\S+`} {
		p := engine(t, godotClient+"/test/player.gd", "EDGE="+regexp.MustCompile(pattern).FindString(relay.output.String()))
		client := <-joined
		p.says("opened")
		if err := nc.Publish("dnp.v1.publish.demo", fmt.Appendf(nil, `{"op":"kick","client":%q}`, client)); err != nil {
			t.Fatal(err)
		}
		p.says("closed: peer")
		<-joined
		eventually(t, "the client is connected again", func() bool { return strings.Count(p.output.String(), "opened") == 2 })
		p.clean()
	}
}

// TestGodotClientWrites plays the transcripts of writes with numbers, which the TypeScript client plays, too, and random writes over
// bad paths.
func TestGodotClientWrites(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("../../clients/testdata/writes.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := engine(t, godotClient+"/test/writes.gd", "WRITES="+file)
	p.ends(0, "transcripts: ")
	p.clean()
	if text := p.output.String(); strings.Contains(text, "WRONG") || strings.Contains(text, "transcripts: 0") {
		t.Errorf("the script says\n%s", text)
	}
}

// TestGodotClientSync checks how DnpSync shows values, with times of the script's own.
func TestGodotClientSync(t *testing.T) {
	t.Parallel()
	p := engine(t, godotClient+"/test/sync.gd")
	p.ends(0, "done")
	p.clean()
	if strings.Contains(p.output.String(), "WRONG") {
		t.Errorf("the script says\n%s", p.output)
	}
}

// TestGodotClientTLS connects a GDScript client by a WebSocket with TLS, whose certificate it trusts, or not.
func TestGodotClientTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := os.WriteFile(cert, []byte(localCertificate(t, key)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "relay", "dev", "--listen", "udp://127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--websocket", "127.0.0.1:0", "--webtransport", "", "--tls-cert", cert, "--tls-key", key)
	p.says("dnpctl watch")
	port := regexp.MustCompile(`wss?://\S+:(\d+)`).FindStringSubmatch(p.output.String())
	if port == nil {
		t.Fatalf("no WebSocket is told in %s", p.output)
	}
	url := "EDGE=wss://localhost:" + port[1]
	engine(t, godotClient+"/test/player.gd", url, "CERTIFICATE="+cert).says("opened")
	stranger := engine(t, godotClient+"/test/player.gd", url)
	stranger.says("closed: lost")
	if strings.Contains(stranger.output.String(), "opened") {
		t.Errorf("a client that does not trust the certificate says\n%s", stranger.output)
	}
}

// localCertificate returns a certificate for localhost, and writes its key.
func localCertificate(t *testing.T, keyFile string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestGodotClientLeaves: a GDScript client that closes tells the edge three times at once, and then again until the edge answers
// or has been told ten times. It acknowledges nothing meanwhile, and says how many messages were not acknowledged.
func TestGodotClientLeaves(t *testing.T) {
	t.Parallel()
	for answerTo, most := range map[int]int{0: 10, 5: 9} {
		t.Run(fmt.Sprint(answerTo), func(t *testing.T) {
			t.Parallel()
			socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { socket.Close() })
			p := engine(t, godotClient+"/test/leave.gd", "EDGE=udp://"+socket.LocalAddr().String())
			ended := make(chan int)
			go func() { ended <- leftBy(socket, answerTo) }()
			p.says("closed: local 3 False")
			p.says("the edge knows, or does not answer")
			p.clean()
			if _, err := socket.WriteToUDPAddrPort([]byte("end"), socket.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
				t.Fatal(err)
			}
			if n := receive(t, ended, "the end of the edge"); n < max(3, answerTo) || n > most {
				t.Errorf("the edge was told %d times, want up to %d", n, most)
			}
		})
	}
}

// leftBy plays an edge that acknowledges the hello of a client, sends it a message, and answers the ConnectionClose that comes as
// the given one. It returns how many came before "end", or -1 if the client acknowledges something behind the first.
func leftBy(socket *net.UDPConn, answerTo int) (closes int) {
	p := make([]byte, 2048)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(p)
		if err != nil || string(p[:n]) == "end" {
			return closes
		}
		switch b := p[:n]; {
		case b[0] == byte(wire.CommandConnectionRequest):
			socket.WriteToUDPAddrPort([]byte{1, 0, 0, 0}, from)
		case closes == 0 && b[0] == byte(wire.CommandReliableMessage) && b[1] == 0: // the hello
			socket.WriteToUDPAddrPort([]byte{6, 0, 0, 0}, from)
			socket.WriteToUDPAddrPort([]byte("\x04\x00\x00go"), from)
		case closes > 0 && b[0] == byte(wire.CommandReliableAck):
			return -1
		case string(b) == "\x02\x00\x00":
			closes++
			socket.WriteToUDPAddrPort([]byte("\x04\x01\x00more"), from)
			if closes == answerTo {
				socket.WriteToUDPAddrPort([]byte{9, 0}, from)
			}
		}
	}
}
