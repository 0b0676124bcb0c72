// Package publishers tests the game servers in other languages, each in its folder: a program in TypeScript and one in
// Python do the same, so one test goes through both.
package publishers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnprelaytest"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// patience is how long a test waits for what has to come. No result depends on the speed of the machine.
const patience = 2 * time.Minute

// A start makes the command of a program with the arguments.
type start func(arguments ...string) *exec.Cmd

func TestTypeScript(t *testing.T) {
	t.Parallel()
	program := filepath.Join("typescript", "build", "mill.js")
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing")
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("the program is not built; make recipes-test builds it")
	}
	play(t, func(arguments ...string) *exec.Cmd {
		return exec.Command("node", append([]string{program}, arguments...)...)
	})
}

// TestPython needs nats-py, which Debian does not have.
func TestPython(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "import nats.errors").Run(); err != nil {
		t.Skip("Python or nats-py is missing: pip install nats-py")
	}
	play(t, python)
}

// TestPythonWithStandIn runs the program where nats-py is missing. It proves what the program says to relays, and not
// that nats-py takes its calls.
func TestPythonWithStandIn(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 9))").Run(); err != nil {
		t.Skip("Python 3.9 is missing")
	}
	play(t, func(arguments ...string) *exec.Cmd {
		cmd := python(arguments...)
		cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Join("testdata", "nats-stand-in"))
		return cmd
	})
}

func python(arguments ...string) *exec.Cmd {
	return exec.Command("python3", append([]string{"python/mill.py"}, arguments...)...)
}

// A printout collects what a program prints.
type printout struct {
	mu   sync.Mutex // os/exec writes from a goroutine of its own
	text bytes.Buffer
}

func (p *printout) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printout) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// A table is a server, a program that publishes the mill there, and a client that looks on.
type table struct {
	*testing.T
	ctx     context.Context
	srv     *dnprelaytest.Server
	program start
	out     *printout
	c       *client.Client
	told    chan string // messages to the client
}

// play goes through what a program has to do.
func play(t *testing.T, program start) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	x := &table{T: t, ctx: ctx, srv: dnprelaytest.Config{Space: "works"}.Start(t), program: program, told: make(chan string, 8)}
	// A program that never speaks by itself hears events and answers commands.
	end := x.run("600")
	x.dial()
	x.prints(" joined")
	x.turns("the program puts and sets")
	x.write(30)
	x.prints("set the lever to 30")
	x.reasserts()
	x.commands()
	x.ends(end)
	// A program that speaks often needs no event to tell a relay that knows nothing.
	end = x.run("0.2")
	x.turns("the program starts anew")
	x.write(20)
	x.prints("set the lever to 20")
	x.srv.StopRelay()
	x.srv.StartRelay()
	x.until("a relay that knows nothing learns what the client wrote", func() bool { return x.speed() == 20 })
	x.turns("the mill goes on")
	x.ends(end)
}

func (x *table) dial() {
	x.Helper()
	c, err := client.Dial(x.ctx, x.srv.Edge, client.Config{Message: func(_ *client.Client, m client.Message) { x.told <- string(m.Data) }})
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = c.Close() })
	x.c = c
}

// run starts the program, which tells relays everything every so many seconds. The function that it returns interrupts
// the program, and waits.
func (x *table) run(seconds string) (end func() error) {
	x.Helper()
	cmd := x.program(x.srv.Space, seconds)
	x.out = &printout{}
	cmd.Env = append(cmd.Environ(), "NATS_URL="+x.srv.NATS)
	cmd.Stdout, cmd.Stderr = x.out, x.out
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	end = sync.OnceValue(func() error {
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		return errors.Join(cmd.Process.Signal(syscall.SIGINT), cmd.Wait())
	})
	x.Cleanup(func() { _ = end() })
	x.prints("the mill turns in works")
	return end
}

// ends ends the program, whose states end with it.
func (x *table) ends(end func() error) {
	x.Helper()
	if err := end(); err != nil {
		x.Errorf("the program ends with %v; it printed\n%s", err, x.out)
	}
	x.until("the states end with the program", func() bool { return len(x.c.States()) == 0 })
	x.farewell()
}

func (x *table) farewell() {
	x.Helper()
	select {
	case text := <-x.told:
		if text != "the mill is gone" {
			x.Errorf("the farewell is %q", text)
		}
	case <-x.ctx.Done():
		x.Error("the mill ends without its farewell")
	}
}

func (x *table) prints(text string) {
	x.Helper()
	x.until("the program prints "+text, func() bool { return strings.Contains(x.out.String(), text) })
}

// reasserts takes the mill away, and asks the program to say what it knows, as a relay does that took over from another
// one. That relay may know a write of a client of which the program never heard, as here 45.
func (x *table) reasserts() {
	x.Helper()
	nc, err := nats.Connect(x.srv.NATS)
	if err != nil {
		x.Fatal(err)
	}
	defer nc.Close()
	mill := x.c.State("mill")
	ops := `{"ops":[{"op":"remove","key":"mill"},{"op":"set","key":"lever","values":{"speed":45}}]}`
	if _, err := nc.Request("dnp.v1.publish.works", []byte(ops), patience); err != nil {
		x.Fatal(err)
	}
	x.farewell()
	x.until("the lever has the speed that the relay was told", func() bool { return x.speed() == 45 })
	if err := nc.Publish("dnp.v1.event.works", []byte(`{"v":1,"type":"reassert","space":"works","shard":1}`)); err != nil {
		x.Fatal(err)
	}
	x.until("the mill is back", func() bool { again := x.c.State("mill"); return again != nil && again != mill })
	if speed := x.speed(); speed != 45 {
		x.Errorf("the lever has the speed %v, want 45, which the relay knows", speed)
	}
}

// until waits for something that the client or the program comes to know.
func (x *table) until(what string, reached func() bool) {
	x.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-x.ctx.Done():
			x.Fatalf("%s: it does not, in %s; the program printed\n%s", what, patience, x.out)
		}
	}
}

// turns waits until the client has seen some angles.
func (x *table) turns(what string) {
	x.Helper()
	seen := map[float64]bool{}
	x.until(what, func() bool {
		if mill := x.c.State("mill"); mill != nil {
			seen[mill.Value("angle").Float()] = true
		}
		return len(seen) > 3
	})
}

// speed returns what the lever says, -1 without one.
func (x *table) speed() float64 {
	if lever := x.c.State("lever"); lever != nil {
		return lever.Value("speed").Float()
	}
	return -1
}

func (x *table) write(speed float32) {
	x.Helper()
	lever, err := x.c.Await(x.ctx, "lever")
	if err == nil {
		err = lever.Set("speed", speed)
	}
	if err != nil {
		x.Fatal(err)
	}
}

// commands has the program answer a command, and refuse one.
func (x *table) commands() {
	x.Helper()
	lever, err := x.c.Await(x.ctx, "lever")
	if err != nil {
		x.Fatal(err)
	}
	var refusal *client.CommandError
	if _, err := lever.Command(x.ctx, "fly", nil); !errors.As(err, &refusal) || refusal.Code != "unknown_command" {
		x.Errorf("an unknown command: %v", err)
	}
	if answer, err := lever.Command(x.ctx, "stop", nil); err != nil || !strings.HasPrefix(string(answer), "was 30") {
		x.Errorf("the command stop: %q, %v", answer, err)
	}
	x.until("the lever shows that the mill stopped", func() bool { return x.speed() == 0 })
}
