//go:build linux

package bench

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Forged addresses are those of no client.
const (
	firstForged  = 127<<24 | 16<<16 // 127.16.0.0 to 127.79.255.255
	forgedSpread = 1 << 22
	forgedBatch  = 64 // datagrams between two looks at the clock
	lookEvery    = 16 // batches between two looks at the answers
	ownEvery     = 8  // every eighth has the address and port of a client
)

// A Forger sends datagrams from addresses that are not its own: those of strangers, and those
// of clients.
type Forger struct {
	To      netip.AddrPort
	Make    func(b []byte) []byte // appends a datagram
	Clients int                   // in whose names it sends, too

	// Since the last call of Amplification.
	bytes           int    // in the names of strangers
	seen, seenBytes int    // answers to them
	lost            uint32 // answers that found the buffer full until then

	socket, clients *Socket
}

// NewForger returns a forger that knows the addresses and ports of the clients of a swarm.
func NewForger(w *Swarm) (*Forger, error) {
	socket, err := openSocket(forgerBuffer)
	return &Forger{socket: socket, clients: w.Sender()}, err
}

// Close closes the socket of the strangers.
func (f *Forger) Close() { f.socket.Close() }

// Send sends n datagrams, rate per second or as fast as it can if rate is 0, until ctx ends. It
// returns how many it sent per second.
func (f *Forger) Send(ctx context.Context, n, rate int) float64 {
	start, i := time.Now(), 0
	for ; i < n && ctx.Err() == nil; i++ {
		socket, from := f.socket, firstForged+rand.Uint32N(forgedSpread)
		if i%ownEvery == 0 && f.Clients > 0 {
			socket, from = f.clients, ClientAddress(rand.IntN(f.Clients))
		}
		p := f.Make(socket.Room())
		socket.Send(from, f.To, p)
		if socket == f.socket {
			f.bytes += len(p)
		}
		if i%forgedBatch == 0 && rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
		if i%(lookEvery*forgedBatch) == 0 {
			f.look()
		}
	}
	f.socket.Flush()
	f.clients.Flush()
	return float64(i) / time.Since(start).Seconds()
}

// look reads some of the answers.
func (f *Forger) look() {
	n, _ := f.socket.read() // without answers the result is 0
	for i := range n {
		_, _, data, _ := f.socket.datagram(i)
		f.seen, f.seenBytes = f.seen+1, f.seenBytes+len(data)
	}
}

// Amplification returns how many bytes the strangers were sent for each byte of theirs, since the
// last call. Those answers that found the buffer full count as the others do.
func (f *Forger) Amplification() float64 {
	lost := f.socket.overflows()
	answers := Ratio(float64(f.seenBytes), float64(f.seen)) * float64(f.seen+int(lost-f.lost))
	sent := float64(f.bytes)
	f.bytes, f.seen, f.seenBytes, f.lost = 0, 0, 0, lost
	return Ratio(answers, sent)
}
