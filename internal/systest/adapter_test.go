package systest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/adapter"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/relay"
)

// TestAdapter has clients inside the process of the edge: they see, write, send and receive as others do, count as
// clients of the address for which they speak, and leave with their edge's connection.
func TestAdapter(t *testing.T) {
	t.Parallel()
	s := newStackWith(t, func(_ *relay.Config, e *edge.Config) {
		e.Carriers, e.SessionsPerAddress = &edge.Carriers{Secret: []byte("secret")}, 1
	}, local(wire.Denetwork))
	left := make(chan string, 2)
	if _, err := s.game.Subscribe(s.subjects.Event("s"), func(m bus.Msg) {
		if strings.Contains(string(m.Data), `"left"`) {
			left <- string(m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	from := make(chan bus.Msg, 1)
	if _, err := s.game.Subscribe(s.subjects.From("s", "*"), func(m bus.Msg) { from <- m }); err != nil {
		t.Fatal(err)
	}
	if err := s.game.Flush(patience); err != nil {
		t.Fatal(err)
	}
	messages, told := make(chan string, 1), make(chan string, 10)
	home := netip.MustParseAddr("192.0.2.1")
	join := func() (*client.Client, error) {
		news := false // of the goroutine of the client
		return adapter.Join(s.ctx, s.edge.Hub(), carrier.LLUDP, home, client.Config{
			Message: func(_ *client.Client, m client.Message) { messages <- string(m.Data) },
			Change:  func(*client.Client, *client.State, []int) { news = true },
		}, func() {
			if news {
				told <- "changes"
			}
			news = false
		})
	}
	c, err := join()
	if err != nil {
		t.Fatal(err)
	}
	s.publish(lampPut)
	lamp, err := c.Await(s.ctx, "L")
	if err != nil {
		t.Fatal(err)
	}
	s.publish(`{"op":"set","key":"lamp","values":{"level":8}}`)
	receive(t, told, "the adapter is told that it has heard all changes of a batch")
	if n := lamp.At(0).Int(); n != 8 {
		t.Errorf("the lamp has %d, want what the game set, 8", n)
	}
	other := s.client(0, dnptest.Cpp())
	s.sees(other, "L", u16(8))
	if err := lamp.SetAt(0, 7); err != nil {
		t.Fatal(err)
	}
	s.sees(other, "L", u16(7))
	if err := c.Send([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	m := receive(t, from, "the game server hears the adapter")
	if string(m.Data) != "hello" {
		t.Errorf("the game server got %q", m.Data)
	}
	if err := s.game.Publish(bus.Msg{Subject: strings.Replace(m.Subject, ".from.", ".to.", 1), Data: []byte("welcome")}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, messages, "the adapter gets a message"); got != "welcome" {
		t.Errorf("the adapter got %q", got)
	}
	var ended *adapter.Ended
	if _, err := join(); !errors.As(err, &ended) || ended.Reason != carrier.TooMany {
		t.Errorf("a second client of the address: %v, want too many", err)
	}

	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, left, "the client leaves"); !strings.Contains(e, `"reason":"peer"`) {
		t.Errorf("the event is %s, want that the peer left", e)
	}
	if c, err = join(); err != nil {
		t.Fatalf("the place of the client that left is not free: %v", err)
	}
	s.edge.Hub().Close()
	receive(t, c.Done(), "the client ends with its connection")
	if !errors.As(c.Err(), &ended) || ended.Reason != carrier.Leaving {
		t.Errorf("the client ended with %v, want that the edge leaves", c.Err())
	}
	if e := receive(t, left, "the session of an adapter ends with its connection"); !strings.Contains(e, `"reason":"peer"`) {
		t.Errorf("the event is %s, want that the session ended at once, because no edge can resume it", e)
	}
}

// receive returns what comes next.
func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
	}
	return v
}
