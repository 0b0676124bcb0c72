//go:build linux

package proctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StopTimeout is how long Stop waits for a process before it kills it.
const StopTimeout = 15 * time.Second

// awaitPause is the time between two looks of Await.
const awaitPause = 20 * time.Millisecond

// A Process is a program that was started. One goroutine at a time may use it.
type Process struct {
	name string // for errors
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// Start starts a program. Errors quote the end of its standard error, unless cmd.Stderr is a
// file, which they name.
//
// The kernel kills the process when the thread that started it ends. Go ends a thread when a
// goroutine ends that locked it, and other goroutines may have run on it before. So no goroutine
// of this program may end with its thread locked, unless Start runs on a thread that stays locked
// for longer.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // an interrupt from the terminal is for this process
	if cmd.Stderr == nil {
		cmd.Stderr = &tail{}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(p.done)
	}()
	return p, nil
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as a crash does, and waits for its end.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Stop asks the process to end, wakes it if it is paused, and kills it after StopTimeout.
func (p *Process) Stop() {
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
		return fmt.Errorf("%s ended: %v%s", p.name, p.cmd.ProcessState, p.said())
	default:
		return nil
	}
}

// said returns where to read, or what the process wrote last.
func (p *Process) said() string {
	switch w := p.cmd.Stderr.(type) {
	case *os.File:
		return ", see " + w.Name()
	case *tail:
		if text := w.String(); text != "" {
			return ": " + text
		}
	}
	return ""
}

// Await waits until good reports true; the error says that the process ended or was not
// as wanted in time.
func (p *Process) Await(ctx context.Context, most time.Duration, what string, good func() bool) error {
	err := Await(ctx, most, p.name+" "+what, func() bool { return p.Ended() != nil || good() })
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

// CPU returns the user and system time that a process has used, ended threads included,
// and 0 after its end. It reads the clock of the process, which is exact, while
// /proc/PID/stat counts hundredths of a second.
func CPU(pid int) time.Duration {
	const schedClock = 2 // CPUCLOCK_SCHED of all threads, see clock_getcpuclockid(3)
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedClock), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Machine returns for how long the cores of this machine, together, have been busy and idle since it started. Time in which a
// core was another machine's counts as busy. Both are 0 if the kernel does not say.
func Machine() (busy, idle time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return machine(string(text))
}

// machine reads the first line of /proc/stat, as proc(5) describes it: user, nice, system, idle, iowait, irq, softirq and steal,
// in hundredths of a second. What follows is part of user and nice.
func machine(stat string) (busy, idle time.Duration) {
	line, _, _ := strings.Cut(stat, "\n")
	columns := strings.Fields(line)
	if len(columns) < 9 || columns[0] != "cpu" {
		return 0, 0
	}
	for i, column := range columns[1:9] {
		n, err := strconv.ParseInt(column, 10, 64)
		if err != nil {
			return 0, 0
		}
		switch d := time.Duration(n) * (time.Second / 100); i {
		case 3, 4:
			idle += d
		default:
			busy += d
		}
	}
	return busy, idle
}

// RSS returns the resident memory of a process in bytes, and 0 after its end.
func RSS(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// Pin binds all threads of a process to one core.
func Pin(pid, core int) error {
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("pin process %d to core %d: %w", pid, core, err)
		}
	}
	return nil
}
