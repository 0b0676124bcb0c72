//go:build linux

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"golang.org/x/sys/unix"
)

// startTimeout bounds the start of each process of a stack.
const startTimeout = 20 * time.Second

// A Stack is the processes of one deployment.
type Stack struct {
	URL   string   // of NATS
	Ports []uint16 // of the edges, UDP
	HTTP  []string // of the edges, for metrics and profiles

	nats, relay *proc.Process
	edges       []*proc.Process
}

// startStack starts NATS, a relay and edges, and returns when all are ready. The stack is
// not nil even with an error.
func (r *Runner) startStack(ctx context.Context, edges int) (*Stack, error) {
	s := &Stack{}
	listen, err := freeTCP()
	if err != nil {
		return s, err
	}
	s.URL = "nats://" + listen
	s.nats, err = start(ctx, "NATS", r.cfg.Self, func() bool { return answersTCP(listen) }, "bench-nats", listen)
	if err == nil {
		err = r.startRelay(ctx, s)
	}
	for i := 0; i < edges && err == nil; i++ {
		err = r.startEdge(ctx, s, i)
	}
	if err == nil {
		err = r.pinStack(s)
	}
	return s, err
}

// start starts a process and waits until it is ready.
func start(ctx context.Context, name, file string, ready func() bool, args ...string) (*proc.Process, error) {
	p := &proc.Process{Name: name, File: file, Args: args}
	if err := p.Start(); err != nil {
		return nil, err
	}
	return p, p.Await(ctx, startTimeout, "is ready", ready)
}

func (r *Runner) startRelay(ctx context.Context, s *Stack) error {
	web, err := freeTCP()
	if err != nil {
		return err
	}
	s.relay, err = start(ctx, "relay", filepath.Join(r.cfg.Bin, "relay"), func() bool { return ready(web) },
		"serve", "--nats-url", s.URL, "--http", web, "--node", "bench-relay", "--tick", r.cfg.Tick.String(), "--log-level", "warn")
	return err
}

func (r *Runner) startEdge(ctx context.Context, s *Stack, i int) error {
	web, err := freeTCP()
	if err != nil {
		return err
	}
	port, err := freePort(unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	args := []string{
		"serve", "--nats-url", s.URL, "--http", web, "--node", fmt.Sprintf("bench-edge-%d", i), "--pprof",
		"--listen", fmt.Sprintf("udp://127.0.0.1:%d", port), "--workers", strconv.Itoa(r.cfg.Workers),
		"--flush", r.cfg.Flush.String(), "--open-space", Space, "--log-level", "error",
	}
	if !r.cfg.Limits { // thousands of clients connect at once
		args = append(args, "--address-rate", "0", "--sessions-per-address", "0", "--session-datagram-rate", "0", "--session-byte-rate", "0", "--session-send-rate", "0")
	}
	p, err := start(ctx, fmt.Sprintf("edge %d", i), filepath.Join(r.cfg.Bin, "edge"), func() bool { return ready(web) }, args...)
	if p != nil {
		s.edges, s.Ports, s.HTTP = append(s.edges, p), append(s.Ports, port), append(s.HTTP, web)
	}
	return err
}

// pinStack binds the edges to core 0 and everything else to core 1.
func (r *Runner) pinStack(s *Stack) error {
	if !r.cfg.Pin {
		return nil
	}
	errs := []error{proc.Pin(os.Getpid(), 1), proc.Pin(s.nats.PID(), 1), proc.Pin(s.relay.PID(), 1)}
	for _, e := range s.edges {
		errs = append(errs, proc.Pin(e.PID(), 0))
	}
	return errors.Join(errs...)
}

func (s *Stack) stop() {
	for _, p := range append(append([]*proc.Process{}, s.edges...), s.relay, s.nats) {
		if p != nil {
			p.Stop()
		}
	}
}

// check returns an error for each process that has ended.
func (s *Stack) check() error {
	errs := []error{s.nats.Ended(), s.relay.Ended()}
	for _, e := range s.edges {
		errs = append(errs, e.Ended())
	}
	return errors.Join(errs...)
}

// usage is the CPU time of the processes of a stack, in this order: edges, relay, NATS,
// generator.
type usage [4]time.Duration

func (s *Stack) usage() (u usage) {
	for _, e := range s.edges {
		u[0] += proc.CPU(e.PID())
	}
	u[1], u[2], u[3] = proc.CPU(s.relay.PID()), proc.CPU(s.nats.PID()), proc.CPU(os.Getpid())
	return u
}

func (u usage) sub(v usage) usage {
	for i := range u {
		u[i] -= v[i]
	}
	return u
}

// RSS returns the resident memory of the edges in bytes.
func (s *Stack) RSS() (sum int64) {
	for _, e := range s.edges {
		sum += proc.RSS(e.PID())
	}
	return sum
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
	_ = c.Close() // the answer is enough
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

// A memory is the metrics of an edge about its own memory.
type memory struct {
	allocations float64 // since the start
	bytes       float64
	collections float64
	pauseMax    time.Duration // of the last few collections
}

// scrape sums the metrics of all edges.
func (s *Stack) scrape() (m memory, err error) {
	for _, addr := range s.HTTP {
		if err := m.scrape("http://" + addr + "/metrics"); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m *memory) scrape(url string) error {
	answer, err := http.Get(url)
	if err != nil {
		return fmt.Errorf("metrics of an edge: %w", err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch name {
		case "go_memstats_mallocs_total":
			m.allocations += v
		case "go_memstats_alloc_bytes_total":
			m.bytes += v
		case "go_gc_duration_seconds_count":
			m.collections += v
		case `go_gc_duration_seconds{quantile="1"}`:
			m.pauseMax = max(m.pauseMax, time.Duration(v*float64(time.Second)))
		}
	}
	return lines.Err()
}

// Drops returns the drop counters of the edges, by reason, for reports of failures.
func (s *Stack) Drops() (text string) {
	for _, addr := range s.HTTP {
		answer, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return text + " " + err.Error()
		}
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if strings.Contains(name, "drops_total{") && value != "0" {
				_, reason, _ := strings.Cut(name, `reason="`)
				text += " " + strings.TrimSuffix(reason, `"}`) + "=" + value
			}
		}
		_ = answer.Body.Close()
	}
	return text
}
