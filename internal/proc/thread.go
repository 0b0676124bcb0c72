//go:build linux

package proc

import "runtime"

// A Thread starts children that are to end with this process: the kernel ends a child
// with Pdeathsig when the thread ends that made it, so that has to live.
type Thread struct{ work chan func() }

// NewThread starts one.
func NewThread() *Thread {
	t := &Thread{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		for f := range t.work {
			f()
		}
	}()
	return t
}

// Do calls f on the thread.
func (t *Thread) Do(f func() error) (err error) {
	done := make(chan struct{})
	t.work <- func() { err = f(); close(done) }
	<-done
	return err
}
