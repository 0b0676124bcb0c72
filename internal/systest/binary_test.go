package systest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/subject"
)

// binaries builds the commands once and returns the folder.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dnprelay-test-")
	if err != nil {
		return "", err
	}
	built = dir
	out, err := exec.Command("go", "build", "-o", dir+"/", "../../cmd/relay", "../../cmd/edge", "../../cmd/dnpctl").CombinedOutput()
	if err != nil {
		err = errors.New(string(out))
	}
	return dir, err
})

var built string // folder of the binaries, empty if no test wanted them

func TestMain(m *testing.M) {
	if conf := os.Getenv(natsServerEnv); conf != "" {
		os.Exit(natsServer(conf))
	}
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// A process is a running command.
type process struct {
	*testing.T
	cmd    *exec.Cmd
	output *lockedBuffer
	ended  chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, exec.Command(filepath.Join(dir, name), args...))
}

// startCommand starts a command that ends with the test at the latest.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{T: t, cmd: cmd, output: &lockedBuffer{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// says waits until the process printed text.
func (p *process) says(text string) {
	p.Helper()
	for end := time.Now().Add(patience); !strings.Contains(p.output.String(), text); {
		select {
		case <-p.ended:
		case <-time.After(5 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
		}
		if !strings.Contains(p.output.String(), text) {
			p.Fatalf("no %q in:\n%s", text, p.output)
		}
	}
}

// ends waits for the end and wants this exit code, and this in the output.
func (p *process) ends(code int, texts ...string) {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("does not end:\n%s", p.output)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d:\n%s", got, code, p.output)
	}
	for _, text := range texts {
		if !strings.Contains(p.output.String(), text) {
			p.Errorf("no %q in:\n%s", text, p.output)
		}
	}
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	<-p.ended
}

func (p *process) term() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

func dev(t *testing.T, args ...string) *process {
	return start(t, "relay", append([]string{"dev", "--listen", "udp://127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)...)
}

func TestDevStartsAndDrains(t *testing.T) {
	data := t.TempDir()
	for range 2 { // a second start finds what the first one left
		p := dev(t, "--data", data)
		p.says("dnpctl watch")
		p.term()
		p.ends(0)
	}
}

// TestDevPassesItsCheck lets the check that helm test runs find all well.
func TestDevPassesItsCheck(t *testing.T) {
	ports := freePorts(t, 2)
	d := start(t, "relay", "dev", "--listen", "udp://"+ports[0], "--nats-listen", ports[1], "--http", "", "--open-space", "lobby")
	d.says("dnpctl watch")
	check := func(space string, timeout time.Duration) *process {
		return start(t, "dnpctl", "check", space, ports[0], "--nats-url", "nats://"+ports[1], "--timeout", timeout.String())
	}
	check("lobby", patience).ends(0, "a relay accepted a state in space lobby", "the client received the state", "the client received the change", "the deployment works")
	check("another", 2*time.Second).ends(1, "not within 2s: ")
}

func TestDevPortInUse(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, addr := range []string{tcp.Addr().String(), udp.LocalAddr().String()} {
		var starts []*process
		if addr == udp.LocalAddr().String() {
			starts = append(starts, start(t, "relay", "dev", "--listen", "udp://"+addr, "--nats-listen", "127.0.0.1:0", "--http", ""))
		} else {
			starts = append(starts, dev(t, "--nats-listen", addr), dev(t, "--http", addr))
		}
		for _, p := range starts {
			p.ends(1, "in use", addr)
			if n := strings.Count(p.output.String(), "relay: "); n != 1 {
				t.Errorf("%d lines say why, want one:\n%s", n, p.output)
			}
		}
	}
}

func TestDevFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dev(t, "--data", filepath.Join(file, "folder")).ends(1, "data folder")
}

func TestFlagProblems(t *testing.T) {
	start(t, "relay", "dev", "--tick", "5", "--client-states", "maybe").ends(2, "2 problems", "--tick", "--client-states")
	start(t, "relay", "serve", "--shards", "0", "--ingress", "x").ends(2, "--shards", "--ingress")
	start(t, "edge", "serve", "--workers=-1", "--open-space", "a b").ends(2, "--workers", "--open-space")
}

func TestServeWithoutNATS(t *testing.T) {
	const nowhere = "nats://127.0.0.1:1"
	start(t, "edge", "serve", "--nats-url", nowhere, "--start-timeout", "10ms", "--http", "").ends(1, "gave up")
	p := start(t, "relay", "serve", "--nats-url", nowhere, "--http", "")
	p.says("trying again")
	p.term()
	p.ends(0)
}

// TestServe runs a relay and an edge of a cluster.
func TestServe(t *testing.T) {
	var subjects subject.Names
	nats, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Mappings: subjects.Mappings(64)})
	if err != nil {
		t.Fatal(err)
	}
	defer nats.Shutdown()
	r := start(t, "relay", "serve", "--nats-url", nats.URL(), "--http", "127.0.0.1:0")
	e := start(t, "edge", "serve", "--nats-url", nats.URL(), "--http", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0")
	r.says("serving shards")
	e.says("bus reached")
	b, err := natsbus.Connect(natsbus.Config{URL: nats.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for answered := false; !answered; {
		answer := make(chan string, 1)
		b.Request(bus.Msg{Subject: subjects.Publish("demo", ""), Data: []byte(towerPut)}, time.Second, func(m bus.Msg, _ error) { answer <- string(m.Data) })
		select {
		case a := <-answer:
			answered = strings.HasPrefix(a, `{"epoch"`)
		case <-ctx.Done():
			t.Fatal("the relay does not answer")
		}
	}
	e.term()
	e.ends(0)
	r.term()
	r.ends(0)
}
