//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/dnprelay/dnprelay/internal/proc"
	"golang.org/x/sys/unix"
)

// A Job tells the process of a sending baseline what to send, as gob on its standard
// input.
type Job struct {
	Port  uint16 // of the swarm
	Sent  []Sent // datagrams of edges, to be sent again in the same bursts
	Data  []byte // first bytes of each of them
	Naive int    // if not 0: the number of datagrams of one update each, instead of Sent
	Bytes int    // of a naive datagram
	Peers int    // of naive datagrams
}

// A Spent is the cost of a Job, as JSON on the standard output.
type Spent struct {
	CPU       time.Duration `json:"cpu"`
	Datagrams int           `json:"datagrams"`
}

// Send runs a sending baseline: it reads a Job, carries it out and writes its cost. It
// runs in a process of its own, so that the kernel can tell its CPU time.
func Send(ctx context.Context, in io.Reader, out io.Writer) error {
	var j Job
	if err := gob.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	send := sendBare
	if j.Naive > 0 {
		send = sendNaive
	}
	spent, err := send(ctx, &j)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(spent)
}

// burstGap is the least pause between the datagrams of two bursts.
const burstGap = 1000 // µs

// sendBare sends the recorded datagrams with sendmmsg. It prepares the arguments of all
// calls before the first.
func sendBare(ctx context.Context, j *Job) (Spent, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Spent{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	headers := bareHeaders(j)
	start, before := time.Now(), proc.CPU(os.Getpid())
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
	return Spent{CPU: proc.CPU(os.Getpid()) - before, Datagrams: len(j.Sent)}, nil
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
		a := addrPort(ClientAddress(int(s.Client)), j.Port)
		names[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swap16(a.Port()), Addr: a.Addr().As4()}
		iovecs[i] = unix.Iovec{Base: &memory[i%socketBatch][0], Len: uint64(min(s.Size, slotBytes))}
		h := &headers[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&names[i])), unix.SizeofSockaddrInet4
		h.Iov, h.Iovlen = &iovecs[i], 1
	}
	return headers
}

func sendAll(fd int, headers []mmsghdr) {
	for len(headers) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&headers[0])),
			uintptr(min(len(headers), socketBatch)), 0, 0, 0)
		if errno != 0 {
			n = 1 // this datagram is lost, as for an edge
		}
		headers = headers[n:]
	}
}

// sendNaive sends one datagram with one system call per update, like a program that
// writes each change to each client.
func sendNaive(ctx context.Context, j *Job) (Spent, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return Spent{}, err
	}
	defer conn.Close()
	data, before := make([]byte, j.Bytes), proc.CPU(os.Getpid())
	for i := range j.Naive {
		if ctx.Err() != nil {
			break
		}
		_, _ = conn.WriteToUDPAddrPort(data, addrPort(ClientAddress(i%j.Peers), j.Port)) // a datagram that cannot be sent is lost, as for the edge
	}
	return Spent{CPU: proc.CPU(os.Getpid()) - before, Datagrams: j.Naive}, nil
}

// job runs a sending baseline in a process of its own.
func (r *Runner) job(ctx context.Context, j *Job) (s Spent, err error) {
	var in, out bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return s, err
	}
	p := &proc.Process{Name: "baseline", File: r.cfg.Self, Args: []string{"bench-send"}, Stdin: &in, Stdout: &out}
	if err := p.Start(); err != nil {
		return s, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop()
		return s, ctx.Err()
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return s, fmt.Errorf("baseline: %w: %w", err, p.Ended())
	}
	return s, nil
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

func rawSubject(c *Case, state int) string {
	group := 0
	if c.groups() > 0 {
		group = c.group(state)
	}
	return fmt.Sprintf("raw.%d.%d", group, state)
}

// dialRaw connects a subscriber for every client of a case.
func dialRaw(c *Case, url string) (*rawClients, error) {
	r := &rawClients{}
	for i := range c.Clients {
		group := 0
		if n := c.groups(); n > 0 {
			group = i % n
		}
		if err := r.dial(strings.TrimPrefix(url, "nats://"), group); err != nil {
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
	in := bufio.NewReaderSize(conn, 32<<10)
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB raw.%d.* 1\r\nPING\r\n", group); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("PONG")) {
			break
		}
	}
	r.wait.Go(func() { r.read(in) })
	return nil
}

// read counts messages until the connection ends.
func (r *rawClients) read(in *bufio.Reader) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if !bytes.HasPrefix(line, []byte("MSG ")) {
			continue
		}
		size, err := strconv.Atoi(string(bytes.TrimSpace(line[bytes.LastIndexByte(line, ' '):])))
		if err != nil {
			return
		}
		if _, err := in.Discard(size + 2); err != nil {
			return
		}
		r.got.Add(1)
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
	c := p.c
	data, n := make([]byte, rawBytes), uint32(max(1, window/c.period()))
	line := timeline{start: time.Now().Add(10 * time.Millisecond), period: c.period()}
	before, cpuBefore := r.got.Load(), proc.CPU(s.nats.PID())
	err := everyTick(ctx, line, n, func(tick uint32) error {
		for i := range c.active() {
			if !p.script.changes(i, 0, tick) && !p.script.changes(i, 1, tick) {
				continue
			}
			if err := p.NC.Publish(rawSubject(c, i), data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	r.settle()
	got := r.got.Load() - before
	if got == 0 {
		return 0, fmt.Errorf("raw subscribers got nothing")
	}
	return float64(proc.CPU(s.nats.PID())-cpuBefore) / float64(got), nil
}

// settle waits until no more messages arrive.
func (r *rawClients) settle() {
	for last := r.got.Load(); ; {
		time.Sleep(50 * time.Millisecond)
		got := r.got.Load()
		if got == last {
			return
		}
		last = got
	}
}
