//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// rawClients are subscribers that speak the protocol of NATS themselves, with the
// least that it takes, so that nats-server is measured and not a client library.
type rawClients struct {
	conns []net.Conn
	wait  sync.WaitGroup
	got   atomic.Uint64
}

// rawBytes is what an update carries as a raw message: a position and a rotation.
const rawBytes = 28

func rawSubject(c *Case, state int) string {
	group := 0
	if c.groups() > 0 {
		group = c.group(state)
	}
	return fmt.Sprintf("raw.%d.%d", group, state)
}

// dialRaw connects a subscriber for every client of a case.
func dialRaw(c *Case, url string) (*rawClients, error) {
	r := &rawClients{}
	for i := range c.Clients {
		group := 0
		if n := c.groups(); n > 0 {
			group = i % n
		}
		if err := r.dial(strings.TrimPrefix(url, "nats://"), group); err != nil {
			r.close()
			return nil, fmt.Errorf("raw subscriber: %w", err)
		}
	}
	return r, nil
}

func (r *rawClients) dial(addr string, group int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	r.conns = append(r.conns, conn)
	in := bufio.NewReaderSize(conn, 32<<10)
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB raw.%d.* 1\r\nPING\r\n", group); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("PONG")) {
			break
		}
	}
	r.wait.Go(func() { r.read(in) })
	return nil
}

// read counts messages until the connection ends.
func (r *rawClients) read(in *bufio.Reader) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if !bytes.HasPrefix(line, []byte("MSG ")) {
			continue
		}
		size, err := strconv.Atoi(string(bytes.TrimSpace(line[bytes.LastIndexByte(line, ' '):])))
		if err != nil {
			return
		}
		if _, err := in.Discard(size + 2); err != nil {
			return
		}
		r.got.Add(1)
	}
}

func (r *rawClients) close() {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.wait.Wait()
}

// window publishes the updates of a window as raw messages and returns the CPU time
// of NATS for each that was delivered, in ns.
func (r *rawClients) window(ctx context.Context, p *publisher, s *stack, window time.Duration) (float64, error) {
	c := p.c
	data, n := make([]byte, rawBytes), uint32(max(1, window/c.period()))
	line := timeline{start: time.Now().Add(10 * time.Millisecond), period: c.period()}
	before, cpuBefore := r.got.Load(), cpu(s.nats.pid())
	err := everyTick(ctx, line, n, func(tick uint32) error {
		for i := range c.active() {
			if !p.script.changes(i, 0, tick) && !p.script.changes(i, 1, tick) {
				continue
			}
			if err := p.nc.Publish(rawSubject(c, i), data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	r.settle()
	got := r.got.Load() - before
	if got == 0 {
		return 0, fmt.Errorf("raw subscribers got nothing")
	}
	return float64(cpu(s.nats.pid())-cpuBefore) / float64(got), nil
}

// settle waits until nothing more comes.
func (r *rawClients) settle() {
	for last := r.got.Load(); ; {
		time.Sleep(50 * time.Millisecond)
		got := r.got.Load()
		if got == last {
			return
		}
		last = got
	}
}
