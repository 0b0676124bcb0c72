package carrier_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var home = netip.MustParseAddr("192.0.2.7")

// A client is the other end of a connection: it takes what is written when the test lets it.
type client struct {
	takes  chan error // what Write returns; closed for success, always
	got    []string
	closed []carrier.Reason
}

func (c *client) Write(list [][]byte) error {
	if err := <-c.takes; err != nil {
		return err
	}
	for _, p := range list {
		c.got = append(c.got, string(p))
	}
	return nil
}

func (c *client) Close(r carrier.Reason) { c.closed = append(c.closed, r) }

// connect has a client come that presents a token, or none.
func connect(t *testing.T, e *carriertest.Edge, token string) (*client, *carrier.Conn) {
	t.Helper()
	seat, reason, ok := e.Reserve(carrier.WebSocket, home, token)
	if !ok {
		t.Fatalf("the edge refuses a client: %v", reason)
	}
	c := &client{takes: make(chan error, 1)}
	conn := seat.Open(c)
	if got := carriertest.Next(t, e.Opened, "the worker learns of the connection"); got != conn {
		t.Fatal("the worker learned of another connection")
	}
	return c, conn
}

// end ends a connection as its listener does.
func end(c *carrier.Conn) { c.Lost(carrier.Lost) }

func TestDatagramsReachTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		client, conn := connect(t, e, "")
		close(client.takes)
		e.Send(conn.Addr(), "one", "two")
		synctest.Wait()
		if got := strings.Join(client.got, " "); got != "one two" {
			t.Errorf("the client got %q, want both datagrams in order", got)
		}
		e.Send(netip.MustParseAddrPort("[fd9c:3b1e:60d7::1]:1"), "for a client that is not here")
		if n := e.Stats().OutLost; n != 1 {
			t.Errorf("%d datagrams were lost, want the one for a client that is not connected", n)
		}
		end(conn)
	})
}

// TestSlowClient has a client take nothing: its worker has to wait, and the buffer has a bound.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		client, conn := connect(t, e, "")
		e.Send(conn.Addr(), "first")
		synctest.Wait() // the writer has it, and waits for the client
		kilobyte := strings.Repeat("x", 1024)
		for range 16 {
			e.Send(conn.Addr(), kilobyte)
		}
		if full := e.Output.Full(); len(full) != 0 {
			t.Error("a connection with 16 KiB is full, want more than that")
		}
		e.Send(conn.Addr(), kilobyte)
		if full := e.Output.Full(); len(full) != 1 || full[0] != conn.Addr() {
			t.Errorf("full are %v, want the client", full)
		}
		e.Send(conn.Addr(), kilobyte)
		if full := e.Output.Full(); len(full) != 0 {
			t.Error("a connection is reported as full twice")
		}
		for range 100 {
			e.Send(conn.Addr(), kilobyte)
		}
		if n := e.Stats().OutLost; n != 118-64 {
			t.Errorf("%d datagrams are lost, want all beyond 64 KiB", n)
		}
		client.takes <- nil
		synctest.Wait()
		if len(e.Writable) != 0 {
			t.Error("the worker may send again although 64 KiB wait")
		}
		client.takes <- nil
		if got := carriertest.Next(t, e.Writable, "the client took everything"); got != conn {
			t.Error("another connection is writable")
		}
		end(conn)
		if s := e.Stats(); s.Full != 1 || len(client.got) != 65 {
			t.Errorf("full %d times, %d datagrams arrived; want 1 and 65", s.Full, len(client.got))
		}
	})
}

