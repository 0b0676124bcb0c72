//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout is how long the processes of a stack may take to be ready.
const startTimeout = 20 * time.Second

// A stack is the processes of one deployment.
type stack struct {
	nats, relay *process
	edges       []*process
	url         string   // of NATS
	ports       []uint16 // of the edges, UDP
	http        []string // of the edges, for metrics and profiles
}

// startStack starts NATS, a relay and edges, and returns when all are ready.
func (r *Runner) startStack(ctx context.Context, edges int) (s *stack, err error) {
	s = &stack{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	listen, err := freeTCP()
	if err != nil {
		return s, err
	}
	s.url = "nats://" + listen
	if s.nats, err = r.starter.start("NATS", r.cfg.Self, []string{"bench-nats", listen}, nil, nil); err != nil {
		return s, err
	}
	if err := s.nats.await(ctx, func() bool { return answersTCP(listen) }); err != nil {
		return s, err
	}
	if err := r.startRelay(ctx, s); err != nil {
		return s, err
	}
	for i := range edges {
		if err := r.startEdge(ctx, s, i); err != nil {
			return s, err
		}
	}
	return s, r.pinStack(s)
}

func (r *Runner) startRelay(ctx context.Context, s *stack) error {
	web, err := freeTCP()
	if err != nil {
		return err
	}
	s.relay, err = r.starter.start("relay", filepath.Join(r.cfg.Bin, "relay"), []string{
		"serve", "--nats-url", s.url, "--http", web, "--node", "bench-relay", "--tick", r.cfg.Tick.String(), "--log-level", "warn",
	}, nil, nil)
	if err != nil {
		return err
	}
	return s.relay.await(ctx, func() bool { return ready(web) })
}

func (r *Runner) startEdge(ctx context.Context, s *stack, i int) error {
	web, err := freeTCP()
	if err != nil {
		return err
	}
	port, err := freePort(unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	args := []string{
		"serve", "--nats-url", s.url, "--http", web, "--node", fmt.Sprintf("bench-edge-%d", i), "--pprof",
		"--listen", fmt.Sprintf("udp://127.0.0.1:%d", port), "--workers", strconv.Itoa(r.cfg.Workers),
		"--flush", r.cfg.Flush.String(), "--open-space", space, "--log-level", "error",
	}
	if !r.cfg.limits { // thousands of clients that come at once are what most cases are about
		args = append(args, "--address-rate", "0", "--sessions-per-address", "0", "--session-datagram-rate", "0", "--session-byte-rate", "0", "--session-send-rate", "0")
	}
	p, err := r.starter.start(fmt.Sprintf("edge %d", i), filepath.Join(r.cfg.Bin, "edge"), args, nil, nil)
	if err != nil {
		return err
	}
	s.edges, s.ports, s.http = append(s.edges, p), append(s.ports, port), append(s.http, web)
	return p.await(ctx, func() bool { return ready(web) })
}

// pinStack gives the edges core 0 and leaves the others to everything else.
func (r *Runner) pinStack(s *stack) error {
	if !r.cfg.Pin {
		return nil
	}
	errs := []error{pin(os.Getpid(), 1), pin(s.nats.pid(), 1), pin(s.relay.pid(), 1)}
	for _, e := range s.edges {
		errs = append(errs, pin(e.pid(), 0))
	}
	return errors.Join(errs...)
}

func (s *stack) stop() {
	for _, p := range append(append([]*process{}, s.edges...), s.relay, s.nats) {
		if p != nil {
			p.stop()
		}
	}
}

// check returns an error if some process is gone.
func (s *stack) check() error {
	errs := []error{s.nats.ended(), s.relay.ended()}
	for _, e := range s.edges {
		errs = append(errs, e.ended())
	}
	return errors.Join(errs...)
}

// usage is what the processes of a stack have used, in this order: edges, relay,
// NATS, generator.
type usage [4]time.Duration

func (s *stack) usage() (u usage) {
	for _, e := range s.edges {
		u[0] += cpu(e.pid())
	}
	u[1], u[2], u[3] = cpu(s.relay.pid()), cpu(s.nats.pid()), cpu(os.Getpid())
	return u
}

func (u usage) sub(v usage) usage {
	for i := range u {
		u[i] -= v[i]
	}
	return u
}

func (s *stack) rss() (sum int64) {
	for _, e := range s.edges {
		sum += rss(e.pid())
	}
	return sum
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// await waits until a process is as wanted.
func (p *process) await(ctx context.Context, good func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !good() {
		select {
		case <-p.done:
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", p.name, ctx.Err(), p.stderr.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func freeTCP() (string, error) {
	port, err := freePort(unix.SOCK_STREAM)
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

func answersTCP(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close() // it was only a question
	return true
}

func ready(addr string) bool {
	answer, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
