package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
)

// Times of connections.
const (
	attemptMax    = 5 * time.Second       // until an edge has greeted
	firstPause    = 50 * time.Millisecond // before a connection that was lost is made again, at most
	pauseMin      = 100 * time.Millisecond
	pauseMax      = 15 * time.Second
	retryAfterMax = time.Minute // that an edge can ask for

	// outageMax is how long a client tries to resume. Edges give a silent client up after 55 s
	// (dnp/DESIGN.md), so no session is left then.
	outageMax = time.Minute
)

// patienceTimes are when a connection counts as lost: when an edge has been silent for check, and then does not answer
// for answer.
type patienceTimes struct{ check, answer time.Duration }

var usualPatience = patienceTimes{check: 2 * time.Second, answer: 2 * time.Second}

// Limits of the greeting, which is the first that an edge says.
const (
	greetingMax   = 256
	tokenLen      = 64   // hexadecimal digits
	closeTextMax  = 1024 // bytes of a close reason
	datagramLimit = 65535
)

// Close codes of edges. Others mean that the connection is lost, and the session is not.
const (
	closeOver     = 1000 // the DNP connection ended
	closeUnknown  = 4000 // no edge has the session of the token
	closeReplaced = 4001 // a newer connection with the token took the place of this one
)

// A webConn is one connection. It owns no session: that is the token's.
type webConn interface {
	remote() netip.AddrPort

	// receive calls deliver for each datagram until the connection ends, maybe from two goroutines at
	// a time, and returns why: a *closeError if the edge said why.
	receive(deliver func([]byte)) error

	// send writes datagrams. It blocks for as long as the edge takes nothing, or until abort.
	send(b *batch) error

	// check asks the edge for a sign of life, and returns an error if none comes until ctx ends. A
	// connection that asks by itself reports answered = false, because it knows nothing.
	check(ctx context.Context) (answered bool, err error)

	// goodbye ends the connection when all that send wrote is on its way. abort cuts it short.
	goodbye()

	// abort ends the connection at once. Any goroutine may call it, more than once.
	abort()
}

// A closeError is an end for which the edge told a code.
type closeError struct {
	code int
	text string // a short name, and maybe "; retry-after=MS"
}

func (e *closeError) Error() string {
	name, _, _ := strings.Cut(e.text, ";")
	return fmt.Sprintf("the edge closed the connection: %s (%d)", name, e.code)
}

// A refusedError is an HTTP status in place of a connection.
type refusedError struct {
	status     int
	retryAfter string // the header
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.status, http.StatusText(e.status))
}

// passing reports whether the same request may succeed later.
func (e *refusedError) passing() bool {
	return e.status == http.StatusTooManyRequests || e.status >= 500
}

var (
	errGreeting = errors.New("the edge does not greet as one that speaks dnp.v1")
	errPin      = errors.New("the certificate is none of Config.CertificateHashes")
	errSession  = errors.New("no edge has the session any more")
)

// A dialer makes the connections of one session. It belongs to the goroutine that runs connect.
type dialer struct {
	open   func(ctx context.Context, token string) (conn webConn, greeting []byte, err error)
	host   string         // and port
	remote netip.AddrPort // of the first connection
	token  string         // of the session; empty before the first greeting
	made   bool           // there was a connection

	reliable bool // a connection loses nothing

	times    patienceTimes
	timeout  time.Duration // of the first connection
	failures int           // since a datagram came
	until    time.Time     // when to give up
}

// newDialer checks a URL.
func newDialer(text string, cfg *Config, times patienceTimes) (d dialer, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return d, fmt.Errorf("client: %w", err)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return d, fmt.Errorf("client: address %s: want %s://HOST:PORT/PATH and nothing else", text, u.Scheme)
	}
	host := cmp.Or(u.Hostname(), "127.0.0.1")
	u.Host = net.JoinHostPort(host, cmp.Or(u.Port(), "3480"))
	if u.Path == "" || u.Path == "/" {
		u.Path = "/dnp"
	}
	d = dialer{host: u.Host, timeout: cfg.Timeout, times: times}
	if u.Scheme == "wt" {
		u.Scheme = "https"
		d.open = webTransport{url: u.String(), tls: cfg.tls(host), times: times}.dial
	} else {
		d.reliable = true
		d.open = webSocket{url: u, tls: cfg.tls(host)}.dial
	}
	return d, nil
}

