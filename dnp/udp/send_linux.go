package udp

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sender holds the arguments of sendmmsg, for one Writer. Each header is a run: one
// datagram, or several to one peer that leave as one piece.
type sender struct {
	conn     *mmsgConn
	names    [writeBatch]sockaddr
	iovecs   [writeBatch]unix.Iovec
	controls [writeBatch]segmentControl
	headers  [writeBatch]mmsghdr
	runs     [writeBatch]run
	zones    zones
	first, n int  // headers[first:n] remain to be sent
	plain    bool // the device cannot cut runs
	sent     int
	errno    syscall.Errno

	// sendmmsg is the system call; tests inject faults here.
	sendmmsg func(sock int, headers []mmsghdr) (sent int, errno syscall.Errno)
}

// try calls the system once. The caller holds the socket open.
func (s *sender) try() { s.sent, s.errno = s.sendmmsg(s.conn.sock, s.headers[s.first:s.n]) }

func sendmmsg(sock int, headers []mmsghdr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(sock), uintptr(unsafe.Pointer(&headers[0])),
		uintptr(len(headers)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// send transmits the batch. sendmmsg stops at the first run that the kernel refuses, so
// send calls it again for the runs behind that until all are sent or dropped.
func (s *sender) send(batch []outgoing) error {
	m := s.conn
	if err := m.hold(); err != nil {
		return err
	}
	defer m.release()
	s.fill(m.v4, batch, 0, m.counters)
	var waited, again bool // again: this run met one error already
	for s.first < s.n {
		if s.try(); s.errno == unix.EAGAIN && !waited {
			waited = true
			s.waitToSend()
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
			m.counters.drop(dropReason(s.errno), 1) // the error of an earlier datagram; this one has not been tried
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

// count counts the runs that were sent.
func (s *sender) count(c *counters) {
	var datagrams, bytes int
	for i := s.first; i < s.first+s.sent; i++ {
		datagrams += s.runs[i].n
		bytes += int(s.headers[i].len)
	}
	c.out.add(datagrams, bytes)
}

// waitToSend waits up to writeWait for room, then tries once more. Another sender may
// take the room first, so it waits again for the rest of the time.
func (s *sender) waitToSend() {
	s.conn.counters.writeWaits.Add(1)
	end := time.Now().Add(writeWait)
	for wait := writeWait; wait > 0; wait = time.Until(end) {
		s.conn.awaitRoom(wait)
		if s.try(); s.errno != unix.EAGAIN {
			return
		}
	}
}

// fill makes headers for the datagrams that this kind of socket can address. It does
// not join the first singles of them into runs.
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

// add makes the header of a run that begins at place first of the batch.
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

// Several datagrams of one size to one peer pass the kernel's UDP and IP as one piece
// that is cut only at the device (UDP_SEGMENT, "generic segmentation offload"; Linux
// 4.18). The last of them may be shorter. The LinkUpdates of a client with many links are
// such datagrams: full ones of equal size and a rest. Most of the cost of a datagram is
// its way through the kernel.

const (
	segmentsMax = 64     // of one piece; UDP_MAX_SEGMENTS of older kernels
	segmentsLen = 65_000 // bytes of one piece, less than the limit of the IP header
)

// A run is a sequence of datagrams that leave as one piece.
type run struct{ first, n int }

// runLength returns how many datagrams at the start of the batch can leave as one
// piece: to one peer, adjacent in memory, all but the last of equal length.
func runLength(batch []outgoing) int {
	to, size := batch[0].to, len(batch[0].data)
	end, total := address(batch[0].data)+uintptr(size), size
	for n := 1; n < min(len(batch), segmentsMax); n++ {
		d := &batch[n]
		length := len(d.data)
		if length == 0 || length > size || total+length > segmentsLen || d.to != to || address(d.data) != end {
			return n
		}
		if length < size {
			return n + 1
		}
		total += length
		end += uintptr(length)
	}
	return min(len(batch), segmentsMax)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// A segmentControl is the control message with the length of the datagrams of a run:
// the kernel's struct cmsghdr, the length, and padding.
type segmentControl struct {
	header unix.Cmsghdr
	size   uint16
	_      [6]byte
}

func (c *segmentControl) attach(h *unix.Msghdr, size int) {
	c.header.Level, c.header.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	c.header.SetLen(unix.CmsgLen(2))
	c.size = uint16(size)
	h.Control = (*byte)(unsafe.Pointer(c))
	h.SetControllen(unix.CmsgSpace(2))
}

// uncut reports whether errno can mean that the kernel could not cut a run, but
// could send its datagrams one by one: EIO, the device cannot compute checksums;
// EINVAL and EMSGSIZE, a datagram is larger than the MTU of the path, and IP fragments
// only single ones.
func uncut(errno syscall.Errno) bool {
	return errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE
}