// TestBuffersAreReused has a client get small datagrams, and then flushes of full ones: no buffer may be too small to be of use again.
func TestBuffersAreReused(t *testing.T) {
	e := carriertest.New(t, func(c *carrier.Config) { c.Start = func(*carrier.Conn) {} }) // the test calls Step
	seat, _, _ := e.Reserve(carrier.WebTransport, home, "")
	conn := seat.Open(discard{})
	full := make([]byte, 1200)
	flush := func(size int) {
		for range 4 {
			e.Output.Send(conn.Addr(), full[:size])
		}
		if err := e.Output.Flush(); err != nil || conn.Step() {
			t.Fatal("the connection ended: ", err)
		}
	}
	flush(3)
	flush(1200)
	if n := testing.AllocsPerRun(100, func() { flush(1200) }); n > 0 {
		t.Errorf("a flush of four datagrams allocates %.1f times, want none once the buffers have grown", n)
	}
}

// A discard is a client that takes everything.
type discard struct{}

func (discard) Write([][]byte) error { return nil }
func (discard) Close(carrier.Reason) {}

// A marking client confirms marks when the test has it do so.
type marking struct {
	client
	marks []uint32
}

func (m *marking) Mark(mark uint32) { m.marks = append(m.marks, mark) }

// TestUnconfirmed has datagrams leave for buffers on the way and stay there: the worker has to wait, and at last the connection ends.
func TestUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		seat, _, _ := e.Reserve(carrier.WebSocket, home, "")
		m := &marking{client: client{takes: make(chan error)}}
		close(m.takes)
		conn := seat.Open(m)
		defer end(conn)
		e.Send(conn.Addr(), "first")
		synctest.Wait()
		if room := conn.Room(); len(m.marks) != 1 || room < 15<<10 || room > 16<<10 {
			t.Errorf("%d marks, room for %d bytes; want a mark behind the first datagram, and 16 KiB", len(m.marks), room)
		}
		time.Sleep(10 * time.Millisecond)
		conn.Confirmed(m.marks[0])
		carriertest.Next(t, e.Writable, "the way is short")
		if room := conn.Room(); room >= 0 {
			t.Errorf("there is room for %d bytes, want any number", room)
		}
		e.Send(conn.Addr(), strings.Repeat("x", 20<<10))
		synctest.Wait()
		if full := e.Output.Full(); len(full) != 1 || conn.Room() != 0 || len(m.marks) != 2 {
			t.Errorf("full are %v, %d marks; want the client, which may have to confirm 20 KiB", full, len(m.marks))
		}
		time.Sleep(time.Second)
		conn.Confirmed(m.marks[1])
		carriertest.Next(t, e.Writable, "the client has everything")
		room := conn.Room()
		if room <= 0 || room >= 8<<10 {
			t.Errorf("there is room for %d bytes on a way that takes 20 KiB a second, want a tenth of that", room)
		}
		e.Send(conn.Addr(), strings.Repeat("y", room))
		synctest.Wait()
		if len(e.Output.Full()) != 1 || len(m.marks) != 3 {
			t.Errorf("%d marks, want another one when the room is used up", len(m.marks))
		}
		time.Sleep(carrier.WriteTimeout - time.Nanosecond)
		if e.Sweep(); conn.Ended() {
			t.Error("the connection ended too early")
		}
		time.Sleep(time.Nanosecond)
		e.Sweep()
		e.WantEnd(carrier.Slow, "the client confirms nothing, and the worker waits")
	})
}

func TestClientThatTakesNothing(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  carrier.Reason
	}{{carrier.WriteTimeout - 1, carrier.Lost}, {carrier.WriteTimeout, carrier.Slow}} {
		synctest.Test(t, func(t *testing.T) {
			e := carriertest.New(t, nil)
			client, conn := connect(t, e, "")
			e.Send(conn.Addr(), "something")
			synctest.Wait()
			time.Sleep(c.after) // in the time of the bubble
			client.takes <- errors.New("the write failed")
			e.WantEnd(c.want, "a write failed after "+c.after.String())
			end(conn)
			if len(client.closed) != 1 || client.closed[0] != c.want {
				t.Errorf("the client was told %v, want %v once", client.closed, c.want)
			}
		})
	}
}

