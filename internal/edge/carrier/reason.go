package carrier

import (
	"fmt"
	"time"
)

// A Reason says why a connection ends, or is not made. The client gets its code and text.
type Reason uint8

const (
	Lost      Reason = iota // the client or the network ended it; nothing is told
	Over                    // the DNP connection ended
	Leaving                 // another edge continues the session
	Unknown                 // no edge has the session of the client's token
	Replaced                // a newer connection with the same token took its place
	Silent                  // the client says nothing, and no session needs the connection
	Slow                    // the client takes nothing
	Malformed               // the client breaks the rules of the carrier
	TooLong                 // the client sent a message that is no datagram
	Full                    // the edge has as many connections as it may
	TooMany                 // the client's network has as many connections as it may, or makes them too fast
	NotReady                // the edge takes no clients yet, or because it drains
	BadOrigin               // the page that wants to connect is not allowed to

	// NumReasons is the number of reasons.
	NumReasons = int(iota)
)

// reasons says what a client is told. INTERFACES.md has this table.
var reasons = [NumReasons]struct {
	code  uint16
	name  string
	retry time.Duration // after which the client may come again; less than 0 is not told
}{
	Lost:      {1000, "lost", -1},
	Over:      {1000, "over", -1},
	Leaving:   {1012, "leaving", 0},
	Unknown:   {4000, "unknown", -1},
	Replaced:  {4001, "replaced", -1},
	Silent:    {1008, "silent", -1},
	Slow:      {1008, "slow", -1},
	Malformed: {1003, "malformed", -1},
	TooLong:   {1009, "too long", -1},
	Full:      {1013, "full", time.Second},
	TooMany:   {1013, "too many", time.Second},
	NotReady:  {1013, "not ready", 250 * time.Millisecond},
	BadOrigin: {1008, "origin", -1},
}

// Code returns the close code of WebSocket (RFC 6455, section 7.4), which WebTransport uses, too.
func (r Reason) Code() uint16 { return reasons[r].code }

// String returns the name of the reason in metrics.
func (r Reason) String() string { return reasons[r].name }

// Text returns what the client is told: the name, and in how many milliseconds it may come again.
func (r Reason) Text() string {
	if x := reasons[r]; x.retry >= 0 {
		return fmt.Sprintf("%s; retry-after=%d", x.name, x.retry.Milliseconds())
	}
	return reasons[r].name
}

// Closing returns the last frame on the stream of a WebTransport, JSON of less than 256 bytes. No datagram of DNP begins with
// its first byte.
func (r Reason) Closing() []byte {
	return fmt.Appendf(nil, `{"code":%d,"reason":%q}`, r.Code(), r.Text())
}

// RetryAfter returns in how many whole seconds a client that is refused may come again; 0 for at once.
func (r Reason) RetryAfter() int {
	return int((max(0, reasons[r].retry) + time.Second - 1) / time.Second)
}