// pins returns Config.CertificateHashes as bytes.
func (cfg *Config) pins() (map[[sha256.Size]byte]bool, error) {
	pins := map[[sha256.Size]byte]bool{}
	for _, text := range cfg.CertificateHashes {
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("client: certificate hash %q: want 64 hex digits", text)
		}
		pins[[sha256.Size]byte(hash)] = true
	}
	return pins, nil
}

// tls returns the TLS configuration for connections to a host.
func (cfg *Config) tls(host string) *tls.Config {
	t := cfg.TLS.Clone()
	if t == nil {
		t = &tls.Config{}
	}
	if t.NextProtos = nil; t.ServerName == "" { // the carriers know their own protocols
		t.ServerName = host
	}
	pins, _ := cfg.pins() // validate has checked them
	if len(pins) == 0 {
		return t
	}
	t.InsecureSkipVerify = true // the hash says more than a chain
	verify := t.VerifyConnection
	t.VerifyConnection = func(s tls.ConnectionState) error {
		switch {
		case len(s.PeerCertificates) == 0 || !pins[sha256.Sum256(s.PeerCertificates[0].Raw)]:
			return errPin
		case verify != nil:
			return verify(s)
		}
		return nil
	}
	return t
}

// run keeps a connection until ctx ends or the session does.
func (w *webCarrier) run(ctx context.Context, conn webConn) {
	for {
		err := w.serve(ctx, conn)
		if w.lost(err) {
			w.failures = 0
		}
		if conn, err = w.connect(ctx, err); err != nil {
			w.inbox.end(err)
			return
		}
		w.begin()
	}
}

// serve moves datagrams until the connection or ctx ends, and returns why.
func (w *webCarrier) serve(ctx context.Context, conn webConn) error {
	received, stop, stopped := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() { received <- conn.receive(w.deliver) }() // until abort
	go func() { defer close(stopped); w.write(conn, stop) }()
	err, ended := w.watch(ctx, conn, received)
	if ctx.Err() != nil { // close wants the last datagrams to arrive
		impatience := time.AfterFunc(closeMax, conn.abort)
		close(stop)
		<-stopped
		conn.goodbye()
		impatience.Stop()
		conn.abort()
	} else {
		conn.abort()
		close(stop)
		<-stopped
	}
	if !ended {
		<-received
	}
	return err
}

// watch waits for the end of a connection, and looks whether the edge is still there. ended reports whether
// it took the error out of received.
func (w *webCarrier) watch(ctx context.Context, conn webConn, received <-chan error) (err error, ended bool) {
	ticks := time.NewTicker(w.times.check / 2)
	defer ticks.Stop()
	for {
		select {
		case err := <-received:
			return err, true
		case <-ctx.Done():
			return ctx.Err(), false
		case <-ticks.C:
		}
		if !w.quiet(w.times.check) {
			continue
		}
		if err := w.check(ctx, conn); err != nil && ctx.Err() == nil {
			conn.abort()
			return whyEnded(<-received, err), true
		}
	}
}

// check asks a silent edge for a sign of life.
func (w *webCarrier) check(ctx context.Context, conn webConn) error {
	ctx, cancel := context.WithTimeout(ctx, w.times.answer)
	defer cancel()
	answered, err := conn.check(ctx)
	if err != nil || !answered {
		return err
	}
	w.mu.Lock()
	w.heard = time.Now()
	w.mu.Unlock()
	return nil
}

// whyEnded prefers what the edge said.
func whyEnded(received, checked error) error {
	if _, said := errors.AsType[*closeError](received); said {
		return received
	}
	return checked
}

// write sends what the client flushes, and at the end what is left.
func (w *webCarrier) write(conn webConn, stop <-chan struct{}) {
	var sending batch
	for last := false; !last; {
		select {
		case <-w.outward:
		case <-stop:
			last = true
		}
		sending = w.take(sending)
		if sending.empty() {
			continue
		}
		if conn.send(&sending) != nil {
			conn.abort() // receive tells why
			return
		}
		sending.reset()
	}
}

