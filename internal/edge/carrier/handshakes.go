package carrier

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// handshakesMax is how many TCP connections may be in their handshake, or wait for a request, at once.
const handshakesMax = 2048

// A Listener accepts TCP connections, of which it bounds those that are no WebSockets yet. Beyond the bound it closes the
// oldest, so that clients which connect and say nothing do not keep others out. The server calls its State.
type Listener struct {
	net.Listener
	hub *Hub

	mu     sync.Mutex // goroutines of the server call State
	open   *list.List // of net.Conn, oldest first
	places map[net.Conn]*list.Element
	max    int
}

// Listen returns the listener for a socket.
func (h *Hub) Listen(l net.Listener) *Listener {
	return &Listener{Listener: l, hub: h, open: list.New(), places: make(map[net.Conn]*list.Element), max: handshakesMax}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if old := l.enter(c); old != nil {
		l.hub.counts.displaced.Add(1)
		_ = old.Close() // its goroutine notices
	}
	return c, nil
}

func (l *Listener) enter(c net.Conn) (old net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places[c] = l.open.PushBack(c)
	if l.open.Len() <= l.max {
		return nil
	}
	old = l.open.Remove(l.open.Front()).(net.Conn)
	delete(l.places, old)
	return old
}

// State follows the connections of an http.Server; it is its ConnState.
func (l *Listener) State(c net.Conn, s http.ConnState) {
	if s != http.StateHijacked && s != http.StateClosed {
		return
	}
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.places[c]; e != nil {
		l.open.Remove(e)
		delete(l.places, c)
	}
}
