package udp

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sender is the arguments of sendmmsg.
type sender struct {
	names    [writeBatch]sockaddr
	iovecs   [writeBatch]unix.Iovec
	headers  [writeBatch]mmsghdr
	zones    zones
	first, n int // headers[first:n] are still to be sent
	sent     int
	errno    syscall.Errno
	sock     uintptr
	tryFn    func(uintptr) // for descriptor.control

	// sendmmsg is the system call; tests put faults in front of it.
	sendmmsg func(fd uintptr, headers []mmsghdr) (sent int, errno syscall.Errno)
}

func (s *sender) init(sock uintptr) {
	s.sock = sock
	s.sendmmsg = sendmmsg
	s.tryFn = func(uintptr) { s.sent, s.errno = s.sendmmsg(s.sock, s.headers[s.first:s.n]) }
}

func sendmmsg(fd uintptr, headers []mmsghdr) (int, syscall.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&headers[0])),
		uintptr(len(headers)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// send transmits the batch. sendmmsg stops at the first datagram that the kernel
// refuses, so it is called again behind that one until all are dealt with.
func (m *mmsgConn) send(batch []outgoing) error {
	s := &m.out
	s.fill(m.v4, batch, m.counters)
	var (
		bytes, datagrams int
		waited, again    bool // again: this datagram met one error already
	)
	for s.first < s.n {
		if err := m.descriptor.control(s.tryFn); err != nil {
			return err
		}
		if s.errno == unix.EAGAIN && !waited {
			waited = true
			if err := m.waitToSend(); err != nil {
				return err
			}
		}
		switch {
		case s.errno == 0:
			for _, h := range s.headers[s.first : s.first+s.sent] {
				bytes += int(h.len)
			}
			datagrams += s.sent
			s.first += s.sent
			again = false
		case s.errno == unix.EINTR:
		case fatal(s.errno):
			return os.NewSyscallError("sendmmsg", s.errno)
		case pending(s.errno) && !again:
			m.counters.drop(dropReason(s.errno)) // of an earlier datagram; this one has not been tried
			again = true
		default:
			m.counters.drop(dropReason(s.errno))
			s.first++
			again = false
		}
	}
	m.counters.sent(datagrams, bytes)
	return nil
}

// waitToSend waits up to writeWait for room, then tries once more. Others may take
// the room first, so it waits again for what is left of the time.
func (m *mmsgConn) waitToSend() error {
	m.counters.writeWaits.Add(1)
	end := time.Now().Add(writeWait)
	for wait := writeWait; wait > 0; wait = time.Until(end) {
		if err := m.descriptor.awaitRoom(wait); err != nil {
			return err
		}
		if err := m.descriptor.control(m.out.tryFn); err != nil || m.out.errno != unix.EAGAIN {
			return err
		}
	}
	return nil
}

// fill makes headers of the datagrams that this kind of socket can address.
func (s *sender) fill(v4 bool, batch []outgoing, c *counters) {
	s.first, s.n = 0, 0
	for i := range batch {
		d := &batch[i]
		size, ok := s.zones.encode(&s.names[s.n], d.to, v4)
		if !ok {
			c.drop(DropUnreachable)
			continue
		}
		iov := &s.iovecs[s.n]
		iov.Base = unsafe.SliceData(d.data)
		iov.SetLen(len(d.data))
		h := &s.headers[s.n].hdr
		h.Name, h.Namelen = &s.names[s.n][0], size
		h.Iov = iov
		h.SetIovlen(1)
		s.n++
	}
}
