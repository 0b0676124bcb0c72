package console

import (
	"cmp"
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
	"github.com/dnprelay/dnprelay/subject"
)

//go:embed assets
var assets embed.FS

// Bounds of the server.
const (
	pagesMax    = 16              // copies of spaces, one for each page that is open
	opMax       = 64 << 10        // bytes of an operation
	opTimeout   = 5 * time.Second // for the answer of a relay
	cookieName  = "dnprelay_console"
	cookieLasts = 12 * time.Hour
)

// A Config says what a Server shows.
type Config struct {
	Bus      *natsbus.Bus
	Subjects subject.Names
	Shards   int

	Space string // that the page shows first
	Token string // what a browser has to know; empty for no token, which is only for addresses of this machine
	Edit  bool   // whether the page may publish; NATS decides whether this program may
	Log   *slog.Logger
}

// A Server serves the page and what it asks for. It is an http.Handler.
type Server struct {
	cfg   Config
	asker ask.Asker
	mux   *http.ServeMux
	pages chan struct{} // one for each page that follows a space
}

// New returns a server.
func New(cfg Config) *Server {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	s := &Server{cfg: cfg, asker: ask.Asker{Conn: cfg.Bus.Conn(), Subjects: cfg.Subjects}, mux: http.NewServeMux(), pages: make(chan struct{}, pagesMax)}
	s.cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s.mux.Handle("GET /", http.FileServerFS(files))
	s.mux.HandleFunc("GET /api/about", s.about)
	s.mux.HandleFunc("GET /api/spaces", s.spaces)
	s.mux.HandleFunc("GET /api/nodes", s.nodes)
	s.mux.HandleFunc("GET /api/clients", s.clients)
	s.mux.HandleFunc("GET /api/why", s.why)
	s.mux.HandleFunc("GET /api/live", s.live)
	s.mux.HandleFunc("POST /api/publish", s.publish)
	s.mux.HandleFunc("POST /api/drain", s.drain)
	return s
}

// policy lets the page load what this server has, and nothing else, and lets no other page show it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	if !s.admit(w, r) {
		return
	}
	s.mux.ServeHTTP(w, r)
}

// admit reports whether a request may be answered, and answers it if not. Without a token the name in the
// request has to be an address or localhost: a page elsewhere whose name leads to this machine has another one.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Token == "" {
		if !local(r.Host) {
			problem(w, http.StatusForbidden, "forbidden", "open the page by an address or as localhost; other names need a token")
			return false
		}
		return true
	}
	if c, err := r.Cookie(cookieName); err == nil && s.knows(c.Value) {
		return true
	}
	if token := r.URL.Query().Get("token"); r.Method == http.MethodGet && r.URL.Path == "/" && s.knows(token) {
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: token, Path: "/", MaxAge: int(cookieLasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return false
	}
	problem(w, http.StatusUnauthorized, "unauthorized", "open the address that the program printed, which has the token")
	return false
}

func (s *Server) knows(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.cfg.Token)) == 1
}

// local reports whether the host of a request is an address or localhost.
func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// about says what the page has to know first.
func (s *Server) about(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"space": s.cfg.Space, "edit": s.cfg.Edit, "connected": s.cfg.Bus.Connected()})
}

// mayChange reports whether a request may change something, and answers it if not.
func (s *Server) mayChange(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case !s.cfg.Edit:
		problem(w, http.StatusForbidden, "forbidden", "the program was started without --edit")
	case r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Sec-Fetch-Site") == "cross-site":
		problem(w, http.StatusForbidden, "forbidden", "want JSON from the page of this server") // which no form can send
	default:
		return true
	}
	return false
}

// drain has an edge drain, and passes on what becomes of its sessions.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	if !s.mayChange(w, r) {
		return
	}
	node := r.URL.Query().Get("node")
	if !subject.ValidToken(node) {
		problem(w, http.StatusBadRequest, "bad_request", "want the name of an edge")
		return
	}
	what, err := s.asker.Drain(r.Context(), node)
	s.tell(w, what, err)
}

// publish passes an operation on to the relay that holds the space, and its answer back.
func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	if !s.mayChange(w, r) {
		return
	}
	space := r.URL.Query().Get("space")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, opMax))
	if err != nil || !subject.ValidToken(space) || !json.Valid(body) {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("want a space, and JSON of at most %d bytes", opMax))
		return
	}
	before := s.cfg.Bus.Conn().LastError()
	m, err := bus.Ask(r.Context(), s.cfg.Bus, bus.Msg{Subject: s.cfg.Subjects.Publish(space, ""), Data: body}, opTimeout)
	switch {
	case err != nil && ask.Refused(s.cfg.Bus.Conn(), before):
		problem(w, http.StatusForbidden, "forbidden", "the NATS user may not publish; the users game and admin may")
	case err != nil:
		s.tell(w, nil, fmt.Errorf("no relay answered: %w", err))
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(m.Data) // the browser is gone otherwise
	}
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // pages connect again
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the browser is gone otherwise
}

func problem(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": text}})
}
