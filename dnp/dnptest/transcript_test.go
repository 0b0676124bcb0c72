package dnptest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// spinsMax is how often in a row a subject may be due again at once. A subject that is
// due more often is in an endless loop.
const spinsMax = 1000

// A Subject is the program under test. It passes its datagrams to [Transcript.Send].
// Advance and NextTimeout may be nil.
type Subject struct {
	Receive     func(now time.Time, from netip.AddrPort, p []byte)
	Advance     func(now time.Time)
	NextTimeout func() (time.Time, bool)
}

// A Transcript is a scripted peer: it lists the datagrams that it sends and those that
// must come back, in order, with reasons.
//
//	tr := NewTranscript(t)
//	tr.Subject = Subject{Receive: …, Advance: …, NextTimeout: …}
//	tr.Run(`
//	> 00 0100 0000       # a client asks
//	< 01 00 0000         # and is accepted at once
//	< 0a 0000 00         # the probe follows
//	+ 250ms
//	< 0a 0000 00         # it was not acknowledged
//	> 06 0000 00
//	+ 10s
//	                     # nothing more: silence is checked, too
//	`)
//
// Each line is one step:
//
//	> bytes   the peer sends a datagram
//	< bytes   the subject sends a datagram; the script must name all of them, in order
//	+ time    time passes; the subject's deadlines in it are served
//	? bytes   like <, but the datagram may be missing
//	! name    calls the function of that name in Do
//
// Bytes are hex with spaces anywhere. In an expected datagram, .. is any byte, and a
// final * is any rest. Two equal letters from gg to zz name a byte: the first occurrence
// takes the byte of the datagram, later ones must be equal to it, and in a datagram of
// the peer they stand for it. So "05 0000 llmm" learns a LinkID.
//
// A failure prints the line with its reason, and what was sent instead.
type Transcript struct {
	Subject Subject
	From    netip.AddrPort    // the peer's address
	Now     time.Time         // virtual
	Do      map[string]func() // for ! lines

	t     testing.TB
	out   []sentDatagram
	names map[string]byte
	log   []string
}

type sentDatagram struct {
	at time.Time
	to netip.AddrPort
	p  []byte
}

// NewTranscript returns a scripted peer at 192.0.2.1:4000.
func NewTranscript(t testing.TB) *Transcript {
	return &Transcript{
		t:     t,
		From:  netip.MustParseAddrPort("192.0.2.1:4000"),
		Now:   time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		Do:    map[string]func(){},
		names: map[string]byte{},
	}
}

// Send records a datagram of the subject. It copies p.
func (tr *Transcript) Send(to netip.AddrPort, p []byte) {
	tr.out = append(tr.out, sentDatagram{tr.Now, to, append([]byte(nil), p...)})
}

// Run plays the steps. It ends the test at the first difference.
func (tr *Transcript) Run(script string) {
	tr.t.Helper()
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		step, reason, _ := strings.Cut(line, "#")
		if step = strings.TrimSpace(step); step != "" {
			tr.step(step[0], strings.TrimSpace(step[1:]), strings.TrimSpace(reason), line)
		}
	}
	tr.wantSilence("at the end of the script")
}

func (tr *Transcript) step(kind byte, arg, reason, line string) {
	tr.t.Helper()
	switch kind {
	case '<':
		tr.expect(arg, reason, line)
	case '?':
		if len(tr.out) > 0 && tr.matches(arg, tr.out[0].p) {
			tr.take()
		}
	case '>':
		tr.wantSilence("before: " + line)
		p := tr.bytes(arg)
		tr.log = append(tr.log, tr.stamp()+" > "+spaced(p))
		tr.Subject.Receive(tr.Now, tr.From, p)
		tr.settle()
	case '+':
		tr.wantSilence("before: " + line)
		d, err := time.ParseDuration(arg)
		if err != nil {
			tr.fail("%v in: %s", err, line)
		}
		tr.pass(d)
	case '!':
		tr.wantSilence("before: " + line)
		f := tr.Do[arg]
		if f == nil {
			tr.fail("no function for: %s", line)
		}
		tr.log = append(tr.log, tr.stamp()+" ! "+arg)
		f()
		tr.settle()
	default:
		tr.fail("unknown step: %s", line)
	}
}

