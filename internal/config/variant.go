package config

// Variants are the flags about clients that speak in Godot's Variants. A command that embeds it sets the default address, as
// `set:"variant=127.0.0.1:3415"`.
type Variants struct {
	Variant string `name:"variant" default:"${variant}" want:"bind" placeholder:"[ADDRESS]:PORT" help:"UDP address on which to accept clients that send Godot's Variants with PacketPeerUDP.put_var, one datagram each; empty = none. By WebSocket (--websocket) they are accepted anyway, with the subprotocols dnp.variant.v3 and dnp.variant.v4. They are not encrypted."`
}
