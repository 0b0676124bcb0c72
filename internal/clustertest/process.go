//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end in order.
const stopTimeout = 15 * time.Second

// A node is a program on a host, which can be started again after its end.
type node struct {
	*host
	file string
	args []string
	env  []string
	log  string // file to which its output is appended

	cmd  *exec.Cmd
	done chan struct{} // closed when it ended
}

// start starts the program. It ends when this process does.
func (n *node) start() error {
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprintf(out, "--- %s started at %s\n", n.name, time.Now().Format(time.StampMilli))
	cmd := exec.Command(n.file, n.args...)
	cmd.Env = append(os.Environ(), n.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	done := make(chan struct{})
	n.cmd, n.done = cmd, done
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(done)
	}()
	return nil
}

// signal sends a signal to the process.
func (n *node) signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// kill ends the process as a crash does.
func (n *node) kill() error {
	err := n.cmd.Process.Kill()
	<-n.done
	return err
}

// stop ends the process, in order if it will.
func (n *node) stop() {
	if n.cmd == nil {
		return
	}
	_ = n.signal(syscall.SIGCONT) // all three fail only if it has ended
	_ = n.signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(stopTimeout):
		_ = n.kill()
	}
}

// ended returns an error if the process is gone.
func (n *node) ended() error {
	select {
	case <-n.done:
		return fmt.Errorf("%s ended: %v, see %s", n.name, n.cmd.ProcessState, n.log)
	default:
		return nil
	}
}

// await waits until good reports true, looking every 20 ms.
func await(ctx context.Context, most time.Duration, what string, good func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !good() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, most)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func logFile(dir, name string) string { return filepath.Join(dir, name+".log") }
