//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Job is what the process of a sending baseline is to send, as gob on its
// standard input.
type Job struct {
	Port  uint16 // of the swarm
	Sent  []Sent // what edges sent, to be sent again in the same bursts
	Data  []byte // what all of them begin with
	Naive int    // instead: so many datagrams of one update each
	Bytes int    // of a naive datagram
	Peers int    // of naive datagrams
}

// A Spent is what it cost, as JSON on its standard output.
type Spent struct {
	CPU       time.Duration `json:"cpu"`
	Datagrams int           `json:"datagrams"`
}

// Send runs a sending baseline: it reads a Job, does it and writes what it cost.
// It is a process of its own so that the kernel can tell its CPU time.
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

// sendBare sends the recorded datagrams with nothing but sendmmsg: the arguments of
// all calls are made before.
func sendBare(ctx context.Context, j *Job) (Spent, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Spent{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	headers := bareHeaders(j)
	start, before := time.Now(), cpu(os.Getpid())
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
	return Spent{CPU: cpu(os.Getpid()) - before, Datagrams: len(j.Sent)}, nil
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
		a := addrPort(clientAddress(int(s.Client)), j.Port)
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
			n = 1 // as an edge does: this one is lost
		}
		headers = headers[n:]
	}
}

// sendNaive sends one datagram and makes one system call per update, as a program
// does that writes each change to each client.
func sendNaive(ctx context.Context, j *Job) (Spent, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return Spent{}, err
	}
	defer conn.Close()
	data, before := make([]byte, j.Bytes), cpu(os.Getpid())
	for i := range j.Naive {
		if ctx.Err() != nil {
			break
		}
		_, _ = conn.WriteToUDPAddrPort(data, addrPort(clientAddress(i%j.Peers), j.Port)) // what is lost is lost, as for the edge
	}
	return Spent{CPU: cpu(os.Getpid()) - before, Datagrams: j.Naive}, nil
}

// job runs a sending baseline in a process of its own.
func (r *Runner) job(ctx context.Context, j *Job) (s Spent, err error) {
	var in, out bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return s, err
	}
	p, err := r.starter.start("baseline", r.cfg.Self, []string{"bench-send"}, &in, &out)
	if err != nil {
		return s, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.stop()
		return s, ctx.Err()
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return s, fmt.Errorf("baseline: %w: %s", err, p.stderr.String())
	}
	return s, nil
}