func (tr *Transcript) expect(arg, reason, line string) {
	tr.t.Helper()
	if reason == "" {
		reason = "(no reason given)"
	}
	if len(tr.out) == 0 {
		tr.fail("nothing was sent, want %s\n because: %s", arg, reason)
	}
	if !tr.matches(arg, tr.out[0].p) || tr.out[0].to != tr.From && tr.out[0].to.IsValid() {
		tr.fail("sent %s to %v, want %s\n because: %s", spaced(tr.out[0].p), tr.out[0].to, arg, reason)
	}
	tr.take()
}

func (tr *Transcript) take() {
	o := tr.out[0]
	tr.log = append(tr.log, fmt.Sprintf("%v < %s", tr.since(o.at), spaced(o.p)))
	tr.out = tr.out[1:]
}

// settle serves the deadlines of this moment.
func (tr *Transcript) settle() { tr.serve(tr.Now) }

// pass advances the time and serves every deadline on the way.
func (tr *Transcript) pass(d time.Duration) {
	end := tr.Now.Add(d)
	tr.serve(end)
	tr.Now = end
	tr.log = append(tr.log, "+ "+d.String())
}

func (tr *Transcript) serve(end time.Time) {
	if tr.Subject.NextTimeout == nil {
		return
	}
	for spins := 0; ; spins++ {
		due, ok := tr.Subject.NextTimeout()
		if !ok || due.After(end) {
			return
		}
		if due.After(tr.Now) {
			tr.Now, spins = due, 0
		}
		if spins > spinsMax {
			tr.fail("the subject is due again at once, %d times", spins)
		}
		tr.Subject.Advance(tr.Now)
	}
}

func (tr *Transcript) wantSilence(when string) {
	tr.t.Helper()
	if len(tr.out) > 0 {
		var b strings.Builder
		for _, o := range tr.out {
			fmt.Fprintf(&b, "\n %v < %s", tr.since(o.at), spaced(o.p))
		}
		tr.fail("sent what the script does not name%s\n %s", b.String(), when)
	}
}

// matches compares a datagram with a pattern, and learns names on the way.
func (tr *Transcript) matches(pattern string, p []byte) bool {
	tokens, rest := split(pattern)
	if len(p) < len(tokens) || len(p) > len(tokens) && !rest {
		return false
	}
	learned := map[string]byte{}
	for i, token := range tokens {
		want, known := tr.names[token]
		if v, ok := learned[token]; ok {
			want, known = v, true
		}
		switch {
		case token == "..":
		case isName(token) && !known:
			learned[token] = p[i]
		case isName(token):
			if p[i] != want {
				return false
			}
		case token != hex.EncodeToString(p[i:i+1]):
			return false
		}
	}
	for name, v := range learned {
		tr.names[name] = v
	}
	return true
}

// bytes returns a datagram that the peer sends.
func (tr *Transcript) bytes(s string) []byte {
	tokens, _ := split(s)
	var p []byte
	for _, token := range tokens {
		if v, ok := tr.names[token]; ok {
			p = append(p, v)
			continue
		}
		b, err := hex.DecodeString(token)
		if err != nil {
			tr.fail("%q is neither a byte nor a name that is known", token)
		}
		p = append(p, b...)
	}
	return p
}

// split cuts a line into tokens of two letters, each one byte.
func split(s string) (tokens []string, rest bool) {
	s = strings.ToLower(strings.Join(strings.Fields(s), ""))
	s, rest = strings.CutSuffix(s, "*")
	for len(s) >= 2 {
		tokens, s = append(tokens, s[:2]), s[2:]
	}
	if s != "" {
		tokens = append(tokens, s)
	}
	return tokens, rest
}

func isName(token string) bool {
	return len(token) == 2 && token[0] == token[1] && token[0] >= 'g' && token[0] <= 'z'
}

func (tr *Transcript) fail(format string, args ...any) {
	tr.t.Helper()
	from := max(0, len(tr.log)-12)
	tr.t.Fatalf("at %s: %s\n before that:\n  %s", tr.stamp(), fmt.Sprintf(format, args...), strings.Join(tr.log[from:], "\n  "))
}