// TestEndComesAfterDatagrams has a session end: its last datagram comes before the end of the connection.
func TestEndComesAfterDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		client, conn := connect(t, e, "")
		e.Output.Send(conn.Addr(), []byte("the DNP connection ends"))
		e.End(conn.Addr(), carrier.Over)
		e.WantEnd(carrier.Over, "the edge ended it")
		synctest.Wait()
		if len(client.closed) != 0 {
			t.Error("the connection ended before its last datagram was written")
		}
		client.takes <- nil
		end(conn)
		if len(client.got) != 1 || len(client.closed) != 1 || client.closed[0] != carrier.Over {
			t.Errorf("the client got %q and %v, want one datagram, then the end", client.got, client.closed)
		}
		if _, _, ok := e.Reserve(carrier.WebSocket, home, ""); !ok || e.Conn(conn.Addr()) != nil {
			t.Error("the place is not free again")
		}
	})
}

func TestNewerConnectionReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		token := e.Tokens.New(carrier.WebSocket)
		older, first := connect(t, e, token)
		_, second := connect(t, e, token)
		e.WantEnd(carrier.Replaced, "a newer connection took its place")
		end(first)
		if len(older.closed) != 1 || older.closed[0] != carrier.Replaced {
			t.Errorf("the older connection was told %v, want that it is replaced", older.closed)
		}
		if first.Addr() != second.Addr() || e.Conn(second.Addr()) != second {
			t.Error("the client has another address, or the edge does not know its newer connection")
		}
		if s := e.Stats(); s.Opened != 2 || s.Resumed != 2 || s.Conns[carrier.WebSocket] != 1 || s.Ended[carrier.Replaced] != 1 {
			t.Errorf("the counters are wrong: %+v", s)
		}
		end(second)
	})
}

// TestNewerConnectionIsFaster has a client come again, when it has its greeting, before the edge began its connection: the one that it asked for
// last stays.
func TestNewerConnectionIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		seat, _, _ := e.Reserve(carrier.WebSocket, home, e.Tokens.New(carrier.WebSocket))
		var greeting struct{ Token string }
		if err := json.Unmarshal(seat.Greeting(), &greeting); err != nil {
			t.Fatal(err)
		}
		_, second := connect(t, e, greeting.Token)
		older := &client{takes: make(chan error, 1)}
		first := seat.Open(older)
		e.WantEnd(carrier.Replaced, "the client has asked for another one since")
		end(first)
		if len(older.closed) != 1 || older.closed[0] != carrier.Replaced || e.Conn(second.Addr()) != second {
			t.Errorf("the older connection was told %v, want that it is replaced; the edge has the newer one: %v", older.closed, e.Conn(second.Addr()) == second)
		}
		end(second)
	})
}

// TestReceiveWaits has a worker be busy: the reader waits at a bound, and goes on when there is room or the connection ends.
func TestReceiveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		e.Hold.Store(true)
		_, conn := connect(t, e, "")
		done := make(chan error, 1)
		go func() {
			for range 5 {
				if err := conn.Receive(make([]byte, 30<<10)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		synctest.Wait()
		if n := len(e.Arrivals); n != 2 {
			t.Fatalf("%d datagrams of 30 KiB wait for the worker, want 2", n)
		}
		conn.Taken(30 << 10)
		synctest.Wait()
		if n := len(e.Arrivals); n != 3 {
			t.Fatalf("%d datagrams came, want one more when there is room", n)
		}
		conn.End(carrier.Over)
		if err := carriertest.Next(t, done, "the reader ends with the connection"); !errors.Is(err, carrier.ErrEnded) {
			t.Errorf("the reader got %v, want ErrEnded", err)
		}
		end(conn)
	})
}

// TestReceiveByTwo has two goroutines read, as for datagrams and a stream of WebTransport. Neither may be forgotten.
func TestReceiveByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		e.Hold.Store(true)
		_, conn := connect(t, e, "")
		const each = 100
		for _, size := range []int{60 << 10, 100} {
			go func() {
				for range each {
					if err := conn.Receive(make([]byte, size)); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		for range 2 * each {
			a := carriertest.Next(t, e.Arrivals, "both go on")
			conn.Taken(len(a.Data))
		}
		end(conn)
	})
}

