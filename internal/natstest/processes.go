package natstest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Processes are the servers of a cluster like [Cluster], but each in a process, so that a test can kill and stop them. The
// tests of the package must begin with [VerifyNoLeaks], which is what the processes run.
type Processes struct {
	addresses
	running []*exec.Cmd // nil if killed
	stdin   []io.Closer // whose end ends the process
}

// processEnv makes a process a server, and says which one.
const processEnv = "DNPRELAY_NATSTEST_PROCESS"

// A processSpec is what a process needs to know.
type processSpec struct {
	Folder, Routes string
	Clients, Peers []int
	Index          int
}

// serve makes this process a server, if it was started as one, until the test that started it is gone.
func serve() {
	text, ok := os.LookupEnv(processEnv)
	if !ok {
		return
	}
	var p processSpec
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		a := addresses{folder: p.Folder, routes: p.Routes, clients: p.Clients, peers: p.Peers}
		var s *server.Server
		if s, err = server.NewServer(a.options(p.Index)); err == nil {
			s.Start()
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// StartProcesses starts n servers and waits until they have a leader. They end with the test.
func StartProcesses(t testing.TB, n int) *Processes {
	t.Helper()
	p := &Processes{addresses: newAddresses(t, n), running: make([]*exec.Cmd, n), stdin: make([]io.Closer, n)}
	t.Cleanup(func() {
		for i := range n {
			p.Kill(i)
		}
	})
	for i := range n {
		p.Launch(t, i)
	}
	p.AwaitLeader(t)
	return p
}

// Launch starts server i, which was killed, and does not wait for it.
func (p *Processes) Launch(t testing.TB, i int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(processSpec{Folder: p.folder, Routes: p.routes, Clients: p.clients, Peers: p.peers, Index: i})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), processEnv+"="+string(text)), os.Stderr
	if p.stdin[i], err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.running[i] = cmd
}

// Kill kills server i, if it runs.
func (p *Processes) Kill(i int) {
	if cmd := p.running[i]; cmd != nil {
		p.running[i] = nil
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = p.stdin[i].Close()
	}
}

// Pause stops server i, which answers nothing from then on and keeps its connections, until Continue or Kill.
func (p *Processes) Pause(i int) {
	_ = p.running[i].Process.Signal(syscall.SIGSTOP)
	_, _ = syscall.Wait4(p.running[i].Process.Pid, nil, syscall.WUNTRACED, nil)
}

// Continue ends Pause.
func (p *Processes) Continue(i int) { _ = p.running[i].Process.Signal(syscall.SIGCONT) }

// AwaitLeader waits until the servers have a leader.
func (p *Processes) AwaitLeader(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if p.HasLeader() {
			return
		}
	}
	t.Fatal("the NATS cluster has no leader")
}

// HasLeader reports whether some server has heard of a leader of the cluster.
func (p *Processes) HasLeader() bool {
	nc, err := nats.Connect(p.URL(), nats.Timeout(200*time.Millisecond), nats.NoReconnect())
	if err != nil {
		return false
	}
	defer nc.Close()
	m, err := nc.Request("$JS.API.INFO", nil, 200*time.Millisecond) // which the leader answers
	return err == nil && !strings.Contains(string(m.Data), `"error"`)
}

// PID returns the id of the process of server i.
func (p *Processes) PID(i int) int { return p.running[i].Process.Pid }
