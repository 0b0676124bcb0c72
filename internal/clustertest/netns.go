//go:build linux

package clustertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A netns is a network namespace without a name. A thread of this process lives in
// it; the namespace ends with the last thread, process or socket in it.
type netns struct {
	file string // of the namespace, for others to join it
	work chan func()
}

// newNetns makes a namespace. The error says so if this process may not.
func newNetns() (*netns, error) {
	n := &netns{work: make(chan func())}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- fmt.Errorf("make a network namespace (this needs root): %w", err)
			return
		}
		n.file = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		made <- nil
		for f := range n.work {
			f()
		}
	}()
	return n, <-made
}

// close lets go of the namespace.
func (n *netns) close() { close(n.work) }

// do calls f on the thread that lives in the namespace, for children that are to end
// with this process: the kernel ends a child with Pdeathsig when the thread ends that
// made it.
func (n *netns) do(f func() error) (err error) {
	done := make(chan struct{})
	n.work <- func() { err = f(); close(done) }
	<-done
	return err
}

// in calls f on a thread of its own in the namespace, so f may take its time. Sockets
// that f opens stay in the namespace.
func (n *netns) in(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see newNetns
		file, err := os.Open(n.file)
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			_ = file.Close() // it was only read
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// command runs a short command in the namespace.
func (n *netns) command(name string, args ...string) error {
	return n.do(func() error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// dialTimeout is how long a connection to another namespace may take. Between two on
// one machine it takes no time, so this is for those that do not answer.
const dialTimeout = 2 * time.Second

// Dial opens a connection in the namespace. It makes netns a dialer of nats.go.
func (n *netns) Dial(network, addr string) (c net.Conn, err error) {
	err = n.in(func() (err error) {
		c, err = net.DialTimeout(network, addr, dialTimeout)
		return err
	})
	return c, err
}
