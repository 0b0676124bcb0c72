package udp

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sender is the arguments of sendmmsg. Each header is a run: one datagram, or
// several to one peer that the kernel cuts out of one piece (segment_linux.go).
type sender struct {
	names    [writeBatch]sockaddr
	iovecs   [writeBatch]unix.Iovec
	controls [writeBatch]segmentControl
	headers  [writeBatch]mmsghdr
	runs     [writeBatch]run
	zones    zones
	first, n int  // headers[first:n] are still to be sent
	plain    bool // the kernel cannot cut
	sent     int
	errno    syscall.Errno

	// sendmmsg is the system call; tests put faults in front of it.
	sendmmsg func(sock int, headers []mmsghdr) (sent int, errno syscall.Errno)
}

func (s *sender) init() { s.sendmmsg = sendmmsg }

// try calls the system once.
func (s *sender) try(sock int) { s.sent, s.errno = s.sendmmsg(sock, s.headers[s.first:s.n]) }

func sendmmsg(sock int, headers []mmsghdr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(sock), uintptr(unsafe.Pointer(&headers[0])),
		uintptr(len(headers)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// send transmits the batch. sendmmsg stops at the first run that the kernel
// refuses, so it is called again behind that one until all are dealt with.
func (m *mmsgConn) send(batch []outgoing) error {
	if err := m.descriptor.hold(); err != nil {
		return err
	}
	defer m.descriptor.release()
	s := &m.out
	s.fill(m.v4, batch, 0, m.counters)
	var waited, again bool // again: this run met one error already
	for s.first < s.n {
		if s.try(m.descriptor.sock); s.errno == unix.EAGAIN && !waited {
			waited = true
			m.waitToSend()
		}
		r := s.runs[s.first]
		switch {
		case s.errno == 0:
			s.count(m.counters)
			s.first += s.sent
			again = false
		case s.errno == unix.EINTR:
		case fatal(s.errno):
			return os.NewSyscallError("sendmmsg", s.errno)
		case pending(s.errno) && !again:
			m.counters.drop(dropReason(s.errno), 1) // of an earlier datagram; this one has not been tried
			again = true
		case r.n > 1 && uncut(s.errno):
			s.plain = s.plain || s.errno == unix.EIO
			m.counters.uncut.Add(1)
			s.fill(m.v4, batch[r.first:], r.n, m.counters)
			batch = batch[r.first:]
			again = false
		default:
			m.counters.drop(dropReason(s.errno), r.n)
			s.first++
			again = false
		}
	}
	return nil
}

// count notes the runs that went out.
func (s *sender) count(c *counters) {
	var datagrams, bytes int
	for i := s.first; i < s.first+s.sent; i++ {
		datagrams += s.runs[i].n
		bytes += int(s.headers[i].len)
	}
	c.sent(datagrams, bytes)
}

// waitToSend waits up to writeWait for room, then tries once more. Others may take
// the room first, so it waits again for what is left of the time.
func (m *mmsgConn) waitToSend() {
	m.counters.writeWaits.Add(1)
	end := time.Now().Add(writeWait)
	for wait := writeWait; wait > 0; wait = time.Until(end) {
		m.descriptor.awaitRoom(wait)
		if m.out.try(m.descriptor.sock); m.out.errno != unix.EAGAIN {
			return
		}
	}
}

// fill makes headers of the datagrams that this kind of socket can address. The
// first singles of them are not made runs of.
func (s *sender) fill(v4 bool, batch []outgoing, singles int, c *counters) {
	s.first, s.n = 0, 0
	for i := 0; i < len(batch); {
		n := 1
		if i >= singles && !s.plain {
			n = runLength(batch[i:])
		}
		s.add(v4, batch[i:i+n], i, c)
		i += n
	}
}

// add makes a header of a run that begins at place first of the batch.
func (s *sender) add(v4 bool, ds []outgoing, first int, c *counters) {
	size, ok := s.zones.encode(&s.names[s.n], ds[0].to, v4)
	if !ok {
		c.drop(DropUnreachable, len(ds))
		return
	}
	bytes := 0
	for i := range ds {
		bytes += len(ds[i].data)
	}
	iov := &s.iovecs[s.n]
	iov.Base = unsafe.SliceData(ds[0].data)
	iov.SetLen(bytes)
	h := &s.headers[s.n].hdr
	h.Name, h.Namelen = &s.names[s.n][0], size
	h.Iov = iov
	h.SetIovlen(1)
	h.Control = nil
	h.SetControllen(0)
	if len(ds) > 1 {
		s.controls[s.n].attach(h, len(ds[0].data))
	}
	s.runs[s.n] = run{first, len(ds)}
	s.n++
}
