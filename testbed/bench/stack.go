//go:build linux

package bench

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/subject"
)

// startTimeout bounds the start of each process of a stack.
const startTimeout = 20 * time.Second

// shards is the number that relays and edges take without a flag.
const shards = 64

// Kinds of processes whose costs are separate. A stack ends them in this order.
const (
	edgeKind = iota
	relayKind
	natsKind
	generatorKind // this process
	kinds
)

// A Stack is the processes of one deployment.
type Stack struct {
	URL   string           // of NATS
	Edges []netip.AddrPort // for clients, by the carrier of the case
	HTTP  []string         // of the edges, for metrics and profiles
	Relay string           // the same of the relay

	monitor string // HTTP address of NATS

	roots *x509.CertPool // that clients trust; nil unless their carrier is WebTransport
	dir   string         // of temporary files; empty for none

	processes [generatorKind][]*proctest.Process
}

// StartStack starts NATS, a relay and edges, and returns when all are ready. The stack is
// not nil even with an error.
func (r *Runner) StartStack(ctx context.Context, c *Case) (s *Stack, err error) {
	s = &Stack{}
	if s.dir, err = os.MkdirTemp("", "dnp-bench-"); err != nil {
		return s, err
	}
	if err = r.startNATS(ctx, s); err == nil {
		s.Relay, err = r.startNode(ctx, s, relayKind, "relay", "relay", "--pprof", "--tick", r.Tick.String(), "--log-level", "warn")
	}
	if err == nil && c.Carrier == WebTransport {
		err = s.certify()
	}
	for i := 0; i < c.Edges && err == nil; i++ {
		err = r.startEdge(ctx, s, c, i)
	}
	if err == nil && r.Pin {
		err = s.pin()
	}
	return s, err
}

// startNATS starts a NATS server with the mappings of a deployment.
func (r *Runner) startNATS(ctx context.Context, s *Stack) error {
	listen, err := freeTCP()
	if err != nil {
		return err
	}
	if s.monitor, err = freeTCP(); err != nil {
		return err
	}
	s.URL = "nats://" + listen
	conf := fmt.Appendf(nil, "listen: %s\nhttp: %s\nmax_payload: 2MB\njetstream { store_dir: %q }\nmappings = {\n", listen, s.monitor, s.dir)
	for _, m := range (subject.Names{}).Mappings(shards) {
		conf = fmt.Appendf(conf, "  %q: %q\n", m.From, m.To)
	}
	file := filepath.Join(s.dir, "nats-server.conf")
	if err := os.WriteFile(file, append(conf, "}\n"...), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(r.Bin, "nats-server"), "-c", file)
	return s.start(ctx, natsKind, "NATS", cmd, func() bool { return answersTCP(listen) && answersTCP(s.monitor) })
}

// start starts a process and waits until it is ready.
func (s *Stack) start(ctx context.Context, kind int, name string, cmd *exec.Cmd, ready func() bool) error {
	p, err := proctest.Start(name, cmd)
	if err != nil {
		return err
	}
	s.processes[kind] = append(s.processes[kind], p)
	return p.Await(ctx, startTimeout, "is ready", ready)
}

// startNode starts a relay or an edge, and returns the address of its HTTP server.
func (r *Runner) startNode(ctx context.Context, s *Stack, kind int, program, name string, flags ...string) (web string, err error) {
	if web, err = freeTCP(); err != nil {
		return "", err
	}
	node := "bench-" + strings.ReplaceAll(name, " ", "-")
	flags = append([]string{"serve", "--nats-url", s.URL, "--http", web, "--node", node}, flags...)
	return web, s.start(ctx, kind, name, exec.Command(filepath.Join(r.Bin, program), flags...), func() bool { return ready(web) })
}

func (r *Runner) startEdge(ctx context.Context, s *Stack, c *Case, i int) error {
	addr, err := freeUDP()
	if err != nil {
		return err
	}
	flags := []string{
		"--pprof", "--listen", "udp://" + addr.String(), "--workers", strconv.Itoa(r.Workers),
		"--flush", r.Flush.String(), "--open-space", c.space(i), "--log-level", "error",
	}
	if !r.Limits { // thousands of clients connect at once
		flags = append(flags, "--address-rate", "0", "--sessions-per-address", "0", "--session-datagram-rate", "0", "--session-byte-rate", "0", "--session-send-rate", "0")
	}
	if c.Carrier != UDP {
		var more []string
		if addr, more, err = s.web(c.Carrier); err != nil {
			return err
		}
		flags = append(flags, more...)
	}
	web, err := r.startNode(ctx, s, edgeKind, "edge", fmt.Sprintf("edge %d", i), flags...)
	s.Edges, s.HTTP = append(s.Edges, addr), append(s.HTTP, web)
	return err
}

