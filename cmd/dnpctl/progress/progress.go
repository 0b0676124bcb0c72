// Package progress shows people how far a long command is: one line of the terminal that changes, on standard
// error. It shows nothing of what is over within a second, and nothing where somebody else reads what the command
// prints: without a terminal, and with --json.
//
//	line := progress.Start(!c.JSON)
//	defer line.End()
//	line.Set(progress.Status{Done: 3, Total: 5, Text: "cases"})
//	line.Println("a line of the result")
package progress

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Times and sizes of the line. They are arbitrary.
const (
	quiet    = time.Second // before the line comes
	interval = 200 * time.Millisecond
	bar      = 20 // characters
)

// clear begins the line anew (ECMA-48).
const clear = "\r\x1b[K"

// A Status is how far a command is.
type Status struct {
	Done, Total int // with Total 0 the line has no bar, but the time
	Text        string
}

// A Line is the line of one command.
type Line struct {
	out  io.Writer // for results
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex // the command says how far it is, and prints results, while the line changes
	status Status
	core   core
}

// Start shows the line until End, if people want it and both outputs are terminals.
func Start(wanted bool) *Line {
	ctx, stop := context.WithCancel(context.Background())
	l := &Line{out: os.Stdout, stop: stop, done: make(chan struct{})}
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if !wanted || err != nil || !term.IsTerminal(int(os.Stdout.Fd())) {
		close(l.done)
		return l
	}
	l.core = core{out: os.Stderr, begun: time.Now(), width: width}
	go l.run(ctx)
	return l
}

// run shows the status until the command ends.
func (l *Line) run(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.mu.Lock()
			l.core.show(now, l.status)
			l.mu.Unlock()
		}
	}
}

// Set says how far the command is.
func (l *Line) Set(s Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = s
}

// Println prints a line of the result to standard output.
func (l *Line) Println(text string) { l.Fprintln(l.out, text) }

// Fprintln prints a line somewhere else.
func (l *Line) Fprintln(to io.Writer, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.core.hide()
	fmt.Fprintln(to, text)
}

// End ends the line. Further calls do nothing.
func (l *Line) End() {
	l.stop()
	<-l.done
	l.core.hide()
}

// A core decides what the terminal gets.
type core struct {
	out   io.Writer
	begun time.Time
	width int
	shown bool // the line of the terminal has no end yet
}

func (c *core) show(now time.Time, s Status) {
	if now.Sub(c.begun) < quiet {
		return
	}
	c.shown = true
	text := fmt.Sprintf("%.0f s  %s", now.Sub(c.begun).Seconds(), s.Text)
	if s.Total > 0 {
		done := min(max(0, s.Done), s.Total)
		full := int(int64(bar) * int64(done) / int64(s.Total))
		text = fmt.Sprintf("[%s%s] %d %%  %s", strings.Repeat("#", full), strings.Repeat(".", bar-full), int64(done)*100/int64(s.Total), s.Text)
	}
	if r := []rune(text); len(r) >= c.width { // a full line would wrap
		text = string(r[:max(0, c.width-1)])
	}
	fmt.Fprint(c.out, clear+text)
}

func (c *core) hide() {
	if c.shown {
		fmt.Fprint(c.out, clear)
		c.shown = false
	}
}
