//go:build linux

package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// StopTimeout is how long a process may take to end in order.
const StopTimeout = 15 * time.Second

// A Node is a program that can be started again after its end.
type Node struct {
	Name string
	File string
	Args []string
	Env  []string
	Log  string                   // file to which its output is appended
	On   func(func() error) error // calls a function on a thread that lives as long as the program should

	cmd  *exec.Cmd
	done chan struct{} // closed when it ended
}

// Start starts the program. It ends when this process does.
func (n *Node) Start() error {
	out, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprintf(out, "--- %s started at %s\n", n.Name, time.Now().Format(time.StampMilli))
	cmd := exec.Command(n.File, n.Args...)
	cmd.Env = append(os.Environ(), n.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.On(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	done := make(chan struct{})
	n.cmd, n.done = cmd, done
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(done)
	}()
	return nil
}

// Signal sends a signal to the process.
func (n *Node) Signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// Kill ends the process as a crash does.
func (n *Node) Kill() error {
	if n.cmd == nil {
		return nil // it never started
	}
	err := n.cmd.Process.Kill()
	<-n.done
	return err
}

// Stop ends the process, in order if it will.
func (n *Node) Stop() {
	if n.cmd == nil {
		return
	}
	_ = n.Signal(syscall.SIGCONT) // all three fail only if it has ended
	_ = n.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(StopTimeout):
		_ = n.Kill()
	}
}

// Ended returns an error if the process is gone.
func (n *Node) Ended() error {
	select {
	case <-n.done:
		return fmt.Errorf("%s ended: %v, see %s", n.Name, n.cmd.ProcessState, n.Log)
	default:
		return nil
	}
}

// Await waits until good reports true, looking every 20 ms.
func Await(ctx context.Context, most time.Duration, what string, good func() bool) error {
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

// LogFile returns where the output of a program goes.
func LogFile(dir, name string) string { return filepath.Join(dir, name+".log") }

// PID returns the id of the process.
func (n *Node) PID() int { return n.cmd.Process.Pid }
