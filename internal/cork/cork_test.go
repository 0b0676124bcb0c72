package cork

import (
	"net"
	"slices"
	"strings"
	"testing"
)

// A writes is a connection that notes what is written.
type writes struct {
	net.Conn
	list []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.list = append(w.list, string(p))
	return len(p), nil
}

// TestCork: the messages of a batch are one write, unless they are too much for one.
func TestCork(t *testing.T) {
	w := &writes{}
	c := &Conn{Conn: w}
	write := func(texts ...string) {
		for _, text := range texts {
			if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	write("a")
	c.Cork()
	write("b", "c", "d")
	if err := c.Uncork(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", heldMax)
	c.Cork()
	write("e", long)
	if err := c.Uncork(); err != nil || !slices.Equal(w.list, []string{"a", "bcd", "e", long}) {
		t.Errorf("%.10q was written, %v", w.list, err)
	}
}
