//go:build linux

package play

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Times of a WebSocket, as clients of this project have them.
const (
	dialMost  = 2 * time.Second
	dialPause = 20 * time.Millisecond
	sendMost  = time.Second
)

// recentMost is how many reliable commands and acknowledgements a new connection repeats: more than a client has on their way.
const recentMost = 16

// leaving is the close code with which an edge says that another one goes on.
const leaving = 1012

// A carried is the flow of a client over WebSockets: one to an edge at a time, with the token of the session. It does not move
// before its edge closes it or dies.
type carried struct {
	b    *Balancer
	f    *flow
	ctx  context.Context
	end  context.CancelFunc
	http *http.Client

	mu     sync.Mutex // the goroutine of the balancer sends, that of the flow connects
	socket *websocket.Conn
	recent [][]byte // the last reliable commands and acknowledgements of the client, oldest first
	token  string
}

// carry makes a flow go over WebSockets until it is closed.
func (b *Balancer) carry(f *flow) {
	c := &carried{b: b, f: f, http: &http.Client{Transport: &http.Transport{
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) { return b.dial(network, addr) },
	}}}
	c.ctx, c.end = context.WithCancel(context.Background())
	f.carried = c
	b.done.Go(c.run)
}

// dial opens a connection on the host of the balancer.
func (b *Balancer) dial(network, addr string) (net.Conn, error) {
	if b.cfg.Host == nil {
		return net.Dial(network, addr)
	}
	return b.cfg.Host.Dial(network, addr)
}

func (c *carried) run() {
	defer c.http.CloseIdleConnections()
	for c.ctx.Err() == nil {
		socket, err := c.connect()
		if err == nil {
			err = c.read(socket)
			_ = socket.CloseNow() // it has ended
		}
		c.set(nil)
		if websocket.CloseStatus(err) != leaving {
			rig.Sleep(c.ctx, dialPause)
		}
	}
}

// connect connects to any edge, and goes on with the session.
func (c *carried) connect() (*websocket.Conn, error) {
	c.b.mu.Lock()
	c.f.edge = c.b.any()
	url := fmt.Sprintf("ws://%s:%d/dnp", c.b.cfg.Edges[c.f.edge].Addr(), rig.WebPort)
	c.b.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, dialMost)
	defer cancel()
	offered := []string{"dnp.v1"}
	if c.token != "" {
		offered = append(offered, "dnp.resume."+c.token)
	}
	socket, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c.http, Subprotocols: offered})
	if err != nil {
		return nil, err
	}
	socket.SetReadLimit(datagramMax)
	var greeting struct {
		Token   string
		Resumed bool
	}
	_, text, err := socket.Read(ctx)
	if err == nil {
		err = json.Unmarshal(text, &greeting)
	}
	if err != nil {
		_ = socket.CloseNow()
		return nil, err
	}
	if c.token != "" && !greeting.Resumed {
		c.note("the edge does not take the token of the session")
	}
	c.token = greeting.Token
	c.set(socket)
	return socket, nil
}

func (c *carried) note(text string) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if who := c.b.names[c.f.client]; who != "" {
		c.b.cfg.Note(history.Record{Kind: history.Problem, Who: who, Note: text})
	}
}

// set changes the connection. What may have got lost with the old one is sent again at once, as the clients of this
// project do (clients/typescript/src/sendwindow.ts, resume). That also tells the edge where the client is.
func (c *carried) set(socket *websocket.Conn) {
	c.mu.Lock()
	c.socket = socket
	recent := slices.Clone(c.recent)
	c.mu.Unlock()
	for _, p := range recent {
		c.write(socket, p)
	}
}

// send sends a datagram of the client, or loses it while there is no connection.
func (c *carried) send(p []byte) {
	c.mu.Lock()
	socket := c.socket
	if _, _, numbered := wire.Numbered(p); numbered {
		if len(c.recent) == recentMost {
			c.recent = slices.Delete(c.recent, 0, 1)
		}
		c.recent = append(c.recent, bytes.Clone(p))
	}
	c.mu.Unlock()
	c.write(socket, p)
}

func (c *carried) write(socket *websocket.Conn, p []byte) {
	if socket == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, sendMost)
	defer cancel()
	_ = socket.Write(ctx, websocket.MessageBinary, p) // the reader notices an end
}

// read brings datagrams to the client until the connection ends.
func (c *carried) read(socket *websocket.Conn) error {
	for {
		_, p, err := socket.Read(c.ctx)
		if err != nil {
			if text := err.Error(); strings.Contains(text, "unknown") {
				c.note("no edge has the session: " + text)
			}
			return err
		}
		c.b.mu.Lock()
		c.b.noteDown(c.f, p)
		c.b.mu.Unlock()
		_, _ = c.b.front.WriteToUDPAddrPort(p, c.f.client)
		c.b.down.Add(1)
	}
}
