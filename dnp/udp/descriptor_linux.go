package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A descriptor is a socket with the means to wait for it: a kernel timer, an eventfd
// that ends a wait, and an epoll of the three, which the runtime's poller watches.
//
// The runtime's poller does not get the socket itself. It would watch it for room to
// write, too, and a UDP socket has room again whenever a datagram has left: a thread
// would wake up for every few datagrams sent, although no goroutine waits. Nor does the
// poller get deadlines. It is built for connections that wait seldom and for long; a
// worker waits hundreds of times a second, each time with another deadline, and each
// deadline wakes the thread in epoll to compute its next wake-up. A wake-up of a worker
// costs three times as much that way as with the timer, and 1.7 times as much with a
// thread of its own that waits in ppoll, which the runtime watches.
//
// No system call here blocks, so none announces itself to the runtime, and the
// runtime's monitor stays asleep.
type descriptor struct {
	sock, event, timer int
	users              atomic.Int64 // calls that use these, plus closedMark once close was called

	file  *os.File // the epoll
	raw   syscall.RawConn
	count [8]byte
}

const closedMark = -1 << 40

// newDescriptor takes ownership of a socket, and closes it on an error.
func newDescriptor(sock int) (d *descriptor, err error) {
	d = &descriptor{sock: sock, event: -1, timer: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.free())
		}
	}()
	if d.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if d.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(epoll, true); err != nil { // os.NewFile polls only non-blocking files
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(epoll))
	}
	d.file = os.NewFile(uintptr(epoll), "udp")
	for _, fd := range []int{d.sock, d.event, d.timer} {
		watch := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
		if err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &watch); err != nil {
			return nil, os.NewSyscallError("epoll_ctl", err)
		}
	}
	d.raw, err = d.file.SyscallConn()
	return d, err
}

// hold keeps the socket open until release. It returns net.ErrClosed after close.
func (d *descriptor) hold() error {
	if d.users.Add(1) < 0 {
		d.release()
		return net.ErrClosed
	}
	return nil
}

func (d *descriptor) release() {
	if d.users.Add(-1) == closedMark && d.users.CompareAndSwap(closedMark, 2*closedMark) {
		_ = d.free() // there is no caller left to report to
	}
}

// close ends a wait. The socket is closed when its last user releases it, which is
// soon. close is called once.
func (d *descriptor) close() error {
	if err := d.hold(); err != nil {
		return err
	}
	defer d.release()
	d.users.Add(closedMark)
	err := d.file.Close()
	d.file = nil
	return err
}

func (d *descriptor) free() (err error) {
	for _, fd := range []int{d.sock, d.event, d.timer} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if d.file != nil {
		err = errors.Join(err, d.file.Close())
	}
	return err
}

// wait calls ready until it returns true, and waits in between for something to
// read, the deadline that setTimer set, or wake. It belongs to one goroutine.
func (d *descriptor) wait(ready func(uintptr) bool) error { return d.raw.Read(ready) }

// wake ends the wait that is under way, or else the next one.
func (d *descriptor) wake() {
	if d.hold() == nil {
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(d.event), uintptr(unsafe.Pointer(&one[0])), 8)
		d.release()
	}
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// woken reports whether wake was called since the last call of woken.
func (d *descriptor) woken() bool {
	n, _, _ := unix.RawSyscall(unix.SYS_READ, uintptr(d.event), uintptr(unsafe.Pointer(&d.count[0])), 8)
	return n == 8
}

// setTimer makes the next wait end at a time; the zero time means never. It reports
// false if the time has passed.
func (d *descriptor) setTimer(at time.Time) bool {
	var spec unix.ItimerSpec // all zero means never
	if !at.IsZero() {
		left := time.Until(at)
		if left <= 0 {
			return false
		}
		spec.Value = unix.NsecToTimespec(int64(left))
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(d.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0) // cannot fail
	return true
}

// awaitRoom waits until there is room to write.
func (d *descriptor) awaitRoom(wait time.Duration) {
	timeout := unix.NsecToTimespec(int64(wait))
	_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(d.sock), Events: unix.POLLOUT}}, &timeout, nil) // the caller tries again anyway
}
