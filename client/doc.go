// Package client is a DNP client for bots, tools and load tests: it sees what game servers publish,
// writes what it may, has states of its own, and sends and receives messages.
//
//	c, err := client.Dial(ctx, "udp://127.0.0.1:3413", client.Config{
//		Link:   func(_ *client.Client, s *client.State) { fmt.Println("+", s.Key()) },
//		Change: func(_ *client.Client, s *client.State, changed []int) {
//			for _, i := range changed {
//				fmt.Println("~", s.Key(), s.Name(i), s.At(i))
//			}
//		},
//	})
//	defer c.Close()
//	lamp, err := c.Await(ctx, "lamp")
//	err = lamp.Set("brightness", 200)
//	err = c.Send([]byte("hello"))
//
// # States
//
// A [State] is a list of typed values that the edge and this client keep equal. A value has an index,
// and a name where the link message describes the state (see package linkmsg), which may also tell the
// components of data ([State.Fields]). [State.Value] and
// [State.Set] take names, [State.At] and [State.SetAt] indices. [Client.Offer] makes a state of this
// client, which is a state of the space while the client is connected.
//
// Values and messages have no order between them: a value that is set before a message is sent may
// arrive after it. Of several values that are set soon after each other, the newest arrives.
//
// The client repeats a value that it set until the edge says that the game has it, and the game gets it once. If the game sets
// another value when it hears of it, that one stands. [State.SetConfirmed] waits for the game's word, [Config.Refused] tells
// of values that it does not take.
//
// # Events
//
// The functions in [Config] hear what happens. One goroutine calls them, one at a time, in order, and
// reads nothing from the network meanwhile. So there is no queue of events that has to be bounded, or
// that a program may forget to read: a slow function makes its client a slow one, and the edge sends
// that client the newest values later. A program that is not interested in an event sets no function.
//
// [Client.Until] waits for anything that the client can see, which makes a program that does one thing
// after the other:
//
//	err = c.Until(ctx, func() bool { return lamp.Value("brightness").Int() == 0 })
//
// # Commands
//
// [State.Command] asks the game server to do something with a state that this client may write, and returns its one
// answer:
//
//	answer, err := door.Command(ctx, "open", []byte("quietly"))
//
// # Limits
//
// A Client is one connection. When it ended, the program dials again, and gets other State objects. The
// package does not interpolate values.
//
// # Carriers
//
// A client reaches edges over UDP, WebSocket and WebTransport. [Dial] has the forms of addresses. Over UDP there
// is nothing that can be cut. A WebSocket or QUIC connection can, and then the Client makes another one and resumes
// its session, at any edge of the deployment: links stay, and messages arrive once and in order. Meanwhile the
// newest values wait, and unreliable messages are dropped. The Client ends with the reason [Unknown] if no edge
// has the session any more, and with [Timeout] or [Rejected] after a minute without any connection, or sooner if a
// reliable message waits.
//
// A certificate that no authority signed, as edges make for WebTransport, is trusted by its hash
// ([Config.CertificateHashes]).
package client
