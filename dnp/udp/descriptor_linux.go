package udp

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A descriptor is a socket that the runtime's poller watches for datagrams to read
// and for nothing else.
//
// The poller watches what it is given for room to write, too, and a UDP socket has
// room again whenever a datagram has left: a thread would wake up for every few
// datagrams sent, to find that nobody waits. That took a sixth of the CPU time of
// an edge. So the poller is given an epoll of its own that holds the socket, for
// reading, and is readable when the socket is.
type descriptor struct {
	sock uintptr
	file *os.File // the epoll
	raw  syscall.RawConn
}

// newDescriptor takes over a socket that does not block; it is closed when there is
// an error.
func newDescriptor(sock int) (*descriptor, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("epoll_create1", err), unix.Close(sock))
	}
	d := &descriptor{sock: uintptr(sock)}
	watch := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(sock)}
	err = os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, sock, &watch))
	if err == nil {
		err = os.NewSyscallError("fcntl", unix.SetNonblock(epoll, true)) // os.NewFile only polls what does not block
	}
	d.file = os.NewFile(uintptr(epoll), "udp")
	if err == nil {
		d.raw, err = d.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// control calls f, which finds the socket open and must not wait. f does not get
// the socket but the epoll as its argument.
func (d *descriptor) control(f func(uintptr)) error { return d.raw.Control(f) }

// read calls f until it returns true, and waits for datagrams in between.
func (d *descriptor) read(f func(uintptr) bool) error { return d.raw.Read(f) }

// awaitRoom waits until the socket has room to write. It is not worth a place in
// the poller: it happens when a buffer of megabytes is full.
func (d *descriptor) awaitRoom(wait time.Duration) error {
	return d.raw.Control(func(uintptr) {
		timeout := unix.NsecToTimespec(int64(wait))
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(d.sock), Events: unix.POLLOUT}}, &timeout, nil) // the caller tries and sees
	})
}

// close waits until nobody uses the socket, which takes no time: only read waits,
// and it returns.
func (d *descriptor) close() error {
	return errors.Join(d.file.Close(), os.NewSyscallError("close", unix.Close(int(d.sock))))
}
