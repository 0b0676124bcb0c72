package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/format"
)

// A Role is what a node does.
type Role uint8

// The roles. A number is part of the wire format.
const (
	RoleRelay Role = 1 // holds authority over spaces
	RoleEdge  Role = 2 // terminates clients
)

// String returns the name of r.
func (r Role) String() string { return nameOf(r, "", "relay", "edge") }

// A Phase is a phase in the life of a node.
type Phase uint8

// The phases, in the order of a life. A number is part of the wire format.
const (
	PhaseStarting Phase = 1 // is not able to work
	PhaseReady    Phase = 2 // works
	PhaseDraining Phase = 3 // works, hands its work over and takes no more
	PhaseLeaving  Phase = 4 // has stopped working and is about to end
)

// String returns the name of p.
func (p Phase) String() string { return nameOf(p, "", "starting", "ready", "draining", "leaving") }

// nameOf returns the name of n among those of the numbers from 0 on; "unknown" if it has none.
func nameOf[T ~uint8](n T, names ...string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return "unknown"
}

// A Service is the purpose of an address of a node.
type Service uint8

// The services. A number is part of the wire format. Unknown ones are left alone, because newer
// nodes may have more.
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

// A Member is a node as it describes itself to the others. Its name and its gossip address travel
// beside the rest.
type Member struct {
	Name   string
	Gossip netip.AddrPort // its address for gossip

	Role        Role
	Phase       Phase
	Load        uint8  // how busy it feels: 0 idle to LoadMax full
	Shards      uint16 // of its deployment; members with different counts must not meet
	Incarnation uint64 // of the process: Unix milliseconds of its start, so that a restart shows
	Version     string // of the program
	Addresses   []Address

	// Sender is the id under which the process seals datagrams for other edges; see
	// cluster/forward. 0 means that it seals none.
	Sender uint64

	// Format is the newest format that the program reads; see package format. 0 stands for the
	// oldest.
	Format uint8
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

// Ports returns the ports at which m offers a service, each once, in the order of its addresses.
func (m Member) Ports(s Service) (ports []uint16) {
	for _, a := range m.Addresses {
		if a.Service == s && !slices.Contains(ports, a.Addr.Port()) {
			ports = append(ports, a.Addr.Port())
		}
	}
	return ports
}

func (m Member) format() uint8 { return max(m.Format, format.Oldest) }

// MetadataMax is how many bytes memberlist carries for a node (its MetaMaxSize).
// The largest Member takes 217.
const MetadataMax = 512

// metadataVersion never changes: a node ignores a member whose metadata it cannot read, and would
// take it for dead. New fields follow the old ones; see package format.
const metadataVersion = 1

// Errors of ParseMetadata. They are static, because their cause comes from the network.
var (
	ErrMetadataVersion = errors.New("cluster: metadata of an unknown version")
	ErrMetadata        = errors.New("cluster: malformed metadata")
)

// Validate returns an error if m cannot be encoded.
func (m Member) Validate() error {
	switch {
	case m.Name == "" || len(m.Name) > NameMax:
		return fmt.Errorf("cluster: name %q has %d bytes, want 1 to %d", m.Name, len(m.Name), NameMax)
	case m.Role != RoleRelay && m.Role != RoleEdge:
		return fmt.Errorf("cluster: member %s has the unknown role %d", m.Name, m.Role)
	case m.Phase < PhaseStarting || m.Phase > PhaseLeaving:
		return fmt.Errorf("cluster: member %s has the unknown phase %d", m.Name, m.Phase)
	case m.Load > LoadMax:
		return fmt.Errorf("cluster: member %s has load %d, at most %d", m.Name, m.Load, LoadMax)
	case m.Shards == 0:
		return fmt.Errorf("cluster: member %s has no shards", m.Name)
	case len(m.Version) > VersionMax:
		return fmt.Errorf("cluster: member %s has a version of %d bytes, at most %d", m.Name, len(m.Version), VersionMax)
	case len(m.Addresses) > AddressesMax:
		return fmt.Errorf("cluster: member %s has %d addresses, at most %d", m.Name, len(m.Addresses), AddressesMax)
	}
	for _, a := range m.Addresses {
		if !a.Addr.IsValid() || a.Addr.Addr().Zone() != "" {
			return fmt.Errorf("cluster: member %s has the address %v, which means nothing to other nodes", m.Name, a.Addr)
		}
	}
	return nil
}

// AppendMetadata appends the description of m without name and gossip address. Numbers are little
// endian:
//
//	version     uint8 = 1
//	role        uint8
//	phase       uint8
//	load        uint8
//	shards      uint16
//	incarnation uint64
//	program     uint8 length, bytes
//	addresses   uint8 count, each {service uint8, uint8 length 4 or 16, bytes, port uint16}
//	sender      uint64; missing if it is 0 and no field follows
//	format      uint8; missing if it is the oldest
//
// Fields of newer programs may follow. m has to be valid.
func (m Member) AppendMetadata(b []byte) []byte {
	b = append(b, metadataVersion, byte(m.Role), byte(m.Phase), m.Load)
	b = binary.LittleEndian.AppendUint16(b, m.Shards)
	b = binary.LittleEndian.AppendUint64(b, m.Incarnation)
	b = append(b, byte(len(m.Version)))
	b = append(b, m.Version...)
	b = append(b, byte(len(m.Addresses)))
	for _, a := range m.Addresses {
		ip := a.Addr.Addr().AsSlice()
		b = append(b, byte(a.Service), byte(len(ip)))
		b = append(b, ip...)
		b = binary.LittleEndian.AppendUint16(b, a.Addr.Port())
	}
	if newer := m.format() > format.Oldest; newer || m.Sender != 0 {
		b = binary.LittleEndian.AppendUint64(b, m.Sender)
		if newer {
			b = append(b, m.Format)
		}
	}
	return b
}

// ParseMetadata returns the member that p describes, without name and gossip address. It keeps
// nothing of p and ignores bytes behind the known fields, so that a newer program can say more.
func ParseMetadata(p []byte) (Member, error) {
	if len(p) > MetadataMax {
		return Member{}, ErrMetadata
	}
	r := wire.NewReader(p)
	if r.Uint8() != metadataVersion {
		return Member{}, ErrMetadataVersion
	}
	m := Member{
		Role: Role(r.Uint8()), Phase: Phase(r.Uint8()), Load: r.Uint8(),
		Shards: r.Uint16(), Incarnation: r.Uint64(),
	}
	m.Version = string(r.Bytes(int(r.Uint8())))
	count := int(r.Uint8())
	if count > AddressesMax {
		return Member{}, ErrMetadata
	}
	for range count {
		m.Addresses = append(m.Addresses, parseAddress(&r))
	}
	if len(r.Rest()) > 0 {
		m.Sender = r.Uint64()
	}
	if len(r.Rest()) > 0 {
		m.Format = r.Uint8()
	}
	known := (m.Role == RoleRelay || m.Role == RoleEdge) && m.Phase >= PhaseStarting && m.Phase <= PhaseLeaving
	if r.Err() != nil || !known || len(m.Version) > VersionMax || m.Load > LoadMax || m.Shards == 0 {
		return Member{}, ErrMetadata
	}
	return m, nil
}

func parseAddress(r *wire.Reader) Address {
	a := Address{Service: Service(r.Uint8())}
	ip, ok := netip.AddrFromSlice(r.Bytes(int(r.Uint8())))
	if !ok {
		r.Fail(ErrMetadata)
	}
	a.Addr = netip.AddrPortFrom(ip, r.Uint16())
	return a
}

// Equal reports whether m and o say the same.
func (m Member) Equal(o Member) bool {
	return m.Name == o.Name && m.Gossip == o.Gossip && m.Role == o.Role && m.Phase == o.Phase && m.Load == o.Load &&
		m.Shards == o.Shards && m.Incarnation == o.Incarnation && m.Version == o.Version && m.Sender == o.Sender &&
		m.format() == o.format() && slices.Equal(m.Addresses, o.Addresses)
}
