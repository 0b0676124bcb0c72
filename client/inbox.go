package client

import (
	"cmp"
	"os"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/udp"
)

// An inbox is where the goroutines of a connection leave what a carrier reads: datagrams of the edge, and
// what else happens.
type inbox struct {
	timer  *time.Timer
	signal chan struct{} // one slot: read has to look at what mu guards

	reading batch // of read

	// mu guards the rest. The goroutine that reads also waits for time to pass and for calls of the program, so a
	// channel of datagrams would not be enough for it.
	mu      sync.Mutex
	arrived batch
	dropped uint64
	woken   bool
	once    error // that read has to return
	ended   error // that read has to return from now on
}

func newInbox() inbox { return inbox{timer: time.NewTimer(0), signal: make(chan struct{}, 1)} }

// put copies a datagram, or drops it if too much waits.
func (i *inbox) put(p []byte) {
	i.mu.Lock()
	if len(i.arrived.ends) < arrivedCountMax && len(i.arrived.data)+len(p) <= arrivedBytesMax {
		i.arrived.add(p)
	} else {
		i.dropped++
	}
	i.mu.Unlock()
	wake(i.signal)
}

// tell makes read return an error once.
func (i *inbox) tell(err error) { i.change(func() { i.once = err }) }

// change changes what mu guards, and has read look at it.
func (i *inbox) change(do func()) {
	i.mu.Lock()
	do()
	i.mu.Unlock()
	wake(i.signal)
}

// end makes read return an error from now on. The first one counts.
func (i *inbox) end(err error) { i.change(func() { i.ended = cmp.Or(i.ended, err) }) }

// wake is that of carrier.
func (i *inbox) wake() { i.change(func() { i.woken = true }) }

// drops returns how many datagrams were dropped.
func (i *inbox) drops() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dropped
}

// read is that of carrier.
func (i *inbox) read(due time.Time, receive func([]byte)) error {
	for {
		err := i.news()
		if !i.reading.empty() {
			for p := range i.reading.all {
				receive(p)
			}
			i.reading.reset()
			return nil
		}
		if err != nil {
			return err
		}
		if err := i.wait(due); err != nil {
			return err
		}
	}
}

// news takes the datagrams that came, or returns what else happened.
func (i *inbox) news() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	woken, once := i.woken, i.once
	i.woken = false
	i.arrived, i.reading = i.reading, i.arrived
	switch {
	case !i.reading.empty():
		return nil
	case once != nil:
		i.once = nil
		return once
	case i.ended != nil:
		return i.ended
	case woken:
		return udp.ErrWoken
	}
	return nil
}

// wait waits for news.
func (i *inbox) wait(due time.Time) error {
	if due.IsZero() {
		<-i.signal
		return nil
	}
	d := time.Until(due)
	if d <= 0 {
		return os.ErrDeadlineExceeded
	}
	i.timer.Reset(d)
	select {
	case <-i.signal:
	case <-i.timer.C:
	}
	return nil
}

// wake fills a channel of one slot.
func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
