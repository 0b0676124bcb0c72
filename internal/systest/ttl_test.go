package systest

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/buildtest"
)

// TestTTL kills the holder of states with a time to live. The next one gives them their whole time
// again, and then removes what no game server says again. A client sees the end of a state with its farewell.
func TestTTL(t *testing.T) {
	repeated(t, 5, func(t *testing.T, seed uint64) {
		g := newRing(t, seed, 3)
		farewell := ""
		p := g.join(g.startEdge(wire.Denetwork, nil), dnptest.Cpp(), dnptest.App{Message: func(m dnptest.Message) { farewell += string(m.Data) }})
		put := func(key string) string {
			return fmt.Sprintf(`{"op":"put","key":%q,"farewell":"no %s","ttl":"10s","values":[{"type":"uint16","value":7}]}`, key, key)
		}
		g.mustPublish("s", put("left"))
		g.mustPublish("s", put("said"))
		stop := false
		g.net.Every(time.Second, func() bool {
			g.fire("s", `{"op":"set","key":"said","values":{"0":7}}`)
			return !stop
		})
		g.net.Run(8 * time.Second)
		g.die(g.holder("s"))
		g.within(6*time.Second, "another relay holds the space", func() bool {
			_, store := g.authority()
			return store != nil && store.Stats().States == 2
		})
		held := g.net.Now()
		g.net.Run(9 * time.Second)
		if !p.has("left", 0, u16(7)) || !p.has("said", 0, u16(7)) {
			t.Fatal("the time did not begin again with the holder")
		}
		g.within(2*time.Second, "the state that is not said again ends", func() bool { return p.LinkNamed("left") == nil })
		if lived := g.net.Now().Sub(held); lived < 9*time.Second || !p.has("said", 0, u16(7)) {
			t.Fatalf("it lived for %v; the other one, which is said again: %v", lived, p.has("said", 0, u16(7)))
		}
		stop = true
		g.within(12*time.Second, "the other one ends, too", func() bool { return p.LinkNamed("said") == nil && farewell == "no leftno said" })
		if got := g.ask(g.subjects.Get("s", ""), ""); !strings.Contains(got, `"states":[]`) {
			t.Errorf("the holder has %s", got)
		}
		g.audit.check()
	})
}

// TestCheckLeavesNothing ends checks as programs do that signal a child and its process group. The
// check removes its state. Killed, it leaves a state with a time to live.
func TestCheckLeavesNothing(t *testing.T) {
	t.Parallel()
	d := dev(t, "--no-demo")
	d.says("dnpctl watch")
	at := devNATS.FindStringSubmatch(d.output.String())[1]
	check := func() *process {
		cmd := exec.Command(buildtest.Program(t, "dnpctl"), "check", "demo", "127.0.0.1:1", "--nats-url", at, "--timeout", patience.String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p := startCommand(t, cmd)
		p.says("a relay accepted a state")
		return p
	}
	states := func() string {
		p := start(t, "dnpctl", "get", "demo", "--nats-url", at)
		p.ends(0, `"states":[`)
		return p.output.String()
	}
	for range 2 {
		p := check()
		if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil && err != syscall.ESRCH { // it may have ended meanwhile
			t.Fatal(err)
		}
		p.ends(1, "interrupted", "       no  the edge at 127.0.0.1:1 accepted a client")
		if left := states(); strings.Contains(left, "check.") {
			t.Fatalf("the check left %s", left)
		}
	}
	check().kill()
	if left := states(); !strings.Contains(left, `"ttl":"`) {
		t.Errorf("the state of a check that was killed is %s, want one with a time to live", left)
	}
}
