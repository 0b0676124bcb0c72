package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// With memberlist's settings for a LAN a death shows after 5 to 9 s. With these it
// shows after 0.6 to 1.1 s: up to one probe interval until somebody probes the
// dead node, one more until the probe has failed, and a suspicion of two.
const (
	probeInterval = 200 * time.Millisecond
	probeTimeout  = 100 * time.Millisecond
	suspicionMult = 2
	gossipPeriod  = 50 * time.Millisecond
)

const (
	// pushPullPeriod is how often two nodes compare all they know. It brings what
	// gossip lost, as the new address of a node that was restarted elsewhere before
	// its death was noticed.
	pushPullPeriod = 5 * time.Second

	// streamTimeout ends a connection to a node that does not answer.
	streamTimeout = 3 * time.Second

	// reclaimTime is how long a name must be dead before a node at another address
	// may bear it: a pod that is replaced gets a new address at once.
	reclaimTime = time.Millisecond
)

// tuned returns the settings of memberlist that do not depend on the node.
func tuned() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.ProbeInterval, c.ProbeTimeout = probeInterval, probeTimeout
	c.SuspicionMult = suspicionMult
	c.GossipInterval = gossipPeriod
	c.PushPullInterval = pushPullPeriod
	c.TCPTimeout = streamTimeout
	c.DeadNodeReclaimTime = reclaimTime
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = true, true
	c.EnableCompression = false // messages are small, and what is not decompressed cannot be a bomb
	return c
}
