package udp

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// pollWait is how long a read or write that should not wait does wait: the net package
// does nothing at all after a deadline. The number is arbitrary.
const pollWait = 200 * time.Microsecond

// writeTries is how often a datagram is tried before the socket counts as full. A process that gets no processor time between the deadline
// and the write has not tried; that this happens so many times in a row is as good as impossible.
const writeTries = 1 + int(writeWait/pollWait)

// A portableConn moves one datagram per system call through the net package.
type portableConn struct {
	conn     *net.UDPConn
	v4       bool
	counters *counters
	memory   []byte // of one datagram, and one byte that reveals datagrams that are too long
	woken    atomic.Bool
}

func openPortable(cfg Config) ([]*Socket, error) {
	conn, err := bind(cfg.Addr, nil)
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(cfg.ReadBuffer) // less than asked is not an error
	_ = conn.SetWriteBuffer(cfg.WriteBuffer)
	c, addr := new(counters), localAddr(conn)
	p := &portableConn{conn: conn, v4: addr.Addr().Is4(), counters: c, memory: make([]byte, cfg.DatagramMax+1)}
	return []*Socket{newSocket(p, addr, c)}, nil
}

// receive waits for datagrams, the deadline or wake.
//
// wake first sets woken and then a deadline in the past; receive first sets its own
// deadline and then reads woken. In every interleaving, either receive sees the flag or
// wake's deadline is the last one set. If the receive that a wake ends returns before
// wake has set its deadline, the next receive ends with ErrWoken as well.
func (p *portableConn) receive(ds []Datagram, deadline time.Time) (int, error) {
	if err := p.setReadDeadline(deadline); err != nil {
		return 0, err
	}
	if p.woken.Swap(false) {
		return 0, ErrWoken
	}
	n, err := p.read(ds)
	if err == os.ErrDeadlineExceeded && (p.woken.Swap(false) || deadline.IsZero() || time.Now().Before(deadline)) {
		return 0, ErrWoken
	}
	return n, err
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

func (p *portableConn) wake() {
	p.woken.Store(true)
	_ = p.conn.SetReadDeadline(past) // fails only after close, when no receive waits
}

func (p *portableConn) read(ds []Datagram) (int, error) {
	if len(ds) == 0 {
		return 0, nil
	}
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(p.memory)
		switch {
		case err == nil && n < len(p.memory):
			p.counters.in.add(1, n)
			ds[0] = Datagram{From: unmapped(from), Data: p.memory[:n:n]}
			return 1, nil
		case err == nil:
			p.counters.drop(DropTruncated, 1)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, os.ErrDeadlineExceeded
		case errors.Is(err, net.ErrClosed):
			return 0, net.ErrClosed
		default:
			errno, ok := errnoOf(err)
			if !ok || fatal(errno) {
				return 0, err
			}
			p.counters.drop(dropReason(errno), 1)
		}
	}
}

// setReadDeadline extends a deadline that has passed by a moment, so that a read finds
// datagrams that have arrived.
func (p *portableConn) setReadDeadline(t time.Time) error {
	if soonest := time.Now().Add(pollWait); !t.IsZero() && t.Before(soonest) {
		t = soonest
	}
	return p.conn.SetReadDeadline(t)
}

// sender implements packetConn. The net package locks the socket for each datagram.
func (p *portableConn) sender() batchSender { return p }

func (p *portableConn) send(batch []outgoing) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	datagrams, bytes, tries := 0, 0, writeTries
	for i := range batch {
		d := &batch[i]
		err := p.write(d)
		for n := 1; n < tries && errors.Is(err, os.ErrDeadlineExceeded); n++ { // no room, or no time, and then the net package did not try
			p.counters.writeWaits.Add(1)
			_ = p.conn.SetWriteDeadline(time.Now().Add(pollWait))
			err = p.write(d)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			tries = 2 // there is no room
		}
		switch {
		case err == nil:
			datagrams++
			bytes += len(d.data)
		case errors.Is(err, net.ErrClosed):
			return net.ErrClosed
		default:
			p.counters.drop(writeDropReason(err), 1)
		}
	}
	p.counters.out.add(datagrams, bytes)
	return nil
}

// write writes d, and again if the first attempt reported an earlier datagram's error.
func (p *portableConn) write(d *outgoing) error {
	to := unmapped(d.to)
	if !to.Addr().IsValid() || p.v4 && !to.Addr().Is4() {
		return syscall.EHOSTUNREACH // the socket's family does not have the address
	}
	_, err := p.conn.WriteToUDPAddrPort(d.data, to)
	if err == nil {
		return nil
	}
	if errno, ok := errnoOf(err); ok && pending(errno) {
		p.counters.drop(dropReason(errno), 1)
		_, err = p.conn.WriteToUDPAddrPort(d.data, to)
	}
	return err
}

func (p *portableConn) buffers() (read, write int) { return 0, 0 }
func (p *portableConn) overflows() uint64          { return 0 }
func (p *portableConn) close() error               { return p.conn.Close() }

func writeDropReason(err error) DropReason {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return DropFull
	}
	if errno, ok := errnoOf(err); ok {
		return dropReason(errno)
	}
	return DropOther
}

// errnoOf allocates, so only error paths call it.
func errnoOf(err error) (errno syscall.Errno, ok bool) {
	ok = errors.As(err, &errno)
	return errno, ok
}
