package login

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/auth"
)

// TestLines: the log shows why logins are not accepted, at a bounded rate, and nothing that a client sent.
func TestLines(t *testing.T) {
	var text strings.Builder
	a := &Authority{cfg: Config{
		Auth: AuthToken, Home: func(a netip.AddrPort) netip.AddrPort { return a }, Address: func(a netip.AddrPort) string { return a.Addr().String() }, Log: slog.New(slog.NewTextHandler(&text, nil)),
	}}
	a.keys.keys.Store(&auth.Keys{})
	judges := []*Judge{a.Judge(nil), a.Judge(nil)}
	start, from := time.Unix(1e9, 0), netip.MustParseAddrPort("192.0.2.1:5000")
	login := func(at time.Duration, message string) {
		t.Helper()
		for _, j := range judges {
			if verdict, _ := j.Func()(start.Add(at), from, []byte(message)); verdict != dnp.LoginRefuse {
				t.Fatalf("%q is not refused", message)
			}
		}
	}
	want := func(why string, lines ...string) {
		t.Helper()
		got := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
		if text.Len() == 0 {
			got = nil
		}
		text.Reset()
		if len(got) != len(lines) {
			t.Fatalf("%s: %q, want %d lines", why, got, len(lines))
		}
		for i, line := range lines {
			if !strings.Contains(got[i], "level=INFO") || !strings.HasSuffix(got[i], line) {
				t.Errorf("%s: %q, want %q", why, got[i], line)
			}
		}
	}
	const stranger = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJtYWxsb3J5In0.c2lnbmF0dXJl"
	login(0, stranger)
	want("two workers refuse it", `reason=bad_key address=192.0.2.1 left_out=0`)
	for i := range 99 {
		login(time.Duration(i)*100*time.Millisecond, stranger)
	}
	want("the same result again")
	login(5*time.Second, "short")
	want("another result", `reason=no_token address=192.0.2.1 left_out=0`)
	login(linePause, stranger)
	want("after a pause", `reason=bad_key address=192.0.2.1 left_out=199`)
	named, err := auth.Issue(ed25519.NewKeyFromSeed(make([]byte, 32)), auth.Claims{Client: "c", Space: "s", Expires: start.Add(time.Hour), ID: "1"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	login(2*linePause, named)
	want("the token names its key", `reason=bad_key address=192.0.2.1 left_out=1 key=139e3940e64b5491`)
	const loud = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEgbG91ZCBsaW5lIn0.eyJzdWIiOiJtYWxsb3J5In0.c2lnbmF0dXJl" // "kid":"a loud line"
	login(3*linePause, loud)
	want("what is no name of a key is not logged", `reason=bad_key address=192.0.2.1 left_out=1`)
	silent := func(at time.Duration, worker int, total uint64) { judges[worker].Silent(start.Add(at), total) }
	silent(0, 0, 0)
	want("every client sent a login")
	silent(time.Second, 0, 3)
	want("three did not", `msg="closing connections that sent no login in time" connections=3`)
	silent(2*time.Second, 0, 4)
	silent(3*time.Second, 1, 5)
	silent(3*time.Second, 0, 4)
	want("not again so soon")
	silent(time.Second+linePause, 1, 6)
	want("of both workers, after a pause", `connections=7`)
}

// TestAnswerOfService: what the game's service may answer about a login. Its session ends after a day at the latest.
func TestAnswerOfService(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	exp := func(in time.Duration) string {
		return fmt.Sprintf(`{"client":"c","space":"s","exp":%d}`, now.Add(in).Unix())
	}
	for _, c := range []struct {
		answer string
		want   auth.Reason
		ends   time.Duration
	}{
		{`{"client":"c","space":"s"}`, auth.None, 24 * time.Hour},
		{exp(time.Second), auth.None, time.Second},
		{exp(24 * time.Hour), auth.None, 24 * time.Hour},
		{exp(24*time.Hour + time.Second), auth.TooLong, 0},
		{exp(0), auth.Expired, 0},
		{exp(-time.Hour), auth.Expired, 0},
		{`{"client":"c","space":"_s"}`, auth.BadClaims, 0},
		{`{"client":"c c","space":"s"}`, auth.BadClaims, 0},
		{`{"client":"c","space":"s","error":"banned"}`, auth.Refused, 0},
		{`{"client":"c","space":"s"`, auth.Refused, 0},
		{``, auth.Refused, 0},
	} {
		claims, reason := parseAnswer(now, []byte(c.answer))
		if reason != c.want {
			t.Errorf("%q: %v, want %v", c.answer, reason, c.want)
		} else if reason == auth.None && claims.Expires.Sub(now) != c.ends {
			t.Errorf("%q: the session ends in %v, want %v", c.answer, claims.Expires.Sub(now), c.ends)
		}
	}
}

// A service answers callouts at once, or never.
type service struct {
	answer string // empty for none
	now    time.Time
	told   int // logins that were judged after a callout
}

func (s *service) Request(_ bus.Msg, _ time.Duration, done func(time.Time, bus.Msg, error)) {
	if s.answer != "" {
		done(s.now, bus.Msg{Data: []byte(s.answer)}, nil)
	}
}

func (s *service) LoggedIn(time.Time, netip.AddrPort, *auth.Claims) { s.told++ }

// TestRefusalIsRemembered: a client that the service refused is refused without a question for 5 s.
func TestRefusalIsRemembered(t *testing.T) {
	self := func(a netip.AddrPort) netip.AddrPort { return a }
	a, err := New(Config{Auth: AuthCallout, Home: self, Address: netip.AddrPort.String, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{answer: `{"error":"banned"}`, now: time.Unix(1e9, 0)}
	j := a.Judge(s)
	from := netip.MustParseAddrPort("192.0.2.1:5000")
	login := func(why string, pass time.Duration, message string, want dnp.LoginVerdict, asked uint64) {
		t.Helper()
		s.now = s.now.Add(pass)
		if got, _ := j.Func()(s.now, from, []byte(message)); got != want || j.Callouts != asked {
			t.Errorf("%s: verdict %v after %d questions, want %v after %d", why, got, j.Callouts, want, asked)
		}
	}
	login("the service is asked", 0, "mallory", dnp.LoginWait, 1)
	login("at once again", 0, "mallory", dnp.LoginRefuse, 1)
	login("another login from there", 0, "alice", dnp.LoginWait, 2)
	login("almost 5 s later", 5*time.Second-time.Millisecond, "mallory", dnp.LoginRefuse, 2)
	login("5 s later", time.Millisecond, "mallory", dnp.LoginWait, 3)
	if s.told != 3 {
		t.Errorf("%d logins were judged, want 3", s.told)
	}
}

// TestSlowService: 256 logins of a worker wait for the game's service, as SECURITY.md says. The others wait at their clients.
func TestSlowService(t *testing.T) {
	self := func(a netip.AddrPort) netip.AddrPort { return a }
	a, err := New(Config{Auth: AuthCallout, Home: self, Address: netip.AddrPort.String, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{now: time.Unix(1e9, 0)}
	j := a.Judge(s)
	flood := func(port int) {
		for i := range 300 {
			from := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(port+i))
			if got, _ := j.Func()(s.now, from, []byte("alice")); got != dnp.LoginWait {
				t.Fatalf("login %d: verdict %v, want it to wait", i, got)
			}
		}
	}
	flood(1000)
	if j.Callouts != 256 || len(j.pending) != 256 {
		t.Errorf("the service was asked %d times, and %d logins wait for it, want 256", j.Callouts, len(j.pending))
	}
	s.now = s.now.Add(2 * calloutTimeout)
	flood(2000)
	if j.Callouts != 2*256 || len(j.pending) != 256 {
		t.Errorf("after answers got lost the service was asked %d times, and %d logins wait for it, want 512 and 256", j.Callouts, len(j.pending))
	}
}
