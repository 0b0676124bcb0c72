package main

import (
	"bufio"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// A lineView prints one line for people per thing that happens, for output that
// goes to a file or another program.
type lineView struct {
	out *bufio.Writer
	max int // lines, 0 = no limit
	n   int
}

func (v *lineView) printf(format string, args ...any) {
	if v.max > 0 && v.n >= v.max {
		return
	}
	v.n++
	fmt.Fprintf(v.out, format+"\n", args...)
}

func (v *lineView) connected(to netip.AddrPort) { v.printf("connected to %s", to) }

func (v *lineView) linked(l *link) {
	access := "read-write"
	if l.readOnly {
		access = "read-only"
	}
	values := make([]string, l.state.Layout().Len())
	for i := range values {
		values[i] = fmt.Sprintf("%v=%s", l.state.Layout().Type(i), valueText(l.state, i))
	}
	v.printf("+ %04x %s (%s) %s", uint16(l.id), harmless(messageText(l.message)), access, strings.Join(values, " "))
}

func (v *lineView) changed(l *link, values netstate.Mask) {
	var list []string
	for i, ok := values.Next(0); ok; i, ok = values.Next(i + 1) {
		list = append(list, fmt.Sprintf("%d=%s", i, valueText(l.state, i)))
	}
	v.printf("~ %04x %s %s", uint16(l.id), harmless(messageText(l.message)), strings.Join(list, " "))
}

func (v *lineView) unlinked(l *link) {
	v.printf("- %04x %s", uint16(l.id), harmless(messageText(l.message)))
}

func (v *lineView) message(data []byte, reliable bool, number uint64) {
	v.printf("%s", messageLine(data, reliable, number))
}

// messageLine returns a message from the server for people.
func messageLine(data []byte, reliable bool, number uint64) string {
	kind := "unreliable"
	if reliable {
		kind = "reliable " + strconv.FormatUint(number, 10)
	}
	return fmt.Sprintf("< %s (%s, %d bytes)", harmless(messageText(data)), kind, len(data))
}

func (v *lineView) closed(dnp.CloseReason) {} // the error of the command says it

func (v *lineView) lines() int { return v.n }

func (v *lineView) flush(time.Time) (time.Time, error) { return time.Time{}, v.out.Flush() }

func (v *lineView) end() error { return v.out.Flush() }
