package main

import (
	"bufio"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/top"
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

// A testState has a uint8 and a string.
type testState struct {
	id      uint16
	key     string
	names   [2]string
	encoded [2]string
}

func (s *testState) Fields(int) []client.Field { return nil }
func (s *testState) ID() uint16                { return s.id }
func (s *testState) Key() string               { return s.key }
func (s *testState) Message() []byte           { return []byte(s.key) }
func (s *testState) ReadOnly() bool            { return false }
func (s *testState) Len() int                  { return 2 }
func (s *testState) Name(i int) string         { return s.names[i] }
func (s *testState) Type(i int) wire.ValueType { return [2]wire.ValueType{1, wire.TypeString}[i] }

func (s *testState) At(i int) client.Value {
	v, _ := client.NewValue(s.Type(i), []byte(s.encoded[i]))
	return v
}

func stringState(id uint16, message, value string) *testState {
	return &testState{id: id, key: message, encoded: [2]string{"\x00", string([]byte{byte(len(value)), 0}) + value}}
}

func TestTable(t *testing.T) {
	got := screen(t, 60, 10, func(v *tableView) {
		v.server = "127.0.0.1:3413"
		tower := stringState(0x8001, "tower", "x")
		tower.names[0] = "hp"
		v.show(event{kind: linked, state: tower})
		v.show(event{kind: linked, state: stringState(0x8000, "door", "\x1b[2Jboo")})
		tower.encoded[0] = "\x07"
		v.show(event{kind: changed, state: tower, indices: []int{0}})
		v.show(event{kind: received, message: client.Message{Data: []byte("hello"), Reliable: true, Number: 3}})
	})
	want := []string{
		"127.0.0.1:3413  2 states, 1 changes   Ctrl-C ends",
		`8000 rw door                  0 0  1 "\u001b[2Jboo"`,
		`8001 rw tower                 hp «7  1 "x"`,
		"< hello (reliable 3, 5 bytes)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTableTooSmall(t *testing.T) {
	got := screen(t, 24, 4, func(v *tableView) {
		for i := range 5 {
			v.show(event{kind: linked, state: stringState(uint16(i), strings.Repeat("x", i+1), "a long text that does not fit")})
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
	if got := top.Printable("a\x1b[2Jb\u009bc"); got != "a·[2Jb·c" {
		t.Errorf("control characters reach the terminal: %q", got)
	}
}
