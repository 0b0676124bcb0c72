package console

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/bus/natsbus"
)

// TestPages: each page that is open costs a copy of its space, so there are 16 at most, as SECURITY.md says.
func TestPages(t *testing.T) {
	s := New(Config{Bus: &natsbus.Bus{}})
	open := func() int {
		t.Helper()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/api/live?space=arena", nil))
		return w.Code
	}
	for range 15 {
		s.pages <- struct{}{}
	}
	if got := open(); got != http.StatusUpgradeRequired {
		t.Errorf("the 16th page has the answer %d, want %d, because it is no WebSocket", got, http.StatusUpgradeRequired)
	}
	s.pages <- struct{}{}
	if got := open(); got != http.StatusServiceUnavailable {
		t.Errorf("the 17th page has the answer %d, want %d", got, http.StatusServiceUnavailable)
	}
	<-s.pages
	if got := open(); got != http.StatusUpgradeRequired {
		t.Errorf("after one was closed, a page has the answer %d", got)
	}
}

// oneConn is a listener that one connection comes to.
type oneConn struct {
	conns chan net.Conn
	end   chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.end); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestPageTakesNothing: a page that takes no frame for 10 s is gone, as SECURITY.md says.
func TestPageTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		web := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.CloseNow()
			began := time.Now()
			if err := show(t.Context(), conn, []byte("{}")); err == nil {
				t.Error("the page took the frame")
			}
			took <- time.Since(began)
		})}
		l := &oneConn{conns: make(chan net.Conn, 1), end: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- web.Serve(l) }()
		page, edge := net.Pipe() // it has no buffer
		l.conns <- edge
		const request = "GET / HTTP/1.1\r\nHost: console.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
		if _, err := io.WriteString(page, request); err != nil {
			t.Fatal(err)
		}
		if answer, err := http.ReadResponse(bufio.NewReaderSize(page, 16), nil); err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", answer, err)
		}
		if d := <-took; d != 10*time.Second {
			t.Errorf("the page was gone after %v, want 10 s", d)
		}
		if err := errors.Join(page.Close(), web.Close()); err != nil {
			t.Error(err)
		}
		<-served
	})
}
