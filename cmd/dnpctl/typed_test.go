package main

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/edgetest"
)

func TestTypedMessage(t *testing.T) {
	for _, c := range []struct {
		args string // separated by spaces
		want string // hex, or the beginning of the error
	}{
		{"byte:3 char:-1 ushort:258", "03ff0201"},
		{"string8:a=b,c string16:", "05613d622c630000"},
		{"vector2:1,-2 point:1,2 ulong:18446744073709551615", "0000803f000000c00100000002000000ffffffffffffffff"},
		{"color:1,0,0,1", "0000803f00000000000000000000803f"},
		{"byte", `"byte": want TYPE:VALUE`},
		{"byte:256", "byte: 256 does not fit byte"},
		{"byte:x", "byte: want a number"},
		{"color:1,2,3", "color: a color has 4 numbers, got 3"},
		{"float16:1", "float16: unknown type"},
		{"string8:" + strings.Repeat("x", 256), "string8: dnp/message: the text is longer"},
	} {
		b, err := typedMessage(strings.Split(c.args, " "))
		got := hex.EncodeToString(b)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: got %s, want %s", c.args, got, c.want)
		}
	}
}

func TestForms(t *testing.T) {
	var forms []form
	for _, text := range []string{"byte=1,string8,vector2", "byte=2,long", "byte=2,string16=ok", "char,char"} {
		f, err := parseForm(text)
		if err != nil {
			t.Fatal(err)
		}
		forms = append(forms, f)
	}
	for _, c := range []struct{ why, message, want string }{
		{"the first form", "01 02 6869 0000803f 000000c0", `byte:1 string8:"hi" vector2:[1,-2]`},
		{"64 bits are a string beyond 2^53", "02 ffffffffffffff7f", `byte:2 long:"9223372036854775807"`},
		{"a fixed text", "02 0200 6f6b", `byte:2 string16:"ok"`},
		{"another text", "02 0200 6e6f", ""},
		{"no code is fixed", "09 ff", "char:9 char:-1"},
		{"a byte too many", "01 02 6869 0000803f 000000c0 00", ""},
		{"a byte is missing", "01 02 6869 0000803f 0000", ""},
		{"nothing", "", ""},
		{"what controls a terminal", "01 01 9b 00000000 00000000", `byte:1 string8:"�" vector2:[0,0]`},
	} {
		p, err := hex.DecodeString(strings.ReplaceAll(c.message, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := decodedText(decodeMessage(forms, p)); got != c.want {
			t.Errorf("%s: %s is shown as %s, want %s", c.why, c.message, got, c.want)
		}
	}
	for _, text := range []string{"", "byte,", "byte=", "byte=256", "wide", strings.Repeat("byte,", formMax) + "byte"} {
		if _, err := parseForm(text); err == nil {
			t.Errorf("the form %.20q was accepted", text)
		}
	}
}

// TestSendTyped: an edge receives a message of typed values as the engine writes it.
func TestSendTyped(t *testing.T) {
	t.Parallel()
	received := make(chan []byte, 1)
	edge := edgetest.Start(t, edgetest.Config{Received: received})
	c := sendCommand{Target: edge.String(), Login: DNPLogin{Profile: "denetwork"}, Message: []string{"byte:3", "string8:tower"}}
	c.Timeout = 10 * time.Second
	if err := c.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := string(<-received); got != "\x03\x05tower" {
		t.Errorf("the edge has %q, want a byte and a text with its length", got)
	}
}

// FuzzForms: no text and no message ends the program, and what is decoded can be shown.
func FuzzForms(f *testing.F) {
	f.Add("byte=1,string8,vector2", []byte("\x01\x02hi12345678"))
	f.Add("string16=x", []byte("\x01\x00x"))
	f.Add("color,dvector,ulong=18446744073709551615", make([]byte, 48))
	f.Fuzz(func(t *testing.T, text string, p []byte) {
		one, err := parseForm(text)
		if err != nil {
			return
		}
		if shown := decodedText(decodeMessage([]form{one}, p)); strings.ContainsAny(shown, "\n\r\x1b") {
			t.Fatalf("%q is shown as %q", p, shown)
		}
	})
}
