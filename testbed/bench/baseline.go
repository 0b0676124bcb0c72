//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"golang.org/x/sys/unix"
)

// A Job tells the process of a sending baseline what to send, as gob on its standard
// input.
type Job struct {
	Port  uint16 // of the swarm
	Sent  []Sent // datagrams of edges, to be sent again in the same bursts
	Data  []byte // first bytes of each of them
	Peers int    // if not 0: send a datagram of one update each to so many peers, instead of Sent
}

const (
	naiveCount = 50_000 // datagrams
	naiveBytes = 37     // a LinkUpdate with one link of 28 bytes in two values
)

// Send runs a sending baseline: it reads a Job, carries it out and writes its CPU time in
// nanoseconds. It runs in a process of its own, so that the kernel can tell its CPU time.
func Send(ctx context.Context, in io.Reader, out io.Writer) error {
	var j Job
	if err := gob.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	send := sendBare
	if j.Peers > 0 {
		send = sendNaive
	}
	spent, err := send(ctx, &j)
	if err == nil {
		_, err = fmt.Fprint(out, spent.Nanoseconds())
	}
	return err
}

// burstGap is the least pause between the datagrams of two bursts.
const burstGap = 1000 // µs

// sendBare sends the recorded datagrams with sendmmsg. It prepares the arguments of all
// calls before the first.
func sendBare(ctx context.Context, j *Job) (time.Duration, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	headers := bareHeaders(j)
	start, before := time.Now(), proctest.CPU(os.Getpid())
	for first := 0; first < len(j.Sent) && ctx.Err() == nil; {
		at := start.Add(time.Duration(j.Sent[first].Micros-j.Sent[0].Micros) * time.Microsecond)
		time.Sleep(time.Until(at))
		end := first + 1
		for end < len(j.Sent) && j.Sent[end].Micros-j.Sent[end-1].Micros < burstGap {
			end++
		}
		sendAll(fd, headers[first:end])
		first = end
	}
	return proctest.CPU(os.Getpid()) - before, nil
}

func bareHeaders(j *Job) []mmsghdr {
	memory := make([][slotBytes]byte, socketBatch) // as much as a writer of an edge has
	for i := range memory {
		copy(memory[i][:], j.Data)
	}
	names := make([]unix.RawSockaddrInet4, len(j.Sent))
	iovecs := make([]unix.Iovec, len(j.Sent))
	headers := make([]mmsghdr, len(j.Sent))
	for i, s := range j.Sent {
		names[i] = sockaddr(ClientAddress(int(s.Client)), j.Port)
		iovecs[i] = unix.Iovec{Base: &memory[i%socketBatch][0], Len: uint64(min(s.Size, slotBytes))}
		h := &headers[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&names[i])), unix.SizeofSockaddrInet4
		h.Iov, h.Iovlen = &iovecs[i], 1
	}
	return headers
}

// sendNaive sends one datagram with one system call per update, like a program that
// writes each change to each client.
func sendNaive(ctx context.Context, j *Job) (time.Duration, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	data, before := make([]byte, naiveBytes), proctest.CPU(os.Getpid())
	for i := range naiveCount {
		if ctx.Err() != nil {
			break
		}
		to := netip.AddrPortFrom(netip.AddrFrom4(sockaddr(ClientAddress(i%j.Peers), 0).Addr), j.Port)
		_, _ = conn.WriteToUDPAddrPort(data, to) // a datagram that cannot be sent is lost, as for the edge
	}
	return proctest.CPU(os.Getpid()) - before, nil
}

// job runs a sending baseline in a process of its own and returns its CPU time.
func (r *Runner) job(ctx context.Context, j *Job) (time.Duration, error) {
	var in bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return 0, err
	}
	p := exec.CommandContext(ctx, r.Self, "bench-send")
	p.Stdin = &in
	out, err := p.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(failed.Stderr))
		}
		return 0, fmt.Errorf("baseline: %w", err)
	}
	spent, err := strconv.ParseInt(string(out), 10, 64)
	return time.Duration(spent), err
}

// rawClients are subscribers that speak a minimum of the NATS protocol themselves, so that
// nats-server is measured and not a client library.
type rawClients struct {
	conns []net.Conn
	wait  sync.WaitGroup
	got   atomic.Uint64
}

// rawBytes is the size of an update as a raw message: a position and a rotation.
const rawBytes = 28

// dialRaw connects a subscriber for every client of a case.
func dialRaw(c *Case, url string) (*rawClients, error) {
	r := &rawClients{}
	for i := range c.Clients {
		if err := r.dial(strings.TrimPrefix(url, "nats://"), i%c.groups()); err != nil {
			r.close()
			return nil, fmt.Errorf("raw subscriber: %w", err)
		}
	}
	return r, nil
}

func (r *rawClients) dial(addr string, group int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	r.conns = append(r.conns, conn)
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB raw.%d.* 1\r\nPING\r\n", group); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 32<<10)
	for line := ""; !strings.HasPrefix(line, "PONG"); {
		if line, err = in.ReadString('\n'); err != nil {
			return err
		}
	}
	r.wait.Go(func() { r.read(in) })
	return nil
}

// read counts messages until the connection ends. A message has one M, in its command MSG:
// subjects have none, and the data are zeros.
func (r *rawClients) read(in io.Reader) {
	for b := make([]byte, 32<<10); ; {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		r.got.Add(uint64(bytes.Count(b[:n], []byte("M"))))
	}
}

func (r *rawClients) close() {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.wait.Wait()
}

// window publishes the updates of a window as raw messages and returns the CPU time
// of NATS for each that was delivered, in ns.
func (r *rawClients) window(ctx context.Context, p *Publisher, s *Stack, window time.Duration) (float64, error) {
	c := p.script.c
	data, n := make([]byte, rawBytes), uint32(max(1, window/c.period()))
	line := timeline{start: time.Now().Add(10 * time.Millisecond), period: c.period()}
	before, cpuBefore := r.got.Load(), s.usage()[natsKind]
	err := everyTick(ctx, line, n, func(tick uint32) error {
		for i := range c.active() {
			if !p.script.changes(i, 0, tick) && !p.script.changes(i, 1, tick) {
				continue
			}
			if err := p.NC.Publish(fmt.Sprintf("raw.%d.%d", c.group(i), i), data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for last := ^uint64(0); last != r.got.Load(); time.Sleep(50 * time.Millisecond) {
		last = r.got.Load() // until no more messages arrive
	}
	got := r.got.Load() - before
	if got == 0 {
		return 0, fmt.Errorf("raw subscribers got nothing")
	}
	return float64(s.usage()[natsKind]-cpuBefore) / float64(got), nil
}
