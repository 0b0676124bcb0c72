package lludp

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge/adapter"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Paths of the HTTP listener.
const (
	LoginPath = "/lludp/login"
	SeedPath  = "/lludp/seed/"
)

// Bounds of what a login says.
const (
	nameMax     = 63
	passwordMax = 256
	loginMax    = 1357 // bytes of a login message
)

// capabilities are those that a seed has.
var capabilities = []string{"EventQueueGet", "FetchInventoryDescendents2", "FetchLibDescendents2"}

// pollTime is how long a request for events waits for one, of which there are none. Viewers ask again at once. It is less
// than an answer by HTTP may take.
const pollTime = 8 * time.Second

// Routes returns what an HTTP server has to serve, by pattern.
func (s *Server) Routes() map[string]http.Handler {
	return map[string]http.Handler{
		"POST " + LoginPath:                          http.HandlerFunc(s.login),
		"POST " + SeedPath + "{secret}":              http.HandlerFunc(s.seed),
		"POST " + SeedPath + "{secret}/{capability}": http.HandlerFunc(s.capability),
	}
}

// login answers login_to_simulator.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case !s.cfg.Origins.Allow(r):
		http.Error(w, "pages of others may not log in", http.StatusForbidden)
		return
	case kind != "text/xml" && kind != "application/xml":
		http.Error(w, "want text/xml", http.StatusUnsupportedMediaType)
		return
	}
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	c, err := parseCall(body)
	if err == nil && c.method != "login_to_simulator" {
		err = errForm
	}
	if err != nil {
		s.count(&s.counts.Malformed)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	members := s.enter(r, c.members)
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(answer(members...)) // the viewer is gone
}

// readBody reads the body of a request, which it answers if that is too long.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestMax))
	if err != nil {
		http.Error(w, "want at most 32 KiB", http.StatusRequestEntityTooLarge)
	}
	return body, err == nil
}

// refusal is the answer to a login that is refused.
func refusal(reason, message string) []member {
	return []member{{"login", "false"}, {"reason", reason}, {"message", message}}
}

// enter logs a viewer in, and returns the answer.
func (s *Server) enter(r *http.Request, members map[string]string) []member {
	first, last := members["first"], members["last"]
	if first == "" || len(first) > nameMax || len(last) > nameMax {
		return refusal("key", "A first name is needed; names have at most 63 bytes.")
	}
	credentials, ok := s.credentials(members)
	if !ok {
		return refusal("key", "A token is needed, or the token or password is too long.")
	}
	public := s.public(r)
	if !public.Addr().Is4() {
		return refusal("presence", "This edge does not know its IPv4 address; its operator has to set --lludp-public.")
	}
	home := s.cfg.Proxies.Home(r)
	s.mu.Lock()
	ok = !s.closed && s.logins.reserve(home)
	s.mu.Unlock()
	if !ok {
		s.count(&s.counts.Full)
		return refusal("presence", "Too many logins are in progress. Please try again.")
	}
	p := s.newPeer(wire.Opening{Code: code(), Session: random(), Agent: random()}, home, first, last)
	p.seed = crand.Text()
	ctx, cancel := context.WithTimeout(r.Context(), joinTimeout)
	defer cancel()
	err := p.join(ctx, credentials)
	s.judged(err)
	s.mu.Lock()
	if err != nil || s.closed || !s.logins.free(p.opening.Code) {
		s.logins.release(home)
		s.mu.Unlock()
		if err == nil {
			p.leave()
		}
		return refusal(reason(err))
	}
	s.logins.put(p)
	s.seeds.put(p, time.Now())
	s.serve(p)
	s.mu.Unlock()
	s.cfg.Log.Debug("viewer logged in", "name", first+" "+last)
	return p.welcome(public, s.base(r)+SeedPath+p.seed)
}

// code returns a circuit code, which some viewers read as a signed number.
func code() uint32 {
	var b [4]byte
	_, _ = crand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint32(b[:]) >> 1
}