// web returns an address for clients that do not speak UDP, and the flags with which an edge serves them.
func (s *Stack) web(carrier Carrier) (addr netip.AddrPort, flags []string, err error) {
	flags = []string{"--" + carrier.String(), "", "--websocket-connections", strconv.Itoa(clientsMax)}
	if carrier == WebTransport {
		addr, err = freeUDP()
		flags = append(flags, "--tls-cert", filepath.Join(s.dir, certFile), "--tls-key", filepath.Join(s.dir, keyFile))
	} else if flags[1], err = freeTCP(); err == nil {
		addr, err = netip.ParseAddrPort(flags[1])
	}
	flags[1] = addr.String()
	return addr, flags, err
}

// Files of Stack.dir.
const (
	certFile = "cert.pem"
	keyFile  = "key.pem"
)

// certify makes the certificate of the edges.
func (s *Stack) certify() error {
	cert, _, err := certificate.Own(time.Now())
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(certPEM)
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, certFile), certPEM, 0o600),
		os.WriteFile(filepath.Join(s.dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
}

// pin binds the edges to core 0 and everything else to core 1.
func (s *Stack) pin() error {
	err := proctest.Pin(os.Getpid(), 1)
	for kind, list := range s.processes {
		for _, p := range list {
			err = errors.Join(err, proctest.Pin(p.PID(), min(kind, 1)))
		}
	}
	return err
}

// Stop ends all processes.
func (s *Stack) Stop() {
	for _, p := range slices.Concat(s.processes[:]...) {
		p.Stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // what remains is small, and of no use
	}
}

// Check returns an error for each process that has ended.
func (s *Stack) Check() (err error) {
	for _, p := range slices.Concat(s.processes[:]...) {
		err = errors.Join(err, p.Ended())
	}
	return err
}

// usage is the CPU time of each kind of processes.
type usage [kinds]time.Duration

func (s *Stack) usage() (u usage) {
	for kind, list := range s.processes {
		for _, p := range list {
			u[kind] += proctest.CPU(p.PID())
		}
	}
	u[generatorKind] = proctest.CPU(os.Getpid())
	return u
}

// An Expense is the CPU time that the processes of a stack have used.
type Expense struct {
	Edges                  []time.Duration // each of them
	Relay, NATS, Generator time.Duration
}

// Expense returns what the processes have used so far.
func (s *Stack) Expense() Expense {
	all := s.usage()
	e := Expense{Relay: all[relayKind], NATS: all[natsKind], Generator: all[generatorKind]}
	for _, p := range s.processes[edgeKind] {
		e.Edges = append(e.Edges, proctest.CPU(p.PID()))
	}
	return e
}

// monitorMax bounds the answer of the monitor of NATS, which is a few KiB.
const monitorMax = 1 << 20

// NATSBytes returns how many bytes of messages NATS has received and sent.
func (s *Stack) NATSBytes(ctx context.Context) (in, out int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitor+"/varz", nil)
	if err != nil {
		return 0, 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, 0, fmt.Errorf("monitor of NATS: %w", err)
	}
	defer answer.Body.Close()
	var said struct {
		In  int64 `json:"in_bytes"`
		Out int64 `json:"out_bytes"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, monitorMax)).Decode(&said); err != nil {
		return 0, 0, fmt.Errorf("monitor of NATS: %w", err)
	}
	return said.In, said.Out, nil
}

// RSS returns the resident memory of the edges in bytes.
func (s *Stack) RSS() (sum int64) {
	for _, e := range s.processes[edgeKind] {
		sum += proctest.RSS(e.PID())
	}
	return sum
}

// freeTCP and freeUDP return an address of this machine with a free port.
func freeTCP() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func freeUDP() (netip.AddrPort, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return netip.AddrPort{}, err
	}
	return c.LocalAddr().(*net.UDPAddr).AddrPort(), c.Close()
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

// metrics are the samples of each edge.
type metrics []map[string]float64

func (m metrics) sum(name string) (sum float64) {
	for _, edge := range m {
		sum += edge[name]
	}
	return sum
}

func (s *Stack) metrics(ctx context.Context) (m metrics, err error) {
	for _, addr := range s.HTTP {
		one, err := proc.Metrics(ctx, http.DefaultClient, addr)
		if err != nil {
			return m, fmt.Errorf("metrics of an edge: %w", err)
		}
		m = append(m, one)
	}
	return m, nil
}

// Drops returns the drop counters of the edges, by reason, for reports of failures.
func (s *Stack) Drops() (text string) {
	all, err := s.metrics(context.Background())
	for _, edge := range all {
		for _, name := range slices.Sorted(maps.Keys(edge)) {
			if strings.Contains(name, "drops_total{") && edge[name] != 0 {
				_, reason, _ := strings.Cut(name, `reason="`)
				text += fmt.Sprintf(" %s=%.0f", strings.TrimSuffix(reason, `"}`), edge[name])
			}
		}
	}
	if err != nil {
		text += " " + err.Error()
	}
	return text
}
