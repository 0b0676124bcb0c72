package udp

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// cacheLine is the size of a cache line in bytes on amd64 and arm64.
const cacheLine = 64

// An mmsgConn receives with recvmmsg and sends with sendmmsg, neither of which blocks.
type mmsgConn struct {
	*descriptor
	v4       bool // an IPv4 socket
	counters *counters
	in       receiver
}

func newMmsgConn(d *descriptor, v4 bool, cfg Config, c *counters) *mmsgConn {
	m := &mmsgConn{descriptor: d, v4: v4, counters: c}
	m.in.init(cfg)
	m.in.tryFn = m.tryReceive
	return m
}

// sender implements packetConn.
func (m *mmsgConn) sender() batchSender { return &sender{conn: m, sendmmsg: sendmmsg} }

// A receiver holds the memory and the arguments of recvmmsg, and a callback that is made
// once, so that a call allocates nothing.
type receiver struct {
	memory    []byte // slots, stride bytes apart
	stride    int
	max       int
	names     []sockaddr
	iovecs    []unix.Iovec
	headers   []mmsghdr
	zones     zones
	want, got int
	errno     syscall.Errno

	// of the current call of receive
	into     []Datagram
	deadline time.Time
	n        int
	err      error
	tryFn    func(uintptr) bool // tryReceive
}

func (r *receiver) init(cfg Config) {
	n := cfg.ReadSlots
	r.max = cfg.DatagramMax
	r.stride = ((r.max+cacheLine)/cacheLine | 1) * cacheLine // room for max+1 bytes, see the package comment
	r.memory = make([]byte, n*r.stride)
	r.names = make([]sockaddr, n)
	r.iovecs = make([]unix.Iovec, n)
	r.headers = make([]mmsghdr, n)
	for i := range n {
		r.iovecs[i].Base = &r.memory[i*r.stride]
		r.iovecs[i].SetLen(r.max + 1) // the extra byte reveals datagrams that are too long
		h := &r.headers[i].hdr
		h.Iov = &r.iovecs[i]
		h.SetIovlen(1)
		h.Name = &r.names[i][0]
		h.Namelen = uint32(len(sockaddr{}))
	}
}

// recv calls the system once. The caller holds the socket open.
func (r *receiver) recv(sock int) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(sock), uintptr(unsafe.Pointer(&r.headers[0])),
		uintptr(r.want), unix.MSG_DONTWAIT, 0, 0)
	r.got, r.errno = int(n), errno
}

// receive returns datagrams. It waits for them until the deadline or wake.
func (m *mmsgConn) receive(ds []Datagram, deadline time.Time) (n int, err error) {
	r := &m.in
	r.into, r.deadline, r.n, r.err = ds, deadline, 0, nil
	if len(ds) == 0 {
		return 0, nil
	}
	err = m.wait(r.tryFn)
	r.into = nil
	if err != nil {
		return 0, err
	}
	return r.n, r.err
}

// tryReceive reports whether receive is done: by datagrams, an error, wake or the
// deadline, in this order.
func (m *mmsgConn) tryReceive(uintptr) bool {
	r := &m.in
	r.n, r.err = m.poll(r.into)
	switch {
	case r.n > 0 || r.err != nil:
	case m.woken():
		r.err = ErrWoken
	case !m.setTimer(r.deadline):
		r.err = os.ErrDeadlineExceeded
	default:
		return false
	}
	return true
}

// poll reads until there is a datagram, nothing more to read, or an error of the socket.
// It counts errors of earlier datagrams; the kernel reports each once.
func (m *mmsgConn) poll(ds []Datagram) (int, error) {
	r := &m.in
	r.want = min(len(ds), len(r.headers))
	for {
		r.recv(m.sock)
		switch {
		case r.errno == unix.EAGAIN:
			return 0, nil
		case r.errno == unix.EINTR:
		case r.errno != 0 && fatal(r.errno):
			return 0, os.NewSyscallError("recvmmsg", r.errno)
		case r.errno != 0:
			m.counters.drop(dropReason(r.errno), 1)
		default:
			if n := m.take(ds); n > 0 {
				return n, nil
			}
		}
	}
}

// take converts the messages of recvmmsg to Datagrams.
func (m *mmsgConn) take(ds []Datagram) (n int) {
	r, bytes := &m.in, 0
	for i := range r.got {
		h := &r.headers[i]
		size := int(h.len)
		from, ok := r.zones.decode(&r.names[i])
		h.hdr.Namelen = uint32(len(sockaddr{})) // the kernel shortens it for IPv4
		if size > r.max || h.hdr.Flags&unix.MSG_TRUNC != 0 {
			m.counters.drop(DropTruncated, 1)
			continue
		}
		if !ok {
			m.counters.drop(DropOther, 1)
			continue
		}
		start := i * r.stride
		ds[n] = Datagram{From: from, Data: r.memory[start : start+size : start+size]}
		n++
		bytes += size
	}
	m.counters.in.add(n, bytes)
	return n
}
