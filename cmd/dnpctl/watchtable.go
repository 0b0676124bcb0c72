package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// Times of the table. The numbers are arbitrary.
const (
	redrawInterval = 100 * time.Millisecond
	markDuration   = 600 * time.Millisecond // how long a changed value is marked
	messageLines   = 5
)

// Control sequences of terminals (ECMA-48).
const (
	screenEnter = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	screenLeave = "\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	markOn      = "\x1b[7m"
	faintOn     = "\x1b[2m"
	plain       = "\x1b[0m"
)

// A tableView shows the states as a table on a terminal, and marks values that changed.
type tableView struct {
	out      *bufio.Writer
	size     func() (width, height int)
	server   string
	rows     []*row
	messages []string
	changes  int
	dirty    bool
	drawn    time.Time
	lastMark time.Time // when the last mark ends
}

type row struct {
	state   state
	changed []time.Time // of each value, when it changed last
}

func (v *tableView) show(e event) {
	v.dirty = true
	at := slices.IndexFunc(v.rows, func(r *row) bool { return r.state == e.state })
	switch e.kind {
	case connected:
		v.server = e.address
	case linked:
		v.rows = append(v.rows, &row{state: e.state, changed: make([]time.Time, e.state.Len())})
		slices.SortStableFunc(v.rows, func(a, b *row) int { return strings.Compare(a.state.Key(), b.state.Key()) })
	case changed:
		v.changes++
		now := time.Now()
		for _, i := range e.indices {
			v.rows[at].changed[i] = now
		}
		v.lastMark = now.Add(markDuration)
	case unlinked:
		v.rows = slices.Delete(v.rows, at, at+1)
	case received:
		v.messages = append(v.messages, messageLine(e))
		v.messages = v.messages[max(0, len(v.messages)-messageLines):]
	}
}

func (v *tableView) end() error {
	if !v.drawn.IsZero() {
		v.out.WriteString(screenLeave)
	}
	return v.out.Flush()
}

// flush draws at most once per redrawInterval.
func (v *tableView) flush(now time.Time) (again time.Time, err error) {
	marked := now.Before(v.lastMark)
	if !v.dirty && !marked && v.drawn.After(v.lastMark) {
		return time.Time{}, nil
	}
	if next := v.drawn.Add(redrawInterval); now.Before(next) {
		return next, nil
	}
	if v.drawn.IsZero() {
		v.out.WriteString(screenEnter)
	}
	v.draw(now)
	v.drawn, v.dirty = now, false
	if marked {
		again = now.Add(redrawInterval)
	}
	return again, v.out.Flush()
}

func (v *tableView) draw(now time.Time) {
	width, height := v.size()
	v.out.WriteString(cursorHome)
	v.line(width, cell{text: fmt.Sprintf("%s  %d states, %d changes   Ctrl-C ends", cmp.Or(v.server, "connecting"), len(v.rows), v.changes), style: faintOn})
	room := height - 2 - len(v.messages)
	shown := len(v.rows)
	if shown > room {
		shown = max(0, room-1)
	}
	for _, r := range v.rows[:shown] {
		v.line(width, r.cells(now)...)
	}
	if left := len(v.rows) - shown; left > 0 {
		v.line(width, cell{text: fmt.Sprintf("and %d more states that do not fit the terminal", left), style: faintOn})
	}
	for _, m := range v.messages {
		v.line(width, cell{text: m})
	}
	v.out.WriteString(clearBelow)
}

// A cell is a piece of a line in one style.
type cell struct{ text, style string }

// cells returns a row: access, key, and the values with their names or indices.
func (r *row) cells(now time.Time) []cell {
	access := "rw"
	if r.state.ReadOnly() {
		access = "r "
	}
	list := []cell{{fmt.Sprintf("%04x %s ", r.state.ID(), access), faintOn}, {fmt.Sprintf("%-20s", keyText(r.state)), ""}}
	for i := range r.changed {
		style := ""
		if now.Sub(r.changed[i]) < markDuration {
			style = markOn
		}
		list = append(list, cell{fmt.Sprintf("  %s ", named(r.state, i)), faintOn}, cell{valueText(r.state, i), style})
	}
	return list
}

// line writes cells, truncated at the width of the terminal.
func (v *tableView) line(width int, cells ...cell) {
	for _, c := range cells {
		text := []rune(c.text)
		if len(text) > width {
			text = append(text[:max(0, width-1)], []rune("…")[:min(1, width)]...)
		}
		width -= len(text)
		v.out.WriteString(c.style + string(text) + plain)
	}
	v.out.WriteString(clearLine + "\r\n")
}

// isTerminal reports whether standard output is a terminal.
func isTerminal() bool { return term.IsTerminal(int(os.Stdout.Fd())) }

// terminalSize returns the size of the terminal in characters.
func terminalSize() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width == 0 || height == 0 {
		return 80, 24
	}
	return width, height
}
