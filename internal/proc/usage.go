//go:build linux

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
