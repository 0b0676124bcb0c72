package client

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Bounds of what waits between a client and a connection. A carrier drops and counts what is beyond, and
// DNP repeats what matters.
const (
	arrivedCountMax = 1024
	arrivedBytesMax = 1 << 20
	leavingBytesMax = 256 << 10
)

// webSize is how many bytes a datagram has at most where the client may choose. It fits into one QUIC
// packet on every path.
const webSize = 1200

// closeMax is how long close waits until what was sent is on its way.
const closeMax = time.Second

// A webCarrier brings datagrams over WebSocket or WebTransport. It has a session at the edges, which a token
// names, and makes a new connection for it when one is lost. The DNP connection goes on meanwhile.
//
// The goroutine of the client and those of the connection hand each other batches of datagrams. mu guards
// these, because the client's goroutine also waits for time to pass and for calls of the program.
type webCarrier struct {
	dialer

	cancel  context.CancelFunc
	running sync.WaitGroup

	// Of the goroutine of the client.
	collector
	latest []byte // the latest datagram that may be sent again at any time

	inbox   inbox
	outward chan struct{} // one slot: leaving has datagrams

	mu       sync.Mutex
	leaving  batch
	up       bool
	trouble  error     // why there is no connection, or was none
	begun    time.Time // when the connection was made
	heard    time.Time // when the edge gave the last sign of life
	progress bool      // a datagram came over this connection
	stats    CarrierStats
}

// openWeb connects to the edge at a URL.
func openWeb(ctx context.Context, url string, cfg *Config, times patienceTimes) (carrier, error) {
	d, err := newDialer(url, cfg, times)
	if err != nil {
		return nil, err
	}
	w := &webCarrier{dialer: d, inbox: newInbox(), outward: make(chan struct{}, 1)}
	conn, err := w.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	w.made, w.failures, w.remote = true, 0, conn.remote()
	alive, cancel := context.WithCancel(context.Background()) // ctx bounds Dial only
	w.cancel = cancel
	w.begin()
	w.running.Go(func() { w.run(alive, conn) }) // until close
	return w, nil
}

func (w *webCarrier) peer() netip.AddrPort { return w.remote }
func (w *webCarrier) name() string         { return w.host }
func (w *webCarrier) size() int            { return webSize }

func (w *webCarrier) status() carrierStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := carrierStatus{up: w.up, reliable: w.reliable, trouble: w.trouble, stats: w.stats}
	s.stats.DroppedIn = w.inbox.drops()
	return s
}

// Send is that of dnp.Sender.
func (w *webCarrier) Send(_ netip.AddrPort, b []byte) {
	w.collected.add(b)
	if repeatable(b) {
		w.latest = append(w.latest[:0], b...)
	}
}

// repeatable reports whether the edge takes a datagram that is sent again later, after none of its kind, for a
// needless repeat: a reliable command, an acknowledgement, a request for a connection.
func repeatable(p []byte) bool {
	cmd, _, numbered := wire.Numbered(p)
	switch {
	case !numbered:
		return cmd == wire.CommandConnectionRequest
	case cmd == wire.CommandReliableAck:
		return len(p) > 3 && wire.AckCode(p[3]) == wire.AckSuccess
	}
	return true
}

// flush hands what was collected to the goroutine that sends.
func (w *webCarrier) flush() error {
	if w.collected.empty() {
		return nil
	}
	w.mu.Lock()
	for p := range w.collected.all {
		if !w.up || len(w.leaving.data)+len(p) > leavingBytesMax {
			w.stats.DroppedOut++
			continue
		}
		w.leaving.add(p)
	}
	w.mu.Unlock()
	w.collected.reset()
	wake(w.outward)
	return nil
}

func (w *webCarrier) read(due time.Time, receive func([]byte)) error {
	err := w.inbox.read(due, receive)
	if errors.Is(err, errResumed) && len(w.latest) > 0 {
		w.collected.add(w.latest) // the next flush says something, so that the edge learns where the client is
	}
	return err
}

func (w *webCarrier) wake() { w.inbox.wake() }

// deliver hands a datagram of the edge to the client.
func (w *webCarrier) deliver(p []byte) {
	now := time.Now()
	w.mu.Lock()
	w.heard, w.progress = now, true
	w.mu.Unlock()
	w.inbox.put(p)
}

// begin notes that there is a connection.
func (w *webCarrier) begin() {
	w.mu.Lock()
	w.stats.Connections++
	again := w.stats.Connections > 1
	w.begun = time.Now()
	w.up, w.trouble, w.progress, w.heard = true, nil, false, w.begun
	w.leaving.reset()
	w.mu.Unlock()
	if again {
		w.inbox.tell(errResumed)
	}
}

// lost notes that there is no connection, and reports whether it was of any use.
func (w *webCarrier) lost(why error) (progress bool) {
	defer w.wake()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.trouble = false, why
	w.stats.DroppedOut += uint64(len(w.leaving.ends))
	w.leaving.reset()
	return w.progress || time.Since(w.begun) >= pauseMax
}

// take takes the datagrams that leave, in exchange for an empty batch.
func (w *webCarrier) take(empty batch) batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := w.leaving
	w.leaving = empty
	return full
}

// quiet reports whether the edge gave no sign of life for so long.
func (w *webCarrier) quiet(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.heard) >= d
}

func (w *webCarrier) close() error {
	w.cancel()
	w.running.Wait()
	w.inbox.timer.Stop()
	return nil
}
