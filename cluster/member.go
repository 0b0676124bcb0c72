package cluster

import "net/netip"

// A Role is what a node does.
type Role uint8

// The roles. A number is part of the wire format.
const (
	RoleRelay Role = 1 // holds authority over spaces
	RoleEdge  Role = 2 // terminates clients
)

// String returns the name of r.
func (r Role) String() string {
	switch r {
	case RoleRelay:
		return "relay"
	case RoleEdge:
		return "edge"
	}
	return "unknown"
}

// A Phase is where a node is in its life.
type Phase uint8

// The phases, in the order of a life. A number is part of the wire format.
const (
	PhaseStarting Phase = 1 // is not able to work
	PhaseReady    Phase = 2 // works
	PhaseDraining Phase = 3 // works, hands its work over and takes no more
	PhaseLeaving  Phase = 4 // does not work any more, and is about to end
)

// String returns the name of p.
func (p Phase) String() string {
	switch p {
	case PhaseStarting:
		return "starting"
	case PhaseReady:
		return "ready"
	case PhaseDraining:
		return "draining"
	case PhaseLeaving:
		return "leaving"
	}
	return "unknown"
}

// A Service is what an address of a node is for.
type Service uint8

// The services. A number is part of the wire format; others may be met and have
// to be left alone, because newer nodes may have more.
const (
	ServiceDNP     Service = 1 // UDP, game clients
	ServiceForward Service = 2 // UDP, datagrams between edges
	ServiceHTTP    Service = 3 // TCP, health and metrics
)

// An Address is where a node offers a service to other nodes.
type Address struct {
	Service Service
	Addr    netip.AddrPort
}

// Bounds of a Member. They keep its encoding below [MetadataMax].
const (
	NameMax      = 64 // bytes of a node's name
	VersionMax   = 32 // bytes of the program's version
	AddressesMax = 8
	LoadMax      = 100
)

// A Member is what a node tells the others about itself. Its name and its gossip
// address travel beside the rest.
type Member struct {
	Name   string
	Gossip netip.AddrPort // where it speaks gossip

	Role        Role
	Phase       Phase
	Load        uint8  // how busy it feels: 0 idle to LoadMax full
	Shards      uint16 // of its deployment; members with different counts must not meet
	Incarnation uint64 // of the process: Unix milliseconds of its start, so that a restart shows
	Version     string // of the program
	Addresses   []Address

	// Sender is the id under which the process seals datagrams for other edges; see
	// cluster/forward. 0 means that it does not.
	Sender uint64
}

// CanHold reports whether m may be given shards: it is a relay that is ready. One
// that starts or drains is not.
func (m Member) CanHold() bool {
	return m.Role == RoleRelay && m.Phase == PhaseReady
}

// CanServe reports whether m may be given sessions: it is an edge that is ready.
func (m Member) CanServe() bool {
	return m.Role == RoleEdge && m.Phase == PhaseReady
}

// Address returns the first address of m for a service.
func (m Member) Address(s Service) (netip.AddrPort, bool) {
	for _, a := range m.Addresses {
		if a.Service == s {
			return a.Addr, true
		}
	}
	return netip.AddrPort{}, false
}
