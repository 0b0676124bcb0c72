// Package natsembed runs a NATS server inside this process, so that `relay dev` and tests need no other
// program on the machine.
//
//	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:4222"})
//	...
//	defer srv.Shutdown()
//
// The server has JetStream on disk. With Mappings it maps publishes to the shard of their space, as every
// server of a real deployment must be configured to do.
package natsembed

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
)

// readyTimeout is how long the server may take to start. It takes milliseconds unless it has to recover a
// large JetStream folder.
const readyTimeout = 30 * time.Second

// PayloadMax is the largest message in bytes. Unlike the default of NATS, it has room for the largest
// reliable message of a client, 1 MiB, and its headers.
const PayloadMax = 2 << 20

// A Config says where the server listens and where it stores its streams.
type Config struct {
	// Listen is the TCP address for clients, such as "127.0.0.1:4222"; port 0 means any free one. If
	// it is empty, only InProcessConn leads to the server.
	Listen string
	// Folder is where JetStream stores its streams. Start makes it if it does not exist. If Folder is
	// empty, Start makes a temporary folder and Shutdown removes it.
	Folder string
	// Mappings map the subjects to which clients publish.
	Mappings []subject.Mapping
	// Log gets the server's warnings and errors; nil drops them.
	Log *slog.Logger
}

// A Server is a running NATS server.
type Server struct {
	srv       running
	temporary string // folder to remove
}

// running is *server.Server after its start. It is an interface for the compiler: each package that uses Server would compile the methods of
// all generic types of which *server.Server is made, which are 400.
type running interface {
	ClientURL() string
	InProcessConn() (net.Conn, error)
	Shutdown()
	WaitForShutdown()
}

// Start starts a server and returns when it accepts connections. Its error is one line that names the
// address or the folder.
func Start(cfg Config) (*Server, error) {
	host, port, err := listenAddress(cfg.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if cfg.Folder == "" {
		if cfg.Folder, err = os.MkdirTemp("", "dnprelay-nats-"); err != nil {
			return nil, fmt.Errorf("temporary folder for JetStream: %w", err)
		}
		s.temporary = cfg.Folder
	}
	if err := s.start(cfg, host, port); err != nil {
		s.Shutdown()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(cfg Config, host string, port int) error {
	if err := checkFolder(cfg.Folder); err != nil {
		return err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "dnprelay", Host: host, Port: port, DontListen: cfg.Listen == "",
		JetStream: true, StoreDir: cfg.Folder, DisableJetStreamBanner: true,
		MaxPayload: PayloadMax, NoSigs: true,
	})
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	for _, m := range cfg.Mappings {
		if err := srv.GlobalAccount().AddMapping(m.From, m.To); err != nil {
			return fmt.Errorf("map NATS subject %s to %s: %w", m.From, m.To, err)
		}
	}
	log := &logger{log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))}
	srv.SetLoggerV2(log, false, false, false)
	s.srv = srv
	srv.Start()
	if log.fatal.Load() == nil && srv.ReadyForConnections(readyTimeout) {
		return nil
	}
	if reason := log.fatal.Load(); reason != nil {
		return fmt.Errorf("NATS server: %s", *reason)
	}
	return fmt.Errorf("NATS server: not ready after %v", readyTimeout)
}

// Shutdown stops the server and waits until it has stopped.
func (s *Server) Shutdown() {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
	if s.temporary != "" {
		// The system cleans up the temporary files that cannot be removed.
		_ = os.RemoveAll(s.temporary)
	}
}

// URL returns the URL for clients.
func (s *Server) URL() string { return s.srv.ClientURL() }

// InProcessConn returns a connection that needs no socket. It makes Server a
// nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// ErrInUse is why Start cannot listen at an address that another program has.
var ErrInUse = errors.New("is in use by another program")

// listenAddress splits the address and checks that it is free, because the server reports that only to its
// log.
func listenAddress(addr string) (host string, port int, err error) {
	if addr == "" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("NATS address %q: want host:port", addr)
	}
	if port == 0 {
		return host, server.RANDOM_PORT, nil
	}
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", 0, fmt.Errorf("NATS address %s %w", addr, ErrInUse)
	case err != nil:
		return "", 0, fmt.Errorf("NATS address %s: %w", addr, err)
	}
	return host, port, l.Close()
}

// checkFolder checks that the folder can be made and written to.
func checkFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	f, err := os.CreateTemp(folder, ".writable-")
	if err != nil {
		return fmt.Errorf("data folder cannot be written: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// A logger passes the server's messages to slog and keeps its fatal error. The server calls it from many
// goroutines.
type logger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error("NATS server: " + text)
}

func (l *logger) Errorf(format string, v ...any) {
	l.log.Error("NATS server: " + fmt.Sprintf(format, v...))
}

func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("NATS server: " + fmt.Sprintf(format, v...))
}

// Noticef, Debugf and Tracef drop messages below warnings.
func (l *logger) Noticef(string, ...any) {}
func (l *logger) Debugf(string, ...any)  {}
func (l *logger) Tracef(string, ...any)  {}
