package udp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Several datagrams of one size to one peer go through the kernel's UDP and IP as
// one piece that is cut only at the device (UDP_SEGMENT, "generic segmentation
// offload"; Linux 4.18). The last of them may be shorter. Values of a state that
// many clients are linked to make just such datagrams: full ones of equal size and
// a rest. What a datagram costs is mostly that way through the kernel.

const (
	segmentsMax = 64     // of one piece; UDP_MAX_SEGMENTS of older kernels
	segmentsLen = 65_000 // bytes of one piece, below what the IP header can say
)

// A run is datagrams that leave as one piece.
type run struct{ first, n int }

// runLength returns how many datagrams at the start of the batch can leave as one
// piece: to one peer, side by side in memory, equally long up to the last.
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

// A segmentControl is the control message that says how long the datagrams of a
// run are: the kernel's struct cmsghdr, the length, and padding.
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
// could send its datagrams one by one: EIO, the device cannot make checksums;
// EINVAL and EMSGSIZE, a datagram is longer than the way to the peer carries in one
// piece, and only single ones are fragmented.
func uncut(errno syscall.Errno) bool {
	return errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE
}
