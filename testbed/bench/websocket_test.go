//go:build linux

package bench

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWebSockets has an edge that is a script send frames in pieces and several at once, ask for a sign of life, and end.
func TestWebSockets(t *testing.T) {
	edge, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer edge.Close()
	w, err := openWebSockets(1, func(int) netip.AddrPort { return netip.MustParseAddrPort(edge.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.send(0, append(w.Room(), "older"...))
	w.send(0, append(w.Room(), "hello"...))

	c, err := edge.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	if from != "127.1.0.0" {
		t.Errorf("the client comes from %s, want an address of its own", from)
	}
	wantRead(t, c, wsRequest, "the client asks for a WebSocket")
	say(t, c, "HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x02{}"+"\x82\x03one\x82\x7e\x00")
	wantArrivals(t, w, "one") // it came behind the greeting, with half a header
	wantRead(t, c, "\x82\x85\x00\x00\x00\x00hello", "a client sends its latest datagram once it is connected")

	say(t, c, "\xf4"+strings.Repeat("l", 200)) // 0x00f4 are 244
	say(t, c, strings.Repeat("l", 44)+"\x89\x02hi\x82\x03two\x82\x05three")
	wantArrivals(t, w, strings.Repeat("l", 244), "two", "three")
	w.Flush()
	wantRead(t, c, "\x8a\x82\x00\x00\x00\x00hi", "the client answers the ping")
	if n := w.received(); n < 244+tcpHeaders { // segments may have come together
		t.Errorf("%d bytes received, want those of the frames and of headers", n)
	}

	say(t, c, "\x88\x02\x03\xe8")
	wantArrivals(t, w, "") // the connection has ended
}

// wantArrivals reads until so many datagrams have arrived. One that is empty is the end of the connection.
func wantArrivals(t *testing.T, w *webSockets, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(10 * time.Second); len(got) < len(want) && time.Now().Before(end); w.Flush() {
		n, err := w.read()
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			a := w.datagram(i)
			if a.client != 0 || a.baseline {
				t.Errorf("%+v, want one for client 0 of its edge", a)
			}
			got = append(got, string(a.data))
		}
		runtime.Gosched()
	}
	if !slices.Equal(got, want) {
		t.Fatalf("datagrams %q arrived, want %q", got, want)
	}
}

func wantRead(t *testing.T, c net.Conn, want, why string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("the edge reads %q (%v), want %q: %s", got[:n], err, want, why)
	}
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}
