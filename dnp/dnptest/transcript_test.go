package dnptest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

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
