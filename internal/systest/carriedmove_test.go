package systest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/nats-io/nats.go"
)

// A mover is what a client notices whose address changes.
type mover struct {
	mu       sync.Mutex // the client calls from a goroutine of its own
	changed  time.Time  // when the ball moved last
	longest  time.Duration
	unlinked []string
	got      []string
}

func (m *mover) config(hashes []string) client.Config {
	return client.Config{
		CertificateHashes: hashes,
		Change: func(_ *client.Client, s *client.State, _ []int) {
			if s.Key() != "ball" {
				return
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if now := time.Now(); m.changed.IsZero() {
				m.changed = now
			} else {
				m.longest, m.changed = max(m.longest, now.Sub(m.changed)), now
			}
		},
		Unlink: func(_ *client.Client, s *client.State) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.unlinked = append(m.unlinked, s.Key())
		},
		Message: func(_ *client.Client, message client.Message) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.got = append(m.got, string(message.Data))
		},
	}
}

func (m *mover) read() (got, unlinked []string, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.got), slices.Clone(m.unlinked), m.longest
}

// TestWebTransportMoves changes the address of a client by WebTransport ten times, while it watches states and sends and
// receives messages: the connection and its links stay, and no message is lost, doubled or out of order. It logs how long
// the client saw no change.
func TestWebTransportMoves(t *testing.T) {
	t.Parallel()
	p := dev(t, "--websocket", "127.0.0.1:0", "--webtransport", "127.0.0.1:0", "--sessions-per-address", "0", "--address-rate", "0")
	p.says("dnpctl watch")
	info := webInfo(t, p)
	b := newBalancer(t, func() netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), info.WebTransport.Port)
	})
	nc, err := nats.Connect(devNATS.FindStringSubmatch(p.output.String())[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	heard, err := nc.SubscribeSync("dnp.v1.from.demo.>")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var seen mover
	c, err := client.Dial(ctx, "wt://"+b.addr().String(), seen.config(info.WebTransport.CertificateHashes))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Await(ctx, "ball"); err != nil {
		t.Fatal(err)
	}
	const moves = 10
	var want []string
	for n := range moves {
		text := fmt.Sprint("message ", n)
		want = append(want, text)
		b.moveClient(t)
		if err := c.Send([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish("dnp.v1.toall.demo", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if m, err := heard.NextMsgWithContext(ctx); err != nil || string(m.Data) != text {
			t.Fatalf("the game server hears %v, %v; want %q", m, err, text)
		}
		eventually(t, "the client gets the message", func() bool {
			got, _, _ := seen.read()
			return len(got) > n
		})
	}
	got, unlinked, longest := seen.read()
	if !slices.Equal(got, want) {
		t.Errorf("the client got %q, want %q", got, want)
	}
	if s := c.CarrierStats(); len(unlinked) > 0 || s.Connections != 1 {
		t.Errorf("links of %v went down, %d connections; want none and 1", unlinked, s.Connections)
	}
	if m, err := heard.NextMsg(time.Millisecond); err == nil {
		t.Errorf("the game server hears %q again", m.Data)
	}
	t.Logf("%d changes of the address: the longest time without a change of a state was %v", moves, longest)
}

// webInfo asks relay dev what web listeners it has.
func webInfo(t *testing.T, p *process) (info carrier.Info) {
	t.Helper()
	_, rest, ok := strings.Cut(p.output.String(), "web page      ")
	url, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("no page is told in %s", p.output)
	}
	answer, err := http.Get(strings.TrimSuffix(url, "/") + carrier.InfoPath)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if err := json.NewDecoder(answer.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	return info
}
