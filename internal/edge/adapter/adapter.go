// Package adapter makes clients of this edge for peers that speak another protocol.
//
// An adapter speaks that protocol outside, and is a DNP client inside: a [client.Client] whose datagrams stay in the process. So
// it has the links, budgets, rights and logins of a client, and can do nothing that a client cannot. It costs that each update is
// encoded and decoded once more.
//
// Another edge cannot continue its session, because what the client knows is lost with the process. When the edge ends or
// drains, the session ends, and the peer has to come again.
package adapter

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// An Ended is why an edge has no place for a client, or ended its connection. It is in the error of Join and in the
// [client.EndError] of the client.
type Ended struct{ Reason carrier.Reason }

// Error returns the reason.
func (e *Ended) Error() string { return fmt.Sprintf("the edge ended the connection: %s", e.Reason) }

// Join makes a client for a peer whose real address is home. It returns when the edge has accepted the client, and logged it in
// if cfg has a login. The error is an *Ended, or that of [client.Dial]. told, if it is not nil, is [client.Pipe.Told].
func Join(ctx context.Context, hub *carrier.Hub, kind carrier.Kind, home netip.Addr, cfg client.Config, told func()) (*client.Client, error) {
	seat, reason, ok := hub.Reserve(kind, home, "")
	if !ok {
		return nil, &Ended{reason}
	}
	var conn *carrier.Conn // set before the client sends
	pipe := client.NewPipe(
		"this edge",
		func(datagrams [][]byte) error {
			for _, d := range datagrams {
				if err := conn.Receive(bytes.Clone(d)); err != nil {
					return nil // the transport ends the pipe, with the reason
				}
			}
			return nil
		},
		func() { conn.End(carrier.Over) },
	)
	pipe.Told = told
	conn = seat.Open(transport{pipe})
	return client.DialPipe(ctx, pipe, cfg)
}

// A transport is the edge's end of a pipe.
type transport struct{ pipe *client.Pipe }

// Write implements carrier.Transport.
func (t transport) Write(list [][]byte) error {
	t.pipe.Deliver(list)
	return nil
}

// Close implements carrier.Transport.
func (t transport) Close(r carrier.Reason) {
	t.pipe.End(&client.EndError{Reason: client.Lost, Err: &Ended{r}})
}
