package main

import (
	"fmt"
	"io"
	"time"
)

// A progress shows how far a long transfer is: on a terminal in one line that changes, elsewhere
// in a line every five seconds. It shows nothing of a short transfer.
type progress struct {
	out      io.Writer
	terminal bool

	total int
	next  time.Time // when to show more
	shown bool      // a line of the terminal has no end yet
}

// Pauses of a progress. A terminal gets the first line after a second.
const (
	progressQuiet    = time.Second
	progressTerminal = 200 * time.Millisecond
	progressLog      = 5 * time.Second
)

// begin begins a transfer of total bytes.
func (p *progress) begin(now time.Time, total int) {
	p.total = total
	p.next = now.Add(progressLog)
	if p.terminal {
		p.next = now.Add(progressQuiet)
	}
}

// show shows that so many bytes are acknowledged, if it is time for that, and returns when it is next.
func (p *progress) show(now time.Time, acknowledged int) (next time.Time) {
	if now.Before(p.next) {
		return p.next
	}
	text := fmt.Sprintf("%d of %d kB acknowledged (%d %%)", acknowledged/1000, p.total/1000, int64(acknowledged)*100/int64(p.total))
	if p.terminal {
		p.shown = true
		fmt.Fprintf(p.out, "\r%s%s", text, clearLine)
		p.next = now.Add(progressTerminal)
	} else {
		fmt.Fprintln(p.out, text)
		p.next = now.Add(progressLog)
	}
	return p.next
}

// end ends the line of a terminal.
func (p *progress) end() {
	if p.shown {
		fmt.Fprintln(p.out)
	}
}
