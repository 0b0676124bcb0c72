//go:build linux

package proctest

import (
	"testing"
	"time"
)

func TestMachine(t *testing.T) {
	const seconds = 100 // a second in /proc/stat
	busy, idle := machine("cpu  100 200 300 4000 500 60 70 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if want := (100 + 200 + 300 + 60 + 70 + 80) * time.Second / seconds; busy != want {
		t.Errorf("busy %v, want %v: all but idle, iowait, and what is part of user and nice", busy, want)
	}
	if want := (4000 + 500) * time.Second / seconds; idle != want {
		t.Errorf("idle %v, want %v", idle, want)
	}
	for _, wrong := range []string{"", "cpu  1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 x 5 6 7 8\n"} {
		if busy, idle := machine(wrong); busy != 0 || idle != 0 {
			t.Errorf("%q: %v and %v, want nothing", wrong, busy, idle)
		}
	}
	if busy, _ := Machine(); busy == 0 {
		t.Error("this machine has never been busy")
	}
}
