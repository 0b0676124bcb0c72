package dnprelaytest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnprelaytest"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/publisher"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

type tower struct {
	HP uint8 `dnp:"hp"`
}

// TestStart has a game server and a client, and takes the relay away in between. Several servers run at once.
func TestStart(t *testing.T) {
	for _, space := range []string{"", "arena"} {
		t.Run(space, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			srv := dnprelaytest.Config{Space: space}.Start(t)
			if want := cmp.Or(space, "demo"); srv.Space != want {
				t.Fatalf("clients join %s, want %s", srv.Space, want)
			}
			p, err := publisher.Connect(ctx, publisher.Config{URL: srv.NATS, Retry: time.Millisecond, Probe: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			room, err := p.Space(srv.Space)
			if err != nil {
				t.Fatal(err)
			}
			bound, err := publisher.Bind(room, publisher.Put{Key: "tower"}, tower{HP: 93})
			if err != nil {
				t.Fatal(err)
			}
			c, err := dial(ctx, srv.Edge)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			await := func(hp float64) {
				t.Helper()
				if err := c.Until(ctx, func() bool { st := c.State("tower"); return st != nil && st.At(0).Float() == hp }); err != nil {
					t.Fatalf("the client does not see hp %v: %v", hp, err)
				}
			}
			await(93)
			position := func() publisher.Position {
				t.Helper()
				p, err := room.Publish(ctx, publisher.Put{Key: "wall", Values: []publisher.Value{{Type: "uint8", Value: 1}}})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			before := position()
			srv.StopRelay()
			if err := bound.Set(tower{HP: 92}); err != nil {
				t.Fatal(err)
			}
			srv.StartRelay()
			if err := room.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			await(92)
			if after := position(); after.Epoch <= before.Epoch {
				t.Errorf("the second relay has epoch %d, the first had %d: game servers do not tell it everything again", after.Epoch, before.Epoch)
			}
			srv.StartRelay() // ends the second one
			if err := room.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// dial connects to an edge. On a machine that stands still for a moment the edge has lost NATS, and admits nobody until
// it has NATS again.
func dial(ctx context.Context, url string) (*client.Client, error) {
	for {
		c, err := client.Dial(ctx, url, client.Config{})
		var end *client.EndError
		if !errors.As(err, &end) || end.Reason != client.Rejected || ctx.Err() != nil {
			return c, err
		}
	}
}

// A failing test notes why it fails, and ends the goroutine like the real one.
type failing struct {
	testing.TB
	why chan string
}

func (f failing) Fatalf(format string, args ...any) {
	f.why <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestBadSpace: what cannot run fails the test at once, with the reason.
func TestBadSpace(t *testing.T) {
	f := failing{t, make(chan string, 1)}
	go func() {
		dnprelaytest.Config{Space: "a b"}.Start(f)
		f.why <- "nothing"
	}()
	if why := <-f.why; !strings.Contains(why, `an edge: `) || !strings.Contains(why, `"a b"`) {
		t.Errorf("the test fails with %q, want what cannot run, and why", why)
	}
}
