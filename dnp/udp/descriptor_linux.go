package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A descriptor is a socket, and an eventfd that ends a wait for it.
//
// The runtime's poller is not asked. It serves programs with many sockets that wait
// seldom; a worker has one and waits hundreds of times a second, each time with
// another deadline. Every such deadline wakes the thread that sits in epoll, which
// then works out when to wake up next, while other threads look for work: twice the
// CPU time of a wait in ppoll. So a wait holds a thread, of which there are as many as workers.
type descriptor struct {
	sock, event int
	users       atomic.Int64 // calls that use the two, and closedMark if they are to be closed
	fds         [2]unix.PollFd
	timeout     unix.Timespec
	count       [8]byte
}

const closedMark = -1 << 40

// newDescriptor takes over a socket; it is closed when there is an error.
func newDescriptor(sock int) (*descriptor, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(sock))
	}
	d := &descriptor{sock: sock, event: event}
	d.fds = [2]unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}, {Fd: int32(event), Events: unix.POLLIN}}
	return d, nil
}

// hold keeps the descriptors open until release. It returns net.ErrClosed after close.
func (d *descriptor) hold() error {
	if d.users.Add(1) < 0 {
		d.release()
		return net.ErrClosed
	}
	return nil
}

func (d *descriptor) release() {
	if d.users.Add(-1) == closedMark && d.users.CompareAndSwap(closedMark, 2*closedMark) {
		_ = errors.Join(unix.Close(d.sock), unix.Close(d.event)) // nobody is left to tell
	}
}

// close ends waits. The descriptors are closed when nobody uses them, at once but for
// a thread that wakes up. It is called once.
func (d *descriptor) close() error {
	if err := d.hold(); err != nil {
		return err
	}
	d.users.Add(closedMark)
	d.signal()
	d.release()
	return nil
}

// wake ends the wait that is under way, or else the next one.
func (d *descriptor) wake() {
	if d.hold() == nil {
		d.signal()
		d.release()
	}
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

func (d *descriptor) signal() {
	_, _ = unix.Write(d.event, one) // fails only if nobody has looked 2^64 times
}

// await waits until there is something to read. It returns os.ErrDeadlineExceeded
// after the deadline, for which the zero time means never, ErrWoken after wake and
// net.ErrClosed after close. It belongs to one goroutine.
func (d *descriptor) await(deadline time.Time) error {
	if err := d.hold(); err != nil {
		return err
	}
	defer d.release()
	for {
		var timeout *unix.Timespec
		if !deadline.IsZero() {
			d.timeout = unix.NsecToTimespec(max(0, int64(time.Until(deadline))))
			timeout = &d.timeout
		}
		n, err := unix.Ppoll(d.fds[:], timeout, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("ppoll", err)
		case n == 0:
			return os.ErrDeadlineExceeded
		case d.users.Load() < 0:
			return net.ErrClosed
		case d.fds[0].Revents != 0: // datagrams first; what the eventfd says can wait
			return nil
		default:
			_, _ = unix.Read(d.event, d.count[:]) // it is readable
			return ErrWoken
		}
	}
}

// awaitRoom waits until there is room to write.
func (d *descriptor) awaitRoom(wait time.Duration) {
	timeout := unix.NsecToTimespec(int64(wait))
	_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(d.sock), Events: unix.POLLOUT}}, &timeout, nil) // the caller tries and sees
}
