package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mark is the variable by which this program finds the processes that it started.
const mark = "DNPRELAY_README_TEST"

// pollInterval is how often a terminal looks at what a command has printed.
const pollInterval = 50 * time.Millisecond

// A terminal is one bash, which keeps its variables, folder and background jobs from block to
// block, as the terminal of a reader does.
type terminal struct {
	shell   *exec.Cmd
	in      io.WriteCloser
	reports chan string // lines of the shell: "job PID", "status CODE"; closed when it ends
	dir     string      // for scripts and what they print
	count   int
}

// newTerminal starts a shell in the folder, with the variables.
func newTerminal(folder, dir string, env []string) (*terminal, error) {
	t := &terminal{dir: dir, reports: make(chan string, 8)}
	t.shell = exec.Command("bash", "--norc")
	t.shell.Dir = folder
	t.shell.Env = append(readerEnv(), env...)
	t.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.shell.ExtraFiles = []*os.File{w} // descriptor 3
	if t.in, err = t.shell.StdinPipe(); err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	err = t.shell.Start()
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	go func() {
		defer close(t.reports)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			t.reports <- lines.Text()
		}
	}()
	return t, nil
}

// readerEnv returns the variables of this process less those by which make tells a make below it what to do, and
// those of the project: a reader has none of them.
func readerEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "MAKE") || name == "MFLAGS" || strings.HasPrefix(name, "DNP_")
	})
}

// close ends the shell. Jobs in the background are not the terminal's to end.
func (t *terminal) close() {
	t.in.Close()
	t.shell.Process.Kill()
	t.shell.Wait() // its error says that it was killed
	for range t.reports {
	}
}

// A job is a command that runs in a terminal.
type job struct {
	t      *terminal
	output string // the file
	group  int    // the process group; 0 = the shell itself runs the command
}

// source starts a script in the shell itself, so that variables and background jobs last.
func (t *terminal) source(text string) (*job, error) {
	j, script, err := t.prepare("set -e\n" + text + "\nset +e\n")
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(t.in, ". %s >%s 2>&1 </dev/null 3>&-; echo status $? >&3\n", script, j.output)
	return j, err
}

// start starts a command in a process group of its own, which interrupt ends.
func (t *terminal) start(text string) (*job, error) {
	j, script, err := t.prepare(text + "\n")
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(t.in, "set -m; (set +m -e; . %s) >%s 2>&1 </dev/null 3>&- & readme_job=$!; set +m; echo job $readme_job >&3; wait $readme_job; echo status $? >&3\n", script, j.output)
	if err != nil {
		return nil, err
	}
	select {
	case line, ok := <-t.reports:
		if j.group, err = strconv.Atoi(strings.TrimPrefix(line, "job ")); !ok || err != nil {
			return nil, fmt.Errorf("the shell did not start the command: %q", line)
		}
	case <-time.After(commandTimeout):
		return nil, fmt.Errorf("the shell does not answer")
	}
	return j, nil
}

func (t *terminal) prepare(text string) (*job, string, error) {
	t.count++
	script := filepath.Join(t.dir, fmt.Sprintf("block%d.sh", t.count))
	output := filepath.Join(t.dir, fmt.Sprintf("block%d.out", t.count))
	err := os.WriteFile(script, []byte(text), 0o600)
	if err == nil {
		err = os.WriteFile(output, nil, 0o600)
	}
	return &job{t: t, output: output}, script, err
}

// printed returns what the command has printed.
func (j *job) printed() []byte {
	text, err := os.ReadFile(j.output)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// wait waits until the command has ended, or done accepts what it has printed, and reports
// whether it has ended.
func (j *job) wait(limit time.Duration, done func(printed []byte) bool) (ended bool, err error) {
	deadline := time.After(limit)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case line, ok := <-j.t.reports:
			if !ok {
				return true, fmt.Errorf("the command that failed ended the shell")
			}
			if line != "status 0" {
				return true, fmt.Errorf("exit %s", line)
			}
			return true, nil
		case <-tick.C:
			if done != nil && done(j.printed()) {
				return false, nil
			}
		case <-deadline:
			return false, fmt.Errorf("still running after %s", limit)
		}
	}
}

// interrupt does what Ctrl-C does, and waits for the end.
func (j *job) interrupt() error {
	if err := syscall.Kill(-j.group, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	select {
	case <-j.t.reports: // an interrupted command may end with any code
		return nil
	case <-time.After(commandTimeout):
		return fmt.Errorf("does not end when interrupted")
	}
}

// endProcesses ends all processes with the mark: SIGTERM first, and SIGKILL for those that
// are still there after the limit. It touches no others.
func endProcesses(value string, limit time.Duration) error {
	for start, signal := time.Now(), syscall.SIGTERM; ; {
		pids, err := marked(value)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Since(start) > limit {
			signal = syscall.SIGKILL
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// marked returns the processes whose environment has the mark with this value.
func marked(value string) (pids []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	want := []byte(mark + "=" + value)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended, or is somebody else's
		}
		for variable := range bytes.SplitSeq(text, []byte{0}) {
			if bytes.Equal(variable, want) {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				if err != nil {
					return nil, err
				}
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}
