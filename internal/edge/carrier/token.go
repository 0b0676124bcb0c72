package carrier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// A Kind is how a connection carries datagrams, or which adapter is its client.
type Kind uint8

const (
	WebSocket Kind = iota + 1
	WebTransport
	LLUDP   // an adapter
	Variant // an adapter

	// Kinds is the number of kinds, with the zero Kind, which is none.
	Kinds = int(iota) + 1
)

// String returns the name of the kind in metrics and logs.
func (k Kind) String() string {
	return [Kinds]string{"", "websocket", "webtransport", "lludp", "variant"}[k]
}

// Adapted reports whether the client with this address is an adapter, which is gone for good when its connection ends: what
// it knows of DNP is in the process of the edge.
func Adapted(client netip.AddrPort) bool {
	return Carried(client.Addr()) && client.Port() >= uint16(LLUDP)
}

// network holds the addresses of all carried clients: a /48 of the unique local addresses (RFC 4193) with a
// random global id. No datagram from it arrives by UDP unless somebody forges it.
var network = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x9c, 0x3b, 0x1e, 0x60, 0xd7}), 48)

// Carried reports whether an address is that of a client which does not speak UDP.
func Carried(a netip.Addr) bool { return network.Contains(a) }

// A token is tokenSecret secret bytes and a MAC of them, so that every edge of a deployment knows its tokens
// without storing them, and only they can make one.
const (
	tokenSecret = 16
	tokenMAC    = 16

	// TokenSize is the length of a token in hex.
	TokenSize = 2 * (tokenSecret + tokenMAC)
)

// Tokens makes and checks session tokens. All edges of a deployment have the same secret.
type Tokens struct {
	secret []byte
	newID  func() string
}

// NewTokens returns the Tokens of a deployment. newID makes texts that are unique for ever and cannot be guessed.
func NewTokens(secret []byte, newID func() string) Tokens { return Tokens{secret, newID} }

// New returns a new token for a kind of connection.
func (t Tokens) New(k Kind) string {
	b := t.sum("secret", k, []byte(t.newID()))[:tokenSecret:tokenSecret]
	return hex.EncodeToString(append(b, t.sum("token", k, b)[:tokenMAC]...))
}

// Valid reports whether a token was made by New for this kind of connection. The same token in other letters is none: it would
// be another client without having been admitted.
func (t Tokens) Valid(k Kind, token string) bool {
	b, err := hex.DecodeString(token)
	return err == nil && hex.EncodeToString(b) == token && len(token) == TokenSize && hmac.Equal(b[tokenSecret:], t.sum("token", k, b[:tokenSecret])[:tokenMAC])
}

// Address returns the address of the client with a token, from which the token cannot be found.
func (t Tokens) Address(k Kind, token string) netip.AddrPort {
	ip := network.Addr().As16()
	copy(ip[6:], t.sum("address", k, []byte(token)))
	return netip.AddrPortFrom(netip.AddrFrom16(ip), uint16(k))
}

func (t Tokens) sum(use string, k Kind, data []byte) []byte {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte("dnprelay carrier " + use))
	h.Write([]byte{0, byte(k)})
	h.Write(data)
	return h.Sum(nil)
}
