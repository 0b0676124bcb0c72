//go:build linux

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	socketBatch = 64
	slotBytes   = 2048     // edges send up to 1,200
	swarmBuffer = 64 << 20 // the datagrams of a window of the largest case

	// forgerBuffer holds some answers. Beyond it the kernel only counts them.
	forgerBuffer = 1 << 20

	// lookInterval is the time between two looks of an idle swarm. A swarm that waited in
	// the kernel would be cheaper, but a sender pays more for waking a thread on another
	// core than for a datagram, and clients on other machines do not cost an edge that.
	// Latencies are late by up to lookInterval.
	lookInterval = 200 * time.Microsecond

	// restInterval is the same while another swarm is measured.
	restInterval = 10 * time.Millisecond

	// A control message with a struct in_pktinfo, which has an interface number, the local
	// address and the address, 4 bytes each, and 4 bytes of padding.
	pktinfoBytes = unix.SizeofCmsghdr + 16

	// A control message with the time at which the kernel had the datagram, a struct timespec.
	stampBytes = unix.SizeofCmsghdr + 16
)

// A mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// A Socket is one UDP socket with many addresses. Bound to the wildcard address, it
// receives datagrams to any address of 127.0.0.0/8; IP_PKTINFO tells and chooses the
// address. Package udp has a socket per address, so 10,000 clients would take 10,000
// system calls where this socket takes 160.
//
// Package net knows nothing of the socket. Otherwise the runtime would watch it, and a
// sender would pay for a wake-up of the runtime with most datagrams.
type Socket struct {
	fd   int
	port uint16
	in   batch
	out  batch
	nOut int
}

// A batch is the arguments of recvmmsg and sendmmsg.
type batch struct {
	memory  [socketBatch][slotBytes]byte
	names   [socketBatch]unix.RawSockaddrInet4
	control [socketBatch][pktinfoBytes + stampBytes]byte
	iovecs  [socketBatch]unix.Iovec
	headers [socketBatch]mmsghdr
}

func (b *batch) init() {
	for i := range b.headers {
		b.iovecs[i].Base = &b.memory[i][0]
		h := &b.headers[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&b.names[i])), unix.SizeofSockaddrInet4
		h.Iov, h.Iovlen = &b.iovecs[i], 1
		h.Control = &b.control[i][0]
		copy(b.control[i][:], unix.PktInfo4(&unix.Inet4Pktinfo{}))
	}
}

// openSocket opens a socket at a free port, with a receive buffer of a size.
func openSocket(buffer int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &Socket{fd: fd}
	s.in.init()
	s.out.init()
	err = errors.Join(setReadBuffer(fd, buffer), unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1), unix.Bind(fd, &unix.SockaddrInet4{}))
	name, nameErr := unix.Getsockname(fd)
	if err = errors.Join(err, nameErr); err != nil {
		s.Close()
		return nil, fmt.Errorf("open the socket of the clients: %w", err)
	}
	s.port = uint16(name.(*unix.SockaddrInet4).Port)
	return s, nil
}

// setReadBuffer gives a socket a receive buffer of a size, or as much as this program may request.
func setReadBuffer(fd, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
}

// stamp has the kernel tell the time at which it had each datagram, in nanoseconds of the wall clock.
func (s *Socket) stamp() error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
}

// Close closes the socket.
func (s *Socket) Close() { _ = unix.Close(s.fd) } // an error would change nothing

// read returns how many datagrams have arrived, for datagram. It does not wait.
func (s *Socket) read() (n int, err error) {
	for i := range s.in.headers {
		h := &s.in.headers[i].hdr
		h.Controllen = uint64(len(s.in.control[i]))
		s.in.iovecs[i].Len = slotBytes
	}
	r, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.in.headers[0])),
		socketBatch, unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		return int(r), nil
	case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED:
		return 0, nil
	}
	return 0, os.NewSyscallError("recvmmsg", errno)
}

// datagram returns datagram i of the last read: its source, its destination address, its
// bytes, which are valid until the next read, and its stamp, 0 for none.
func (s *Socket) datagram(i int) (from netip.AddrPort, to uint32, data []byte, stamp int64) {
	b := &s.in
	from = netip.AddrPortFrom(netip.AddrFrom4(b.names[i].Addr), swap16(b.names[i].Port))
	control := b.control[i][:min(b.headers[i].hdr.Controllen, uint64(len(b.control[i])))]
	for len(control) >= pktinfoBytes { // both have as many bytes
		switch h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0])); {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO:
			to = binary.BigEndian.Uint32(control[unix.SizeofCmsghdr+8:])
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS:
			stamp = (*unix.Timespec)(unsafe.Pointer(&control[unix.SizeofCmsghdr])).Nano()
		}
		control = control[pktinfoBytes:]
	}
	return from, to, b.memory[i][:min(b.headers[i].len, slotBytes)], stamp
}

// Room returns a buffer for the next datagram to send.
func (s *Socket) Room() []byte {
	if s.nOut == socketBatch {
		s.Flush()
	}
	return s.out.memory[s.nOut][:0]
}

// Send queues the datagram that was built in the last Room. It leaves from the address
// from at the next Flush.
func (s *Socket) Send(from uint32, to netip.AddrPort, data []byte) {
	b, i := &s.out, s.nOut
	b.iovecs[i].Len = uint64(len(data))
	b.names[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swap16(to.Port()), Addr: to.Addr().As4()}
	binary.BigEndian.PutUint32(b.control[i][unix.SizeofCmsghdr+4:], from) // in_pktinfo.ipi_spec_dst
	b.headers[i].hdr.Controllen = pktinfoBytes
	s.nOut++
}

// Flush sends the queue.
func (s *Socket) Flush() {
	sendAll(s.fd, s.out.headers[:s.nOut])
	s.nOut = 0
}

// sendAll sends datagrams. One that the kernel refuses is lost, as on any network; the
// peers repeat what matters.
func sendAll(fd int, headers []mmsghdr) {
	for len(headers) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&headers[0])),
			uintptr(min(len(headers), socketBatch)), 0, 0, 0)
		if errno != 0 {
			n = 1
		}
		headers = headers[n:]
	}
}

// overflows returns how many datagrams a full read buffer has dropped.
func (s *Socket) overflows() uint32 { return socketDrops(s.fd) }

// socketDrops returns how many datagrams the full read buffer of a socket has dropped.
func socketDrops(fd int) uint32 {
	const drops = 8 // index of the counter in the result of SO_MEMINFO
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return info[drops]
}

func swap16(v uint16) uint16 { return v<<8 | v>>8 } // network order on little-endian machines

const firstAddress = 127<<24 | 1<<16 // of the first client, 127.1.0.0

// ClientAddress returns the address of client i.
func ClientAddress(i int) uint32 { return firstAddress + uint32(i) }

func sockaddr(addr uint32, port uint16) unix.RawSockaddrInet4 {
	a := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swap16(port)}
	binary.BigEndian.PutUint32(a.Addr[:], addr)
	return a
}
