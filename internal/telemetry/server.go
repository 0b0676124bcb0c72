package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Config says what to show and where.
type Config struct {
	// Addr is the TCP address to listen on, as 127.0.0.1:8413. Empty means that
	// nothing is shown: Run then only waits.
	Addr string

	// Telemetry is whose metrics are shown. It must be there and belongs to the caller.
	Telemetry *Telemetry

	// Health is asked at each request of /readyz, from any goroutine. nil means
	// always ready.
	Health func() Health

	// Metrics are shown at /metrics, with those of the Go runtime and of the
	// process, and sent to a collector if the environment says so.
	Metrics []Metric

	// Drain, if set, is called for each POST /drain, from any goroutine, and begins it.
	Drain func() Drain

	// Pprof serves /debug/pprof.
	Pprof bool

	// TokenFile has the token that requests need which change something, and those for
	// /debug/pprof, see ReadToken. Empty means that they have to come from loopback.
	TokenFile string
}

// Bounds on what a visitor can cost. They are arbitrary, and ample for scrapers.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 90 * time.Second // a CPU profile takes 30 s
	headerBytesMax  = 16 << 10
	shutdownTimeout = 2 * time.Second
)

// A Server shows one node.
type Server struct {
	listener net.Listener // nil if nothing is shown
	http     *http.Server
}

// Listen opens the port of cfg. The error is one line for the operator.
func Listen(cfg Config) (*Server, error) {
	t := cfg.Telemetry
	if err := registerAll(t.meter(), append(t.metrics(), cfg.Metrics...)); err != nil {
		return nil, err
	}
	if cfg.Addr == "" {
		return &Server{}, nil
	}
	if cfg.Health == nil {
		cfg.Health = func() Health { return Health{Ready: true} }
	}
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, listenError(cfg.Addr, err)
	}
	return &Server{
		listener: listener,
		http: &http.Server{
			Handler:           routes(cfg, t.registry),
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       requestTimeout,
			WriteTimeout:      requestTimeout,
			MaxHeaderBytes:    headerBytesMax,
		},
	}, nil
}

func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("health and metrics: %s is in use by another program; --http chooses another address", addr)
	}
	return fmt.Errorf("health and metrics: %w", err)
}

// Addr returns the address that Listen opened, or nil.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run serves until ctx ends. It must be called once, even if ctx has ended,
// because it closes the port.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		s.shutdown()
		<-served
	}
	if err != nil {
		return fmt.Errorf("health and metrics: %w", err)
	}
	return nil
}

// shutdown lets requests end for a moment and then ends them.
func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // the requests that would not end
	}
}

func routes(cfg Config, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", serveLive)
	mux.HandleFunc("GET /readyz", serveReady(cfg.Health))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	if cfg.Drain != nil {
		mux.HandleFunc("POST /drain", serveDrain(cfg.Drain))
	}
	if cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return guard(cfg.TokenFile, mux)
}
