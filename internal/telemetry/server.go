package telemetry

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Config says what a Server shows of a node that has begun.
type Config struct {
	// Telemetry collects the metrics. It must not be nil, and belongs to the caller.
	Telemetry *Telemetry

	// Health is called for each request of /readyz, from any goroutine. It must not be nil.
	Health func() Health

	// Metrics are shown at /metrics, with those of the Go runtime and of the process, and
	// sent to a collector if the environment asks for that.
	Metrics []Metric

	// Drain, if not nil, is called for each POST /drain, from any goroutine, and begins the
	// drain.
	Drain func(tell func(Drain))

	// Pages are JSON below /debug/, by name. They are called for each request, from any goroutine.
	Pages map[string]func(ctx context.Context) (any, error)

	// Pprof serves /debug/pprof.
	Pprof bool

	// TokenFile has the token that requests must carry if they change something or ask for
	// /debug; see ReadToken. If it is empty, such requests must come from loopback.
	TokenFile string
}

// Bounds of what a request can cost. They are arbitrary, and ample for scrapers.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 90 * time.Second // a CPU profile takes 30 s
	headerBytesMax  = 16 << 10
	shutdownTimeout = 2 * time.Second
)

// A Server shows one node, first one that waits for what it needs to begin, and after Show one that has begun. The port stays
// open in between, because a probe that finds it closed takes the node for dead.
type Server struct {
	addr     string
	listener net.Listener // nil if nothing is shown
	http     *http.Server
	handler  atomic.Pointer[http.Handler]
	ended    chan struct{} // closed when the server has ended; nil if nothing is shown
	err      error         // of the server that has ended
}

// Listen opens addr, a TCP address as 127.0.0.1:8413, and serves /livez and /readyz, for which missing says what the node waits for.
// It is called for each request, from any goroutine. With an empty address the Server shows nothing, and Run only waits. The caller calls Run or
// Close. The error is one line for the operator.
func Listen(addr string, missing func() []string) (*Server, error) {
	s := &Server{addr: addr}
	if addr == "" {
		return s, nil
	}
	listener, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("health and metrics: %s is in use by another program; --http chooses another address", addr)
	case err != nil:
		return nil, fmt.Errorf("health and metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", serveLive)
	mux.HandleFunc("GET /readyz", serveReady(func() Health { return Health{Missing: missing()} }))
	s.show(mux)
	s.listener, s.ended = listener, make(chan struct{})
	s.http = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.handler.Load()).ServeHTTP(w, r) }),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		MaxHeaderBytes:    headerBytesMax,
	}
	go func() {
		defer close(s.ended)
		s.err = s.http.Serve(listener)
	}()
	return s, nil
}

func (s *Server) show(h http.Handler) { s.handler.Store(&h) }

// Show shows a node that has begun. The error is one line for the operator.
func (s *Server) Show(cfg Config) error {
	t := cfg.Telemetry
	if err := registerAll(t.meter(), append(t.metrics(), cfg.Metrics...)); err != nil || s.listener == nil {
		return err
	}
	s.show(routes(cfg, s.addr, t.registry))
	return nil
}

// Addr returns the address that Listen opened, or nil.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run waits until ctx ends, and then ends the Server.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-s.ended:
		return fmt.Errorf("health and metrics: %w", s.err)
	}
	if s.listener != nil {
		s.shutdown()
		<-s.ended
	}
	return nil
}

// Close ends the Server at once, also one that has ended.
func (s *Server) Close() {
	if s.listener != nil {
		_ = s.http.Close() // a client whose request breaks off asks again
		<-s.ended
	}
}

// shutdown waits up to shutdownTimeout for requests to end, and then ends them.
func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
}

func routes(cfg Config, addr string, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", serveLive)
	mux.HandleFunc("GET /readyz", serveReady(cfg.Health))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	if cfg.Drain != nil {
		mux.HandleFunc("POST /drain", serveDrain(cfg.Drain))
	}
	for name, page := range cfg.Pages {
		mux.HandleFunc("GET /debug/"+name, servePage(page))
	}
	if cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return guard(cfg.TokenFile, addr, mux)
}

// A Health is the answer of /readyz.
type Health struct {
	// Ready decides between 200 and 503, and so whether a load balancer sends traffic to
	// the node.
	Ready bool `json:"ready"`
	// Missing names what the node needs and does not have, as "nats". A node can be ready
	// although something is missing.
	Missing []string `json:"missing"`
}

func serveLive(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok\n")
}

func serveReady(health func() Health) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := health()
		if h.Missing == nil {
			h.Missing = []string{}
		}
		status := http.StatusOK
		if !h.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, h)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client went away
}

// pageTimeout is how long the node may take to make a page.
const pageTimeout = time.Second

func servePage(page func(context.Context) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		content, err := page(ctx)
		if err != nil {
			http.Error(w, "the node does not answer in time", http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, http.StatusOK, content)
	}
}

// What happens to the sessions of a node that drains.
const (
	SessionsHandedOver = "handed_over" // to other nodes; the node closes those that no other node takes over
	SessionsClosed     = "closed"
)

// A Drain is the answer to POST /drain.
type Drain struct {
	Sessions string `json:"sessions"`         // SessionsHandedOver or SessionsClosed
	Reason   string `json:"reason,omitempty"` // why no other node can take some of them over, if that is known
}

func serveDrain(drain func(tell func(Drain))) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		drain(func(d Drain) { writeJSON(w, http.StatusAccepted, d) })
	}
}

// tokenMin is the shortest length of a token in bytes: 128 bits in base64, which cannot be
// guessed.
const tokenMin = 22

// ReadToken reads a file with a token: one word of at least 22 bytes.
func ReadToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < tokenMin || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s: want one word of at least %d bytes", file, tokenMin)
	}
	return token, nil
}

// guard passes on requests that only read public data. A request that changes something, or
// shows the inside of the process, needs the token in a file; guard reads the file for each
// such request, so that an operator can replace it. Without a file such a request must come
// from this machine, and not from a web page in a browser on it. addr is where the node
// listens.
func guard(file, addr string, next http.Handler) http.Handler {
	listen := hostname(addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case public(r):
		case file == "" && !(local(r) && forLocal(r, listen) && ofNoPage(r)):
			http.Error(w, "without --http-token this request is served only to programs on this machine that ask for 127.0.0.1 or localhost", http.StatusForbidden)
			return
		case file != "" && !hasToken(r, file):
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this request needs the token of --http-token, as Authorization: Bearer", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// public reports whether a request changes nothing and reads what everyone may see.
func public(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(r.URL.Path, "/debug/")
}

func local(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// forLocal reports whether a request asks for this machine by an address of loopback,
// localhost, or the name in --http. A web page that makes a name of its own resolve to
// 127.0.0.1 (DNS rebinding) asks for that name. Browsers do not say from where they ask for
// 0.0.0.0, which is this machine, too.
func forLocal(r *http.Request, listen string) bool {
	host := hostname(r.Host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost") || host != "" && strings.EqualFold(host, listen)
}

func hostname(hostport string) string { return (&url.URL{Host: hostport}).Hostname() }

// ofNoPage reports whether a request is not one of a web page of another site. The rules of
// the library regard a GET as harmless; here they judge it as a POST, because a profile slows
// the process down.
func ofNoPage(r *http.Request) bool {
	r = r.WithContext(r.Context())
	r.Method = http.MethodPost
	return http.NewCrossOriginProtection().Check(r) == nil
}

// hasToken compares digests, which takes the same time for every token.
func hasToken(r *http.Request, file string) bool {
	want, err := ReadToken(file)
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if err != nil || !ok {
		return false
	}
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
