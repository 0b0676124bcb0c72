// The program viewers measures what a viewer of Second Life costs an edge: it runs relay dev, moves states, and compares the CPU time of
// the process without a client, with one by DNP, and with a viewer besides. With --first, there is no client by DNP, so that the edge
// follows the space for the viewer alone.
//
//	go -C testbed run ./cmd/viewers --bin ../bin
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge/lludp/viewertest"
	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/lludp/wire"
	"github.com/nats-io/nats.go"
)

func main() {
	var b bench
	flag.StringVar(&b.bin, "bin", "bin", "folder of the program relay")
	flag.IntVar(&b.states, "states", 2000, "states of the space")
	flag.IntVar(&b.hz, "hz", 10, "changes of each state per second")
	flag.DurationVar(&b.window, "window", 30*time.Second, "how long to measure, each time")
	flag.BoolVar(&b.first, "first", false, "the viewer is the only client")
	flag.StringVar(&b.http, "http", "", "address of the relay for profiles, such as 127.0.0.1:8499")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "viewers:", err)
		os.Exit(1)
	}
}

type bench struct {
	bin, http  string
	states, hz int
	window     time.Duration
	first      bool
}

func (b *bench) run(ctx context.Context) error {
	natsAddr, lludp, dnp := freePort("tcp"), freePort("udp"), freePort("udp")
	relay, err := proctest.Start("relay", exec.Command(filepath.Join(b.bin, "relay"), "dev", "--no-demo", "--nats-listen="+natsAddr.String(),
		"--listen=udp://"+dnp.String(), "--websocket=", "--webtransport=", "--http="+b.http, "--pprof="+strconv.FormatBool(b.http != ""), "--lludp="+lludp.String(), "--workers=1", "--session-send-rate=0"))
	if err != nil {
		return err
	}
	defer relay.Stop()
	var game *nats.Conn
	if err := relay.Await(ctx, 20*time.Second, "NATS answers", func() bool {
		game, err = nats.Connect("nats://" + natsAddr.String())
		return err == nil
	}); err != nil {
		return err
	}
	defer game.Close()
	if err := relay.Await(ctx, 20*time.Second, "the relay takes states", func() bool { return b.put(game) == nil }); err != nil {
		return err
	}
	moving, halt := context.WithCancel(ctx)
	defer halt()
	go b.move(moving, game)

	empty, err := b.measure(ctx, relay.PID())
	if err != nil {
		return err
	}
	idle := empty
	if !b.first {
		c, err := client.Dial(ctx, "udp://"+dnp.String(), client.Config{})
		if err != nil {
			return err
		}
		defer c.Close()
		if idle, err = b.measure(ctx, relay.PID()); err != nil {
			return err
		}
	}
	v, err := viewertest.Dial(ctx, lludp, wire.Opening{Code: 1})
	if err != nil {
		return err
	}
	defer v.Close()
	v.Throttle(10_000_000)
	if err := v.Until(ctx, func() bool { return len(v.Objects()) == b.states }); err != nil {
		return err
	}
	select { // the rate grows meanwhile
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	before := moves(ctx, v)
	busy, err := b.measure(ctx, relay.PID())
	if err != nil {
		return err
	}
	b.report(empty, idle, busy, before, moves(ctx, v))
	return nil
}

// report prints the CPU times, and how often objects moved between two counts.
func (b *bench) report(empty, idle, busy time.Duration, before, after []int) {
	least, sum := after[0], 0
	for id, n := range after {
		after[id] = n - before[id]
		sum += after[id]
		least = min(least, after[id])
	}
	seconds := b.window.Seconds()
	fmt.Printf("%d states at %d Hz: in %.0f s the process takes %.2f s of CPU with no client, ", b.states, b.hz, seconds, empty.Seconds())
	if !b.first {
		fmt.Printf("%.2f s with a client by DNP, ", idle.Seconds())
	}
	fmt.Printf("and %.2f s with a viewer besides, which so costs %.2f s\n", busy.Seconds(), (busy - idle).Seconds())
	fmt.Printf("the viewer got %.0f moves per second, %.1f of each object, and %.1f of the one with the fewest\n",
		float64(sum)/seconds, float64(sum)/seconds/float64(b.states), float64(least)/seconds)
}

// moves returns how often each object has moved.
func moves(ctx context.Context, v *viewertest.Viewer) []int {
	var list []int
	_ = v.Until(ctx, func() bool { // it is true at once
		for id := range len(v.Objects()) {
			if o := v.Objects()[uint32(id+1)]; o != nil {
				list = append(list, o.Moves)
			}
		}
		return true
	})
	return list
}

// measure returns the CPU time of a process over the window.
func (b *bench) measure(ctx context.Context, pid int) (time.Duration, error) {
	begin := proctest.CPU(pid)
	select {
	case <-time.After(b.window):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return proctest.CPU(pid) - begin, nil
}

// opsIn is how many ops are in a message.
const opsIn = 500

func (b *bench) publish(op func(i int) string, send func(body []byte) error) error {
	for i := 0; i < b.states; i += opsIn {
		var ops []string
		for k := i; k < min(i+opsIn, b.states); k++ {
			ops = append(ops, op(k))
		}
		if err := send([]byte(`{"ops":[` + strings.Join(ops, ",") + `]}`)); err != nil {
			return err
		}
	}
	return nil
}

const subject = "dnp.v1.publish.demo"

func (b *bench) put(game *nats.Conn) error {
	return b.publish(func(i int) string {
		return fmt.Sprintf(`{"op":"put","key":"o%d","values":[{"name":"pos","type":"vector3f32","value":[0,0,0]},{"name":"rot","type":"quaternionf16","value":[0,0,0,1]}]}`, i)
	}, func(body []byte) error {
		answer, err := game.Request(subject, body, 10*time.Second)
		if err == nil && strings.Contains(string(answer.Data), "error") {
			err = errors.New(string(answer.Data))
		}
		return err
	})
}

// move changes all states until ctx ends.
func (b *bench) move(ctx context.Context, game *nats.Conn) {
	ticker := time.NewTicker(time.Second / time.Duration(b.hz))
	defer ticker.Stop()
	for n := 0; ; n++ {
		err := b.publish(func(i int) string {
			return fmt.Sprintf(`{"op":"set","key":"o%d","values":{"pos":[%d,%d,%d]}}`, i, i%100, n%100, i/100)
		}, func(body []byte) error { return game.Publish(subject, body) })
		if err != nil {
			return // the relay has ended
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// freePort returns an address of loopback that nothing uses.
func freePort(kind string) netip.AddrPort {
	if kind == "tcp" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic("viewers: " + err.Error()) // there is always one
		}
		defer l.Close()
		return netip.MustParseAddrPort(l.Addr().String())
	}
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic("viewers: " + err.Error())
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.LocalAddr().String())
}
