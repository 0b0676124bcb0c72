package dnptest

import "github.com/dnprelay/dnprelay/dnp/wire"

// handle dispatches a datagram. All implementations ignore unknown commands.
func (c *Client) handle(p []byte) {
	if len(p) == 0 {
		return
	}
	cmd, body := wire.Command(p[0]), p[1:]
	switch c.phase {
	case Idle, Closed:
		if c.cfg.Listen && cmd == wire.CommandConnectionRequest {
			c.handleRequest(body)
		}
	case Connecting:
		c.handleConnecting(cmd, body)
	case Connected:
		c.handleConnected(cmd, body)
	}
}

func (c *Client) handleConnecting(cmd wire.Command, body []byte) {
	switch {
	case cmd == wire.CommandConnectionAck:
		c.handleConnectionAck(body)
	case cmd == wire.CommandConnectionClose && c.b.CloseAnyTime:
		c.closed("closed by the peer")
	case cmd == wire.CommandMessage && c.b.MessagesAnyTime:
		c.handleMessage(body)
	}
}

func (c *Client) handleConnected(cmd wire.Command, body []byte) {
	switch cmd {
	case wire.CommandConnectionClose:
		c.closed("closed by the peer")
	case wire.CommandMessage:
		c.handleMessage(body)
	case wire.CommandReliableMessage, wire.CommandReliableLinkState,
		wire.CommandReliableMessageLong, wire.CommandReliableLinkStateLong:
		c.handleReliable(cmd, body)
	case wire.CommandReliableAck:
		c.handleReliableAck(body)
	case wire.CommandLinkUp:
		c.handleLinkUp(body)
	case wire.CommandLinkDown:
		c.handleLinkDown(body)
	case wire.CommandLinkUpdate:
		c.handleLinkUpdate(body)
	}
}

// handleRequest answers like the libraries' servers.
func (c *Client) handleRequest(body []byte) {
	r, err := wire.ParseConnectionRequest(body)
	if err != nil {
		c.bad("truncated ConnectionRequest")
		return
	}
	if !r.Offers(wire.ProtocolDNP1) {
		c.emit(wire.ConnectionAck{Result: wire.NoCommonProtocol}.Append(nil))
		return
	}
	c.forget()
	c.emit(wire.ConnectionAck{}.Append(nil))
	c.connected()
}

func (c *Client) handleConnectionAck(body []byte) {
	m, err := wire.ParseConnectionAck(body)
	if err != nil {
		c.bad("truncated ConnectionAck")
		return
	}
	switch {
	case m.Result == wire.Accepted && c.b.ChecksProtocol && m.Protocol != wire.ProtocolDNP1:
		c.Stats.Exceptions++
	case m.Result == wire.Accepted:
		c.connected()
	case m.Result > wire.NoCommonProtocol && c.b.IgnoresUnknown:
		c.Stats.Exceptions++
	case m.Result == wire.NoCommonProtocol:
		c.closed("no common protocol")
	default:
		c.closed("rejected")
	}
}

func (c *Client) connected() {
	c.phase = Connected
	if c.cfg.App.Connected != nil {
		c.cfg.App.Connected()
	}
}

func (c *Client) handleMessage(data []byte) {
	if len(data) == 0 && c.b.ThrowsOnEmpty {
		c.bad("empty message")
		return
	}
	c.deliver(data, false)
}

func (c *Client) request() {
	c.requestLast = c.now
	c.emit(wire.AppendConnectionRequest(nil))
}

// tickConnecting repeats the request: at 0, 1, 2, 3 and 4 s, and gives up at 5
// (vectors, connect_resend_schedule).
func (c *Client) tickConnecting() {
	switch {
	case c.now.Sub(c.requestFirst) >= connectTimeout:
		c.closed("no answer")
	case c.now.Sub(c.requestLast) >= connectResend:
		c.request()
	}
}
