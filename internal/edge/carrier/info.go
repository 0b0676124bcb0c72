package carrier

import "encoding/json"

// Path is where both carriers, and InfoPath, are served.
const (
	Path     = "/dnp"
	InfoPath = "/dnp/info"
)

// Protocol is the version of what the carriers carry: DNP as the denetwork libraries speak it.
const Protocol = "dnp.v1"

// An Info tells clients which carriers an edge has.
type Info struct {
	Protocols    []string          `json:"protocols"`
	WebSocket    *WebSocketInfo    `json:"websocket,omitempty"`
	WebTransport *WebTransportInfo `json:"webtransport,omitempty"`
}

// A WebSocketInfo tells where to open a WebSocket, at the port that the client talks to, and with which subprotocols.
type WebSocketInfo struct {
	Path      string   `json:"path"`
	Protocols []string `json:"protocols,omitempty"`
}

// A WebTransportInfo tells where to open a WebTransport session. CertificateHashes are SHA-256 hashes in hex of certificates that
// browsers would not trust otherwise.
type WebTransportInfo struct {
	Port              uint16   `json:"port"`
	Path              string   `json:"path"`
	CertificateHashes []string `json:"certificateHashes,omitempty"`
}

// JSON returns the answer to GET InfoPath.
func (i *Info) JSON() []byte {
	b, err := json.Marshal(i)
	if err != nil {
		panic("carrier: " + err.Error()) // it has only strings and numbers
	}
	return b
}