// credentials returns how the client logs in. The token is what viewers send for a second factor: any text, as it was
// typed. Passwords come as MD5 sums, which only the game's own service can compare.
func (s *Server) credentials(m map[string]string) (cfg client.Config, ok bool) {
	switch s.cfg.Auth {
	case "token":
		cfg.Token = m["token"]
		return cfg, cfg.Token != "" && len(cfg.Token) <= client.TokenMax // without one, the edge would wait for it
	case "callout":
		if len(m["passwd"]) > passwordMax {
			return cfg, false
		}
		login, err := json.Marshal(map[string]string{
			"protocol": "lludp", "first": m["first"], "last": m["last"], "passwd": m["passwd"], "token": m["token"],
		})
		cfg.Login = login
		return cfg, err == nil && len(login) <= loginMax
	}
	return cfg, true
}

// reason says why a client did not get in.
func reason(err error) (key, message string) {
	var ended *adapter.Ended
	var end *client.EndError
	switch {
	case errors.As(err, &ended):
		return "presence", "The region is " + ended.Reason.String() + ". Please try again."
	case errors.As(err, &end) && end.Reason == client.Refused:
		return "key", "The token or password is not valid."
	}
	return "presence", "The region does not answer. Please try again."
}

// public returns the address that the viewer is told.
func (s *Server) public(r *http.Request) netip.AddrPort {
	if s.cfg.Public.IsValid() {
		return s.cfg.Public
	}
	addr := s.addr.Addr().Unmap()
	if addr.IsUnspecified() {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			if a, err := netip.ParseAddrPort(local.String()); err == nil {
				addr = a.Addr().Unmap()
			}
		}
	}
	return netip.AddrPortFrom(addr, s.addr.Port())
}

