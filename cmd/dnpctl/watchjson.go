package main

import (
	"bufio"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A jsonView prints one object per line. The fields are a contract with the
// programs that read them: new ones may come, none changes its meaning.
type jsonView struct {
	out *bufio.Writer
	max int // lines, 0 = no limit
	n   int
	now func() time.Time
}

// A line is what a jsonView prints. Fields that do not belong to the type are
// left out.
type line struct {
	Time     string      `json:"ts"`
	Type     string      `json:"type"`
	Address  string      `json:"address,omitempty"`
	Link     *uint16     `json:"link,omitempty"`
	Message  string      `json:"message,omitempty"` // of the link; bytes that are no text after base64:
	ReadOnly *bool       `json:"read_only,omitempty"`
	Values   []lineValue `json:"values,omitempty"`
	Reliable *bool       `json:"reliable,omitempty"`
	Number   *uint64     `json:"number,omitempty"` // of a reliable message, from 0
	Text     *string     `json:"text,omitempty"`   // a message, as Message
	Reason   string      `json:"reason,omitempty"`
}

type lineValue struct {
	Index int             `json:"index"`
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func (v *jsonView) print(l line) {
	if v.max > 0 && v.n >= v.max {
		return
	}
	v.n++
	l.Time = v.now().UTC().Format("2006-01-02T15:04:05.000Z")
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // payload wrote a value that is not JSON
	}
	v.out.Write(append(b, '\n')) // the error comes back from Flush
}

func (v *jsonView) connected(to netip.AddrPort) {
	v.print(line{Type: "connected", Address: to.String()})
}

func (v *jsonView) linked(l *link) {
	all := netstate.NewMask(l.state.Layout().Len())
	all.Fill(l.state.Layout().Len())
	v.print(line{Type: "linked", Link: (*uint16)(&l.id), Message: messageText(l.message), ReadOnly: &l.readOnly, Values: lineValues(l, all)})
}

func (v *jsonView) changed(l *link, values netstate.Mask) {
	v.print(line{Type: "changed", Link: (*uint16)(&l.id), Message: messageText(l.message), Values: lineValues(l, values)})
}

func (v *jsonView) unlinked(l *link) {
	v.print(line{Type: "unlinked", Link: (*uint16)(&l.id), Message: messageText(l.message)})
}

func (v *jsonView) message(data []byte, reliable bool, number uint64) {
	text := messageText(data)
	l := line{Type: "message", Reliable: &reliable, Text: &text}
	if reliable {
		l.Number = &number
	}
	v.print(l)
}

func (v *jsonView) closed(reason dnp.CloseReason) {
	v.print(line{Type: "closed", Reason: reason.String()})
}

func (v *jsonView) lines() int { return v.n }

func (v *jsonView) flush(time.Time) (time.Time, error) { return time.Time{}, v.out.Flush() }

func (v *jsonView) end() error { return v.out.Flush() }

func lineValues(l *link, values netstate.Mask) (list []lineValue) {
	for i, ok := values.Next(0); ok; i, ok = values.Next(i + 1) {
		t := l.state.Layout().Type(i)
		list = append(list, lineValue{i, t.String(), payload.AppendValue(nil, t, l.state.Value(i))})
	}
	return list
}
