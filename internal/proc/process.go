//go:build linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StopTimeout is how long Stop waits for a process before it kills it.
const StopTimeout = 15 * time.Second

// awaitPause is the time between two looks of Await.
const awaitPause = 20 * time.Millisecond

// A Process is a program that can be started again after it ended. One goroutine at a
// time may use it.
type Process struct {
	Name string // for errors
	File string // the program
	Args []string
	Env  []string // added to the environment of this process

	// Log is the file to which the output is appended. If it is empty, Stdin and Stdout
	// are used, which may be nil, and errors quote the end of the standard error.
	Log    string
	Stdin  io.Reader
	Stdout io.Writer

	// On calls a function on a thread that lives as long as the program should. nil means
	// a thread that lives as long as this process.
	On func(func() error) error

	cmd    *exec.Cmd
	stderr *tail
	done   chan struct{} // closed when the process has ended
}

// mainThread starts the processes that have no thread of their own.
var mainThread = sync.OnceValue(NewThread)

// Start starts the program.
func (p *Process) Start() error {
	cmd := exec.Command(p.File, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.stderr = &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Stdin, p.Stdout, p.stderr
	if p.Log != "" {
		out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer out.Close()
		fmt.Fprintf(out, "--- %s started at %s\n", p.Name, time.Now().Format(time.StampMilli))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, out, out
	}
	on := p.On
	if on == nil {
		on = mainThread().Do
	}
	if err := on(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(done)
	}()
	return nil
}

// Started reports whether Start has succeeded at least once.
func (p *Process) Started() bool { return p.cmd != nil }

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as a crash does, and waits for its end.
func (p *Process) Kill() error {
	if !p.Started() {
		return nil
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Stop asks the process to end, wakes it if it is paused, and kills it after StopTimeout.
func (p *Process) Stop() {
	if !p.Started() {
		return
	}
	_ = p.Signal(syscall.SIGCONT) // all three fail only if it has ended
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(StopTimeout):
		_ = p.Kill()
	}
}

// Ended returns an error that describes the end of the process, or nil while it runs.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v%s", p.Name, p.cmd.ProcessState, p.said())
	default:
		return nil
	}
}

// said returns where to read, or what the process wrote last.
func (p *Process) said() string {
	if p.Log != "" {
		return ", see " + p.Log
	}
	if text := p.stderr.String(); text != "" {
		return ": " + text
	}
	return ""
}

// Await waits until good reports true; the error says that the process ended or was not
// as wanted in time.
func (p *Process) Await(ctx context.Context, most time.Duration, what string, good func() bool) error {
	err := Await(ctx, most, p.Name+" "+what, func() bool { return p.Ended() != nil || good() })
	if ended := p.Ended(); ended != nil || err == nil {
		return ended
	}
	return errors.New(err.Error() + p.said())
}

// Await calls good every 20 ms until it reports true.
func Await(ctx context.Context, most time.Duration, what string, good func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !good() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, most)
		case <-time.After(awaitPause):
		}
	}
	return nil
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Every calls f once per d until ctx ends.
func Every(ctx context.Context, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// A tail is a writer that keeps the last bytes.
type tail struct {
	mu sync.Mutex // the goroutine of package exec writes, the reporter of a failure reads
	b  []byte
}

const tailMax = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailMax {
		t.b = append(t.b[:0], t.b[len(t.b)-tailMax:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