func (tr *Transcript) stamp() string { return tr.since(tr.Now).String() }

func (tr *Transcript) since(t time.Time) time.Duration {
	return t.Sub(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
}

// spaced formats a datagram with a space after its command.
func spaced(p []byte) string {
	if len(p) < 2 {
		return fmt.Sprintf("%x", p)
	}
	return fmt.Sprintf("%x %x", p[:1], p[1:])
}

// play runs a script against a client with this behaviour, in the role of its
// server, and returns the client.
func play(t testing.TB, b Behaviour, app App, script string) *Client {
	t.Helper()
	tr, c := scripted(t, b, app)
	tr.Run(script)
	return c
}

// scripted returns a client that answers at once, on a tick of 1 ms.
func scripted(t testing.TB, b Behaviour, app App) (*Transcript, *Client) {
	b.Tick = time.Millisecond
	b.ReadsOnTick = false
	tr := NewTranscript(t)
	c := NewClient(Config{Behaviour: b, App: app, Server: tr.From, Send: func(p []byte) { tr.Send(tr.From, p) }})
	tr.Subject = Subject{Receive: c.Receive, Advance: c.Advance, NextTimeout: c.NextTimeout}
	tr.Do["connect"] = func() { c.Connect(tr.Now) }
	tr.Do["restart"] = func() { c.Restart(tr.Now) }
	tr.Do["close"] = func() { c.Close(tr.Now) }
	tr.Do["send"] = func() { _ = c.Send(tr.Now, []byte("hi")) }
	tr.Do["sleep"] = func() { c.Silence(true) }
	tr.Do["wake"] = func() { c.Silence(false) }
	return tr, c
}

func TestTranscript(t *testing.T) {
	c := play(t, Cpp(), App{}, `
	! connect
	< 00 0100 0000            # the first request
	+ 1s
	< 00 0100 0000            # no answer for 1 s
	> 01 00 0000
	> 05 0000 3412 01 0100 41 0100 03 e803
	< 06 0000 00              # acknowledged before the application is asked
	< 07 mmnn                 # and accepted
	> 08 mmnn
	! send
	< 04 0000 *               # any content
	> 06 0000 00
	+ 1h
	`)
	if l := c.Link(0x1234); l == nil || l.Phase != LinkIsDown {
		t.Errorf("the names did not carry the LinkID back: %+v", l)
	}
}

// A recorder records failures instead of ending the test.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

// TestTranscriptNotices plays scripts that do not fit and checks the failure messages.
func TestTranscriptNotices(t *testing.T) {
	for _, tt := range []struct{ name, script, want string }{
		{"wrong bytes", "! connect\n< 00 0100 0001 # why", "because: why"},
		{"too short", "! connect\n< 00 0100", "want 00 0100"},
		{"missing", "< 00", "nothing was sent"},
		{"unnamed", "! connect\n+ 1s", "does not name"},
		{"unnamed at the end", "! connect", "at the end"},
		{"name differs", "! connect\n< 00 gg00 gg00", "want 00 gg00"},
		{"unknown name", "> hh", "neither a byte"},
		{"unknown step", "= 00", "unknown step"},
		{"unknown function", "! dance", "no function"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{TB: t}
			defer func() {
				if e := recover(); e != nil && e != any(r) {
					panic(e)
				}
				if !strings.Contains(r.failed, tt.want) {
					t.Errorf("complaint %q, want one with %q", r.failed, tt.want)
				}
			}()
			play(r, Cpp(), App{}, tt.script)
		})
	}
}

func TestTranscriptSpin(t *testing.T) {
	r := &recorder{TB: t}
	tr := NewTranscript(r)
	tr.Subject = Subject{
		Receive:     func(time.Time, netip.AddrPort, []byte) {},
		Advance:     func(time.Time) {},
		NextTimeout: func() (time.Time, bool) { return time.Time{}, true },
	}
	defer func() {
		_ = recover()
		if !strings.Contains(r.failed, "due again") {
			t.Errorf("complaint %q", r.failed)
		}
	}()
	tr.Run("> 00")
}