// base returns the scheme and host by which the viewer came.
func (s *Server) base(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || s.cfg.Proxies.Trust(r) && r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// welcome is the answer to a login. The inventory has an empty folder of clothes, without which viewers do not start.
func (p *peer) welcome(public netip.AddrPort, seed string) []member {
	root, clothes, library := random(), random(), random()
	folder := func(id, parent wire.UUID, kind int, name string) []member {
		return []member{
			{"folder_id", text(id)}, {"parent_id", text(parent)}, {"name", name}, {"type_default", strconv.Itoa(kind)}, {"version", "1"},
		}
	}
	return []member{
		{"login", "true"}, {"message", "Welcome to " + p.server.cfg.Region},
		{"agent_id", text(p.opening.Agent)}, {"session_id", text(p.opening.Session)}, {"secure_session_id", text(random())},
		{"circuit_code", int(p.opening.Code)}, {"sim_ip", public.Addr().String()}, {"sim_port", int(public.Port())},
		{"region_x", regionAt}, {"region_y", regionAt}, {"seed_capability", seed},
		{"first_name", p.first}, {"last_name", p.last}, {"look_at", "[r1,r0,r0]"}, {"start_location", "last"},
		{"home", fmt.Sprintf("{'region_handle':[r%d,r%d], 'position':[r128,r128,r25], 'look_at':[r1,r0,r0]}", regionAt, regionAt)},
		{"agent_access", "PG"}, {"agent_access_max", "PG"}, {"seconds_since_epoch", int(time.Now().Unix())},
		{"inventory-root", []any{[]member{{"folder_id", text(root)}}}},
		{"inventory-skeleton", []any{folder(root, wire.UUID{}, 8, "My Inventory"), folder(clothes, root, 46, "Current Outfit")}},
		{"inventory-lib-root", []any{[]member{{"folder_id", text(library)}}}},
		{"inventory-lib-owner", []any{[]member{{"agent_id", text(library)}}}},
		{"inventory-skel-lib", []any{folder(library, wire.UUID{}, 8, "Library")}},
		{"login-flags", []any{[]member{{"stipend_since_login", "N"}, {"ever_logged_in", "Y"}, {"gendered", "Y"}, {"daylight_savings", "N"}}}},
		{"ui-config", []any{[]member{{"allow_first_life", "N"}}}},
		{"buddy-list", []any{}}, {"gestures", []any{}}, {"event_categories", []any{}}, {"event_notifications", []any{}},
		{"classified_categories", []any{}}, {"global-textures", []any{}},
	}
}

// regionAt is the place of the region in the grid, in metres; package viewer has the same.
const regionAt = 256000

// text returns a UUID as text.
func text(u wire.UUID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// seed answers which capabilities there are, whatever was asked for.
func (s *Server) seed(w http.ResponseWriter, r *http.Request) {
	if s.owner(w, r) == nil {
		return
	}
	var list []member
	for _, name := range capabilities {
		list = append(list, member{name, s.base(r) + SeedPath + r.PathValue("secret") + "/" + name})
	}
	reply(w, list)
}

// capability answers a request to one.
func (s *Server) capability(w http.ResponseWriter, r *http.Request) {
	p := s.owner(w, r)
	if p == nil {
		return
	}
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	switch name := r.PathValue("capability"); {
	case name == "EventQueueGet":
		id := p.poll.wait(r.Context(), p.gone, wantsNoMore(body))
		reply(w, []member{{"id", id}, {"events", []any{}}})
	case strings.HasPrefix(name, "Fetch"): // every folder is empty
		reply(w, []member{{"folders", []any{[]member{{"version", 1}, {"descendents", 0}, {"categories", []any{}}, {"items", []any{}}}}}})
	default:
		http.NotFound(w, r)
	}
}

// owner returns the viewer that a secret belongs to. It may be gone for a while: viewers say good-bye to their capabilities, too.
func (s *Server) owner(w http.ResponseWriter, r *http.Request) *peer {
	s.mu.RLock()
	p := s.seeds.get(r.PathValue("secret"))
	s.mu.RUnlock()
	if p == nil {
		http.NotFound(w, r)
	}
	return p
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", llsdType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(llsd(value)) // the viewer is gone
}

// A poll is the request of a viewer for events. A newer one ends it, so that a viewer has one at a time.
type poll struct {
	mu    sync.Mutex // requests are served by goroutines of their own
	id    int
	older chan struct{}
}

// wait waits until the viewer has to be answered, and returns a number for the answer.
func (p *poll) wait(ctx context.Context, gone <-chan struct{}, last bool) int {
	p.mu.Lock()
	p.id++
	id := p.id
	if p.older != nil {
		close(p.older)
	}
	newer := make(chan struct{})
	p.older = newer
	p.mu.Unlock()
	if last {
		return id
	}
	select {
	case <-time.After(pollTime):
	case <-gone:
	case <-newer:
	case <-ctx.Done():
	}
	return id
}

// seeds are the viewers by the secrets of their capabilities.
type seeds struct {
	bySecret map[string]*peer
	ended    []endedSeed // oldest first
}

type endedSeed struct {
	secret string
	at     time.Time
}

// seedLife is how long the capabilities of a viewer that is gone answer; seedsEnded is for how many at most.
const (
	seedLife   = 30 * time.Second
	seedsEnded = 1024
)

func newSeeds() seeds { return seeds{bySecret: map[string]*peer{}} }

func (s *seeds) get(secret string) *peer { return s.bySecret[secret] }

func (s *seeds) put(p *peer, now time.Time) {
	s.sweep(now)
	s.bySecret[p.seed] = p
}

// end notes that a viewer is gone.
func (s *seeds) end(p *peer, now time.Time) {
	if p.seed != "" {
		s.ended = append(s.ended, endedSeed{p.seed, now})
	}
	s.sweep(now)
}

func (s *seeds) sweep(now time.Time) {
	for len(s.ended) > 0 && (len(s.ended) > seedsEnded || now.Sub(s.ended[0].at) >= seedLife) {
		delete(s.bySecret, s.ended[0].secret)
		s.ended = s.ended[1:]
	}
}
