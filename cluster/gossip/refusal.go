package gossip

import (
	"fmt"
	"net/netip"
	"strings"
)

// A RefusedError says that a member answered and could not be understood, because
// its keys are others. A node that starts cannot work then.
type RefusedError struct {
	Addr    netip.AddrPort
	Refusal Refusal
}

// A Refusal is why two nodes do not understand each other.
type Refusal uint8

// The refusals.
const (
	WrongKey   Refusal = iota + 1 // both have keys, and no common one
	NoKeyThere                    // only this node has a key
	NoKeyHere                     // only the other one has
)

// Error says in one line what to do.
func (e *RefusedError) Error() string {
	switch e.Refusal {
	case NoKeyThere:
		return fmt.Sprintf("gossip: %v speaks without a key, this node has one: every node of a cluster needs the same --gossip-key-file, or none", e.Addr)
	case NoKeyHere:
		return fmt.Sprintf("gossip: %v speaks with a key, this node has none: set --gossip-key-file to the one of the cluster", e.Addr)
	}
	return fmt.Sprintf("gossip: wrong key: %v does not know the gossip key of this node, or the reverse: --gossip-key-file must hold a key of the cluster", e.Addr)
}

// refusals are the words by which memberlist tells that two nodes do not
// understand each other, as written in its security.go and net.go. A member that
// cannot decrypt what a newcomer sent answers with such an error, encrypted with
// its own key, which the newcomer in turn cannot decrypt: so the newcomer usually
// sees its own failure and not the answer. After "remote error" the roles are
// exchanged.
var refusals = []struct {
	text string
	here Refusal // when this node says it
	told Refusal // when the other one says it
}{
	{"no installed keys could decrypt the message", WrongKey, WrongKey},
	{"encryption is configured but remote state is not encrypted", NoKeyThere, NoKeyHere},
	{"remote state is encrypted and encryption is not configured", NoKeyHere, NoKeyThere},
}

// refusal returns the refusal in an error of memberlist's Join; it keeps only the
// text of a cause.
func refusal(err error) (Refusal, bool) {
	text := err.Error()
	for _, r := range refusals {
		if strings.Contains(text, "remote error: "+r.text) {
			return r.told, true
		}
		if strings.Contains(text, r.text) {
			return r.here, true
		}
	}
	return 0, false
}

// A ShardsError says that a member belongs to a deployment with another number of
// shards. The two would send publishes to different relays.
type ShardsError struct {
	Member       string
	Theirs, Ours uint16
}

// Error says in one line what to do.
func (e *ShardsError) Error() string {
	return fmt.Sprintf("gossip: %s has %d shards, this node %d: --shards must be the same on every node", e.Member, e.Theirs, e.Ours)
}
