//go:build linux

package proc

import "runtime"

// A Thread is an operating-system thread that calls functions, one at a time. Children
// must be started on one that lives long enough: the kernel kills a child with Pdeathsig
// when the thread that started it ends.
type Thread struct{ work chan func() }

// NewThread starts a thread that lives until Close.
func NewThread() *Thread {
	t, _ := NewThreadIn(func() error { return nil })
	return t
}

// NewThreadIn starts a thread that calls prepare first, and ends if that fails. prepare
// may change what belongs to the thread alone, such as its network namespace.
func NewThreadIn(prepare func() error) (*Thread, error) {
	t := &Thread{work: make(chan func())}
	prepared := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := prepare()
		prepared <- err
		if err != nil {
			return
		}
		for f := range t.work {
			f()
		}
	}()
	return t, <-prepared
}

// Do calls f on the thread and returns its error.
func (t *Thread) Do(f func() error) (err error) {
	done := make(chan struct{})
	t.work <- func() { err = f(); close(done) }
	<-done
	return err
}

// Close ends the thread.
func (t *Thread) Close() { close(t.work) }
