//go:build linux

package systest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/dnprelay/dnprelay/internal/buildtest"
	"golang.org/x/sys/unix"
)

// A terminal is a pseudo terminal in which a program runs.
type terminal struct {
	*testing.T
	p      *process
	master *os.File
	raw    lockedBuffer // what the program has written
	mu     sync.Mutex   // guards what screen shows
	screen *vt.Emulator
	news   chan struct{} // one slot: the screen changed
	ended  chan struct{} // no program has the terminal any more
}

// openTerminal opens a pseudo terminal of 80×24 characters (pty(7)).
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number, lock, size := 0, error(nil), error(nil)
	err = raw.Control(func(fd uintptr) {
		lock = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		size = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
		var e error
		number, e = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		size = errors.Join(size, e)
	})
	if err := errors.Join(err, lock, size); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// inTerminal runs dnpctl in a terminal, as over ssh, and shows what it draws.
func inTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	master, slave := openTerminal(t)
	c := &terminal{T: t, master: master, screen: vt.NewEmulator(80, 24), news: make(chan struct{}, 1), ended: make(chan struct{})}
	cmd := exec.Command(buildtest.Program(t, "dnpctl"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TERM=") || strings.HasPrefix(v, "NO_COLOR") }), "TERM=xterm-256color")
	cmd.Env = append(cmd.Env, env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.p = &process{T: t, cmd: cmd, output: &c.raw, ended: make(chan struct{})}
	_ = slave.Close()
	go func() {
		_ = cmd.Wait()
		close(c.p.ended)
	}()
	go c.show()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = io.Copy(master, c.screen) // what a terminal answers to questions of the program
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.p.ended
		if end, ok := c.screen.InputPipe().(io.Closer); ok {
			_ = end.Close() // Emulator.Close is not for two goroutines
		}
		<-answered
		_ = master.Close()
		<-c.ended
	})
	return c
}

// show draws what the program writes, until it has ended.
func (c *terminal) show() {
	defer close(c.ended)
	b := make([]byte, 4096)
	for {
		n, err := c.master.Read(b)
		_, _ = c.raw.Write(b[:n])
		c.mu.Lock()
		_, _ = c.screen.Write(b[:n])
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (c *terminal) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.screen.String()
}

// shows waits until the screen has all the texts.
func (c *terminal) shows(why string, texts ...string) {
	c.Helper()
	c.until(fmt.Sprintf("%s: want %q", why, texts), func(screen string) bool {
		return !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(screen, s) })
	})
}

// until waits until the screen is as wanted.
func (c *terminal) until(why string, wanted func(screen string) bool) {
	c.Helper()
	over := time.After(patience)
	for !wanted(c.text()) {
		select {
		case <-c.news:
		case <-c.p.ended:
			c.Fatalf("%s: the program has ended, the screen is\n%s", why, c.text())
		case <-over:
			c.Fatalf("%s; the screen is\n%s", why, c.text())
		}
	}
}

func (c *terminal) press(keys string) {
	c.Helper()
	if _, err := c.master.WriteString(keys); err != nil {
		c.Fatal(err)
	}
}

// ends waits for the end of the program, and wants that it left the terminal as it was.
func (c *terminal) ends(code int, why string) {
	c.Helper()
	select {
	case <-c.p.ended:
	case <-time.After(patience):
		c.Fatalf("%s: the program does not end; the screen is\n%s", why, c.text())
	}
	if got := c.p.cmd.ProcessState.ExitCode(); got != code {
		c.Errorf("%s: exit code %d, want %d; it wrote %q", why, got, code, c.raw.String())
	}
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.Fatalf("%s: the terminal is still open", why)
	}
	if c.screen.IsAltScreen() {
		c.Errorf("%s: the terminal still shows the other screen", why)
	}
}

// TestTop looks at a relay dev on a terminal: from the overview to the reasons why a client has a state.
func TestTop(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 2)
	start(t, "relay", "dev", "--listen", "udp://"+ports[0], "--nats-listen", ports[1], "--http", "").says("dnpctl watch")
	nats := "--nats-url=nats://" + ports[1]
	start(t, "dnpctl", "watch", ports[0], "--json").says(`"linked"`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, buildtest.Program(t, "dnpctl"), "clients", "demo", "--json", nats).Output()
	var found struct{ Client string }
	if err := errors.Join(err, json.Unmarshal(out, &found)); err != nil || len(found.Client) < 12 {
		t.Fatalf("clients: %v in %s", err, out)
	}

	name := found.Client[:12] // a long name is shortened
	c := inTerminal(t, []string{"NO_COLOR=1"}, "top", nats)
	c.shows("the overview has a part of each list, and rates of the demo", "1 relay, 1 edge, 1 space, 1 client", "demo", name, "ball", "ready")
	moves := regexp.MustCompile(`(?m)^ball +\d+\.\d `)
	c.until("want a rate of changes of the ball, which moves", moves.MatchString)
	c.press("4")
	c.shows("the clients", "Clients of the spaces with the most clients", name)
	c.press("\r")
	c.shows("the states of the client", "client "+found.Client+", edge", "lamp")
	c.press("ss")
	c.shows("the states by their changes", "CHANGES▾")
	c.press("\r")
	c.shows("the reasons", "Why client "+found.Client, "The client has the link")
	c.press("\x1b")
	c.shows("back at the states", "CHANGES▾")
	c.press("q")
	c.ends(0, "the key q")
	if strings.Contains(c.raw.String(), "\x1b[31m") || strings.Contains(c.raw.String(), ";38;") {
		t.Errorf("with NO_COLOR the program wrote colours: %q", c.raw.String())
	}

	c = inTerminal(t, nil, "top", nats)
	c.shows("the overview", "1 relay, 1 edge")
	c.p.term()
	c.ends(0, "a signal")
}

// TestProgress: a long command shows on a terminal how far it is, and leaves nothing of that behind. With --json it shows nothing.
func TestProgress(t *testing.T) {
	t.Parallel()
	args := []string{"check", "demo", "127.0.0.1:1", "--nats-url=nats://127.0.0.1:1", "--timeout=5m"}
	c := inTerminal(t, nil, args...)
	c.shows("how far the check is", "s  step 1 of 5, for 5m0s at most: a relay accepted a state in space demo")
	c.p.term()
	c.ends(1, "a signal")
	if text := c.text(); strings.Contains(text, "step 1 of 5") || !strings.Contains(text, "no  a relay accepted a state") {
		t.Errorf("at the end the screen is\n%s\nwant the results and no progress", text)
	}

	c = inTerminal(t, nil, append(args, "--json", "--timeout=3s")...) // three times as long as nothing is shown
	c.ends(1, "its timeout")
	if raw := c.raw.String(); strings.Contains(raw, "step 1 of 5") || strings.Contains(raw, "\x1b") || !strings.Contains(raw, `"ok":false`) {
		t.Errorf("with --json it wrote %q", raw)
	}
}
