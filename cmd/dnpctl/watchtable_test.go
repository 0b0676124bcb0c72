package main

import (
	"bufio"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// control matches control sequences.
var control = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// screen draws a table and returns the lines that a reader sees, with « » around marked
// values.
func screen(t *testing.T, width, height int, fill func(v *tableView)) []string {
	t.Helper()
	var out strings.Builder
	v := &tableView{out: bufio.NewWriter(&out), size: func() (int, int) { return width, height }}
	fill(v)
	if _, err := v.flush(time.Now()); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(markOn, "«", plain, "").Replace(out.String())
	return strings.Split(strings.TrimSuffix(control.ReplaceAllString(text, ""), "\r\n"), "\r\n")
}

func stringState(t *testing.T, id wire.LinkID, message, value string) *link {
	t.Helper()
	layout, err := netstate.NewLayout([]netstate.Value{{Type: uint8Type}, {Type: wire.TypeString}})
	if err != nil {
		t.Fatal(err)
	}
	l := &link{id: id, message: []byte(message), state: netstate.NewState(layout)}
	l.state.Set(1, append([]byte{byte(len(value)), 0}, value...))
	return l
}

func TestTable(t *testing.T) {
	got := screen(t, 60, 10, func(v *tableView) {
		v.server = "127.0.0.1:3413"
		tower := stringState(t, 0x8001, "tower", "x")
		v.show(&dnp.Event{Kind: dnp.EventLinkOffered}, tower)
		v.show(&dnp.Event{Kind: dnp.EventLinkOffered}, stringState(t, 0x8000, "door", "\x1b[2Jboo"))
		tower.changed = netstate.NewMask(2)
		tower.changed.Set(0)
		tower.state.Set(0, []byte{7})
		v.show(&dnp.Event{Kind: dnp.EventUpdate}, tower)
		v.show(&dnp.Event{Kind: dnp.EventMessage, Data: []byte("hello"), Reliable: true, Number: 3}, nil)
	})
	want := []string{
		"127.0.0.1:3413  2 states, 1 changes   Ctrl-C ends",
		`8000 rw door                  0 0  1 "\u001b[2Jboo"`,
		`8001 rw tower                 0 «7  1 "x"`,
		"< hello (reliable 3, 5 bytes)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTableTooSmall(t *testing.T) {
	got := screen(t, 24, 4, func(v *tableView) {
		for i := range 5 {
			v.show(&dnp.Event{Kind: dnp.EventLinkOffered}, stringState(t, wire.LinkID(i), strings.Repeat("x", i+1), "a long text that does not fit"))
		}
	})
	if len(got) != 3 || got[2] != "and 4 more states that …" {
		t.Errorf("got %q, want the number of hidden states", got)
	}
	for _, line := range got {
		if n := len([]rune(line)); n > 24 {
			t.Errorf("%q is %d wide, the terminal 24", line, n)
		}
	}
}

func TestMessageText(t *testing.T) {
	for in, want := range map[string]string{
		"hello":      "hello",
		"base64:x":   "text:base64:x",
		"text:x":     "text:text:x",
		"\xff\x00":   "base64:/wA=",
		"":           "",
		"two\nlines": "two\nlines",
	} {
		if got := payload.MessageText([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := harmless("a\x1b[2Jb\u009bc"); got != "a·[2Jb·c" {
		t.Errorf("control characters reach the terminal: %q", got)
	}
}