func TestPlaces(t *testing.T) {
	here, there := home, netip.MustParseAddr("198.51.100.9")
	for _, c := range []struct {
		name  string
		limit func(*carrier.Config)
		want  carrier.Reason
		other bool // whether a client of another network may come
	}{
		{"all", func(c *carrier.Config) { c.ConnsMax = 2 }, carrier.Full, false},
		{"network", func(c *carrier.Config) { c.PerNetworkMax = 2 }, carrier.TooMany, true},
		{"rate", func(c *carrier.Config) { c.Admission = admit.Config{AddressRate: 0.5} }, carrier.TooMany, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			e := carriertest.New(t, func(cfg *carrier.Config) {
				cfg.Now = func() time.Time { return now }
				c.limit(cfg)
			})
			first, _, ok := e.Reserve(carrier.WebSocket, here, "")
			_, _, ok2 := e.Reserve(carrier.WebSocket, here, "")
			if !ok || !ok2 {
				t.Fatal("the edge refused a client that has a place")
			}
			if _, r, ok := e.Reserve(carrier.WebSocket, here, ""); ok || r != c.want {
				t.Errorf("a third client: %v, %v; want %v", ok, r, c.want)
			}
			if _, _, ok := e.Reserve(carrier.WebSocket, there, ""); ok != c.other {
				t.Errorf("a client of another network: %v, want %v", ok, c.other)
			}
			first.Release()
			now = now.Add(2 * time.Second)
			if _, r, ok := e.Reserve(carrier.WebSocket, here, ""); !ok {
				t.Errorf("refused with %v although a place is free again", r)
			}
			if n := e.Stats().Refused[c.want]; n == 0 {
				t.Error("refusals were not counted")
			}
		})
	}
}

// TestRateIsForNewClients has clients come again after an edge has died: no rate may keep them out.
func TestRateIsForNewClients(t *testing.T) {
	e := carriertest.New(t, func(c *carrier.Config) { c.Admission = admit.Config{AddressRate: 0.5} })
	for i := range 100 {
		if _, r, ok := e.Reserve(carrier.WebSocket, home, e.Tokens.New(carrier.WebSocket)); !ok {
			t.Fatalf("the edge refused resumption %d: %v", i, r)
		}
	}
}

func TestNotReady(t *testing.T) {
	e := carriertest.New(t, nil)
	e.Ready.Store(false)
	if _, r, ok := e.Reserve(carrier.WebSocket, home, ""); ok || r != carrier.NotReady {
		t.Errorf("an edge that is not ready: %v, %v", ok, r)
	}
	e.Ready.Store(true)
	e.Close()
	if _, r, ok := e.Reserve(carrier.WebSocket, home, ""); ok || r != carrier.NotReady {
		t.Errorf("an edge that has ended: %v, %v", ok, r)
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		seat, _, _ := e.Reserve(carrier.WebSocket, home, "")
		_, conn := connect(t, e, "")
		e.Close()
		e.WantEnd(carrier.Leaving, "the edge ends")
		end(conn)
		late := seat.Open(&client{takes: make(chan error)})
		e.WantEnd(carrier.Leaving, "the edge ended while the connection was made")
		end(late)
	})
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := carriertest.New(t, nil)
		active, kept := connect(t, e, "")
		_, idle := connect(t, e, "")
		close(active.takes)
		time.Sleep(59 * time.Second) // in the time of the bubble
		e.Send(kept.Addr(), "are you there?")
		synctest.Wait()
		time.Sleep(time.Second)
		e.Sweep()
		e.WantEnd(carrier.Silent, "the edge sent nothing for a minute")
		if !idle.Ended() || kept.Ended() {
			t.Error("the wrong connection ended")
		}
		end(idle)
		end(kept)
	})
}