// connect makes a connection, after err, which is why there is none; nil at the beginning. The error is
// that of ctx, or an *EndError.
func (d *dialer) connect(ctx context.Context, err error) (webConn, error) {
	if !d.made {
		d.until = time.Now().Add(d.timeout)
	}
	for {
		if err != nil {
			if err := d.pause(ctx, err); err != nil {
				return nil, err
			}
		}
		var conn webConn
		if conn, err = d.attempt(ctx); err == nil {
			return conn, nil
		}
	}
}

// pause waits before the next attempt. It returns an error if there is no use in one.
func (d *dialer) pause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if reason, over := d.verdict(err); over {
		return d.endError(reason, err)
	}
	now := time.Now()
	if d.made && d.failures == 0 {
		d.until = now.Add(outageMax)
	}
	pause := retryPause(d.failures, retryAfter(err), rand.Float64())
	d.failures++
	if now.Add(pause).After(d.until) {
		return d.endError(unreachable(err), err)
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *dialer) endError(r Reason, err error) error {
	return &EndError{Address: d.host, Reason: r, Err: err}
}

// verdict says whether the session is over, or a client without one has no hope. A client that has one goes on
// trying: only one of the edges may be wrong.
func (d *dialer) verdict(err error) (reason Reason, over bool) {
	if errors.Is(err, errSession) {
		return Unknown, true
	}
	if closed, ok := errors.AsType[*closeError](err); ok {
		switch closed.code {
		case closeOver:
			return Peer, true
		case closeUnknown:
			return Unknown, true
		case closeReplaced:
			return Replaced, true
		}
		return "", false
	}
	if d.made {
		return "", false
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return Rejected, !refused.passing()
	}
	return Lost, hopeless(err)
}

// hopeless reports whether an error will come again.
func hopeless(err error) bool {
	if errors.Is(err, errGreeting) || errors.Is(err, errPin) {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok { // it speaks something else than TLS
		return true
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.IsNotFound
	}
	e, ok := errors.AsType[*quic.TransportError](err)
	return ok && e.ErrorCode.IsCryptoError()
}

// unreachable returns the reason of a client that gives up.
func unreachable(err error) Reason {
	_, closed := errors.AsType[*closeError](err)
	_, refused := errors.AsType[*refusedError](err)
	if closed || refused {
		return Rejected
	}
	return Timeout
}

// retryPause returns how long to wait before the next attempt after so many failures. The edge asks for after; r in
// [0, 1) spreads many clients that lost their connections together.
func retryPause(failures int, after time.Duration, r float64) time.Duration {
	pause := time.Duration(r * float64(firstPause))
	if failures > 0 {
		most := min(pauseMin<<min(failures-1, 16), pauseMax)
		pause = most/2 + time.Duration(r*float64(most/2))
	}
	return max(pause, after+time.Duration(r*float64(after)/2))
}

// retryAfter returns how long the edge asks to wait.
func retryAfter(err error) time.Duration {
	text, unit := "", time.Millisecond
	if closed, ok := errors.AsType[*closeError](err); ok {
		_, text, _ = strings.Cut(closed.text, "; retry-after=")
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		text, unit = refused.retryAfter, time.Second
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*unit, retryAfterMax)
}

// attempt makes one connection.
func (d *dialer) attempt(ctx context.Context) (webConn, error) {
	within := attemptMax
	if !d.made {
		within = min(within, time.Until(d.until))
	}
	dialing, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, text, err := d.open(dialing, d.token)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	g, err := parseGreeting(text)
	if err == nil && d.token != "" && !g.Resumed {
		err = errSession
	}
	if err != nil {
		conn.abort()
		return nil, err
	}
	d.token = g.Token
	return conn, nil
}

// A greeting names the session. Resumed reports whether it is the one that the client asked for.
type greeting struct {
	Token   string `json:"token"`
	Resumed bool   `json:"resumed"`
}

func parseGreeting(text []byte) (g greeting, err error) {
	if len(text) > greetingMax || json.Unmarshal(text, &g) != nil || len(g.Token) != tokenLen || strings.Trim(g.Token, "0123456789abcdef") != "" {
		return greeting{}, errGreeting
	}
	return g, nil
}

// addrPort returns a network address as one of package netip. Carriers need some valid address.
func addrPort(a net.Addr) netip.AddrPort {
	if p, err := netip.ParseAddrPort(a.String()); err == nil {
		return p
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 1)
}
