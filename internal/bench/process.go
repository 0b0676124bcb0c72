//go:build linux

package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A starter starts child processes from one thread that lives as long as this
// process: the kernel ends a child with Pdeathsig when the thread ends that made it.
type starter struct {
	once sync.Once
	work chan func()
}

func (s *starter) do(f func() error) (err error) {
	s.once.Do(func() {
		s.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range s.work {
				f()
			}
		}()
	})
	done := make(chan struct{})
	s.work <- func() { err = f(); close(done) }
	<-done
	return err
}

// A process is a child that this run started.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{} // closed when it ended
}

// start starts a program. stdin and stdout may be nil.
func (s *starter) start(name, file string, args []string, stdin io.Reader, stdout io.Writer) (*process, error) {
	p := &process{name: name, done: make(chan struct{})}
	p.cmd = exec.Command(file, args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.do(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	return p, nil
}

// stop asks the process to end, and ends it if it does not.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// ended returns an error if the process is gone.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v: %s", p.name, p.cmd.ProcessState, p.stderr.String())
	default:
		return nil
	}
}

// pin binds all threads of a process to one core.
func pin(pid, core int) error {
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

// cpu returns the time that a process has used, user and system, threads that
// ended included. It reads the clock of the process, which is exact, while
// /proc/<pid>/stat has hundredths of a second.
func cpu(pid int) time.Duration {
	const schedClock = 2 // CPUCLOCK_SCHED of all threads, see clock_getcpuclockid
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedClock), &t) != nil {
		return 0 // it ended; whoever asks notices by other means
	}
	return time.Duration(t.Nano())
}

// rss returns the resident memory of a process in bytes.
func rss(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	n, _ := strconv.ParseInt(fields[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex // written by the goroutine of package exec, read by whoever reports a failure
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
