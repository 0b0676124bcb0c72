package natsembed

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
)

// readyTimeout is how long the server may take to start. It takes milliseconds
// unless a large JetStream folder has to be recovered.
const readyTimeout = 30 * time.Second

// PayloadMax is the most bytes of one message. It leaves room for the largest
// reliable message of a client, 1 MiB, and its headers, which the default of NATS
// does not.
const PayloadMax = 2 << 20

// A Config says where the server listens and what it keeps.
type Config struct {
	// Listen is the TCP address for clients, as "127.0.0.1:4222"; port 0 means any
	// free one. If it is empty, only InProcessConn leads to the server.
	Listen string
	// Folder is where JetStream keeps its streams. It is made if it does not exist.
	// If it is empty, a temporary one is used, and removed by Shutdown.
	Folder string
	// Mappings are applied to what clients publish.
	Mappings []subject.Mapping
	// Log gets the server's warnings and errors; nil means nobody does.
	Log *slog.Logger
}

// A Server is a running NATS server.
type Server struct {
	srv       *server.Server
	temporary string // folder to remove
}

// Start starts a server and returns when it takes connections. Its error is one
// line that names the address or the folder.
func Start(cfg Config) (*Server, error) {
	host, port, err := listenAddress(cfg.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{}
	folder := cfg.Folder
	if folder == "" {
		if folder, err = os.MkdirTemp("", "dnprelay-nats-"); err != nil {
			return nil, fmt.Errorf("temporary folder for JetStream: %w", err)
		}
		s.temporary = folder
	}
	if err := s.start(cfg, folder, host, port); err != nil {
		s.Shutdown()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(cfg Config, folder, host string, port int) error {
	if err := checkFolder(folder); err != nil {
		return err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "dnprelay", Host: host, Port: port, DontListen: cfg.Listen == "",
		JetStream: true, StoreDir: folder, DisableJetStreamBanner: true,
		MaxPayload: PayloadMax,
		NoSigs:     true,
	})
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	for _, m := range cfg.Mappings {
		if err := srv.GlobalAccount().AddMapping(m.From, m.To); err != nil {
			return fmt.Errorf("map NATS subject %s to %s: %w", m.From, m.To, err)
		}
	}
	log := newLogger(cfg.Log)
	srv.SetLoggerV2(log, false, false, false)
	s.srv = srv
	srv.Start()
	if log.fatal.Load() == nil && srv.ReadyForConnections(readyTimeout) {
		return nil
	}
	return fmt.Errorf("NATS server: %s", log.reason())
}

// Shutdown stops the server and waits until it has stopped.
func (s *Server) Shutdown() {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
	if s.temporary != "" {
		// What cannot be removed from the temporary folder is the system's to clean.
		_ = os.RemoveAll(s.temporary)
	}
}

// URL returns where clients connect to.
func (s *Server) URL() string { return s.srv.ClientURL() }

// InProcessConn returns a connection that needs no socket. It makes Server a
// nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// listenAddress splits the address and makes sure that it can be had, because
// the server itself reports that only to its log.
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
		return "", 0, fmt.Errorf("NATS address %s is in use by another program", addr)
	case err != nil:
		return "", 0, fmt.Errorf("NATS address %s: %w", addr, err)
	}
	return host, port, l.Close()
}

// checkFolder makes the folder and a file in it.
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
