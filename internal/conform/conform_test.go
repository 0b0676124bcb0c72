package conform

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// patience is how long the edge waits in tests, on a machine of any speed.
const patience = 30 * time.Second

// obey is the program of the Go client: clients/CONFORMANCE.md says what it has to do.
func obey(c *client.Client, m client.Message) {
	text := string(m.Data)
	word, rest, _ := strings.Cut(text, " ")
	args := strings.Fields(rest)
	say := func(s string) { _ = c.Send([]byte(s)) } // an edge that ended asks for nothing more
	switch word {
	case "echo":
		say(rest)
	case "once":
		_ = c.SendUnreliable([]byte(rest))
	case "count":
		say(fmt.Sprintf("count %d", len(text)))
	case "long":
		n, _ := strconv.Atoi(rest)
		say(pattern(n))
	case "burst":
		n, _ := strconv.Atoi(rest)
		for i := range n {
			say(fmt.Sprintf("burst %d", i))
		}
	case "set":
		index, _ := strconv.Atoi(args[1])
		v, _ := strconv.Atoi(args[2])
		_ = find(c, args[0]).SetAt(index, v)
	case "tell":
		say(tell(rest, find(c, rest)))
	case "names":
		say(tellNames(rest, find(c, rest)))
	case "offer":
		_, _ = c.Offer(rest, client.Field{Name: "hp", Type: "uint16", Value: 7}, client.Field{Type: "string", Value: "Ada"})
	case "withdraw":
		c.Withdraw(find(c, rest))
	case "close":
		go c.Close()
	}
}

// find returns the state with a key, the client's own, too.
func find(c *client.Client, key string) *client.State {
	for _, s := range c.States() {
		if s.Key() == key {
			return s
		}
	}
	return nil
}

func tell(key string, s *client.State) string {
	if s == nil {
		return key + " null"
	}
	var list []any
	for _, v := range s.Values() {
		switch {
		case v.Type() == wire.TypeString:
			list = append(list, v.String())
		case v.Type() == wire.TypeData:
			list = append(list, hex.EncodeToString(v.Bytes()))
		default:
			list = append(list, strings.Fields(strings.Trim(v.String(), "[]")))
		}
	}
	b, _ := json.Marshal(list)
	return key + " " + string(b)
}

func tellNames(key string, s *client.State) string {
	if s == nil || s.Name(0) == "" {
		return key + " null"
	}
	var list []string
	for i := range s.Len() {
		list = append(list, s.Name(i))
	}
	b, _ := json.Marshal(list)
	return key + " " + string(b)
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket
}

// TestGoClient proves the package client, with a login and without.
func TestGoClient(t *testing.T) {
	for _, token := range []string{"", "a token"} {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			socket := listen(t)
			dialed := make(chan error, 1)
			go func() {
				_, err := client.Dial(t.Context(), "udp://"+socket.LocalAddr().String(), client.Config{Token: token, Timeout: patience, Message: obey})
				dialed <- err
			}()
			begun := 0
			at := func(step string, done, total int) {
				if done != begun || total != len(steps()) || step != steps()[done].name {
					t.Errorf("step %s begins as %d of %d, want %d of %d", step, done, total, begun, len(steps()))
				}
				begun++
			}
			results, err := Run(t.Context(), socket, Config{Patience: patience, Token: token, Quick: token != "" || testing.Short(), At: at})
			if err != nil {
				t.Fatal(err)
			}
			if begun != len(results) {
				t.Errorf("%d steps begin, %d end", begun, len(results))
			}
			for _, r := range results {
				if t.Log(r); r.Err != nil {
					t.Errorf("the client fails step %s", r.Name)
				}
			}
			if err := <-dialed; err != nil {
				t.Error(err)
			}
		})
	}
}

// A wrong client is the Go client behind a proxy that spoils some datagrams.
type wrong struct {
	name     string
	step     string                  // which the edge has to fail
	out      func(b []byte) [][]byte // what the client's datagram becomes
	in       func(b []byte) [][]byte // what a datagram of the edge becomes
	gullible bool                    // takes datagrams of any address
}

func is(b []byte, c wire.Command) bool { return len(b) > 0 && wire.Command(b[0]) == c }

