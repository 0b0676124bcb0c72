package dnp

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// LoggedNumbers returns what [Conn.Next] would be of a connection that is restored from a
// snapshot and replays changes, as far as these follow; zeros if the snapshot cannot be
// read. It is for those who have to say what a log knows of a connection that they cannot
// go on with, and makes one that has no peer.
func LoggedNumbers(snapshot []byte, changes []Changes) (received, sent uint64) {
	if len(snapshot) < 2 {
		return 0, 0
	}
	e, err := New(Config{
		Profile: wire.Profile(snapshot[1]), Logged: true, ConnsMax: 1, UnprovenMax: 1, Rand: rand.New(rand.NewPCG(0, 0)),
	})
	if err != nil {
		return 0, 0
	}
	now, nothing := time.Unix(0, 0), func(uint64) *Source { return nil }
	c, err := e.Restore(now, netip.AddrPort{}, snapshot, nothing)
	if err != nil {
		return 0, 0
	}
	for _, ch := range changes {
		if c.Replay(now, ch, nothing) != nil {
			break
		}
	}
	return c.Next()
}

// KnownSnapshot reports whether a snapshot has the format that [Endpoint.Restore] reads. One of
// another format is of another release, and not damaged.
func KnownSnapshot(snapshot []byte) bool {
	return len(snapshot) > 0 && snapshot[0] == snapshotVersion
}