// wrongs are faults that clients have, each with the step that notices it.
func wrongs() []wrong {
	drop := func(match func(b []byte) bool) func([]byte) [][]byte {
		return func(b []byte) [][]byte {
			if match(b) {
				return nil
			}
			return [][]byte{b}
		}
	}
	repeats := func(c wire.Command) func([]byte) bool {
		seen := map[string]bool{}
		return func(b []byte) bool {
			again := seen[string(b)]
			seen[string(b)] = true
			return again && is(b, c)
		}
	}
	replace := func(change func(b []byte) []byte) func([]byte) [][]byte {
		return func(b []byte) [][]byte { return [][]byte{change(b)} }
	}
	return []wrong{
		{name: "asks once", step: "request-again", out: drop(repeats(wire.CommandConnectionRequest))},
		{name: "asks for another protocol", step: "request", out: replace(func(b []byte) []byte {
			if is(b, wire.CommandConnectionRequest) {
				b[3] = 1
			}
			return b
		})},
		{name: "acknowledges a command once", step: "repeat", out: drop(repeats(wire.CommandReliableAck))},
		{name: "acknowledges with another code", step: "echo", out: replace(func(b []byte) []byte {
			if is(b, wire.CommandReliableAck) && b[1] > 0 {
				b[3] = 1
			}
			return b
		})},
		{name: "sends bytes behind an acknowledgement", step: "echo", out: replace(func(b []byte) []byte {
			if is(b, wire.CommandReliableAck) && b[1] > 0 {
				b = append(b, 0)
			}
			return b
		})},
		{name: "sends a message once", step: "unacknowledged", out: drop(repeats(wire.CommandReliableMessage))},
		{name: "has no LinkUp", step: "link", out: drop(func(b []byte) bool { return is(b, wire.CommandLinkUp) })},
		{name: "sends a value once", step: "write-repeated", out: drop(repeats(wire.CommandLinkUpdate))},
		{name: "does not read updates", step: "update", in: drop(func(b []byte) bool { return is(b, wire.CommandLinkUpdate) })},
		{name: "does not see the end of links", step: "unlink", in: drop(func(b []byte) bool { return is(b, wire.CommandLinkDown) })},
		{name: "keeps its own states", step: "withdraw", out: drop(func(b []byte) bool { return is(b, wire.CommandLinkDown) })},
		{name: "believes any address", step: "stranger", gullible: true},
		{name: "leaves without a word", step: "close", out: drop(func(b []byte) bool { return is(b, wire.CommandConnectionClose) })},
	}
}

// TestNotices: each fault of a client fails the step that is about it. All run at once, because they
// mostly wait.
func TestNotices(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	for _, w := range wrongs() {
		socket := listen(t)
		proxy := spoil(t, socket.LocalAddr().(*net.UDPAddr), w)
		running.Go(func() { prove(t, w, socket, proxy) })
	}
	running.Wait()
}

func prove(t *testing.T, w wrong, socket *net.UDPConn, proxy *proxy) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dialed := make(chan *client.Client, 1)
	go func() { // fails where the fault is that it cannot connect
		c, _ := client.Dial(ctx, "udp://"+proxy.String(), client.Config{Timeout: patience, Message: obey})
		dialed <- c
	}()
	report := &noticed{step: w.step, end: cancel}
	_, err := Run(ctx, socket, Config{Patience: 5 * time.Second, Quick: true, quiet: watchTime, Report: report.take})
	if !report.failed {
		t.Errorf("a client that %s: step %s passes, or was not tried: %v\n%s", w.name, w.step, err, report.text.String())
	}
	cancel()
	socket.Close()
	if c := <-dialed; c != nil {
		c.Close()
	}
	proxy.stop()
}

// A noticed ends a run when a step has failed.
type noticed struct {
	step   string
	end    func()
	failed bool
	text   strings.Builder
}

func (n *noticed) take(r Result) {
	fmt.Fprintln(&n.text, r)
	if r.Err != nil && r.Name == n.step {
		n.failed = true
		n.end()
	}
}

// A proxy passes datagrams between a client and the edge.
type proxy struct {
	near, far *net.UDPConn
	running   sync.WaitGroup
}

func (p *proxy) String() string { return p.near.LocalAddr().String() }

func (p *proxy) stop() {
	p.near.Close()
	p.far.Close()
	p.running.Wait()
}

// spoil starts a proxy that treats datagrams as w says.
func spoil(t *testing.T, edge *net.UDPAddr, w wrong) *proxy {
	p := &proxy{near: listen(t), far: listen(t)}
	var client atomic.Pointer[net.UDPAddr]
	pass := func(from *net.UDPConn, change func([]byte) [][]byte, to func(*net.UDPAddr, []byte)) {
		buf := make([]byte, 1<<16)
		for {
			n, addr, err := from.ReadFromUDP(buf)
			if err != nil {
				return
			}
			all := [][]byte{buf[:n]}
			if change != nil {
				all = change(buf[:n])
			}
			for _, b := range all {
				to(addr, b)
			}
		}
	}
	p.running.Go(func() {
		pass(p.near, w.out, func(from *net.UDPAddr, b []byte) {
			client.Store(from)
			_, _ = p.far.WriteTo(b, edge)
		})
	})
	p.running.Go(func() {
		pass(p.far, w.in, func(from *net.UDPAddr, b []byte) {
			if from.Port == edge.Port || w.gullible {
				_, _ = p.near.WriteTo(b, client.Load())
			}
		})
	})
	return p
}
