package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// MetadataMax is how many bytes memberlist carries for a node (its MetaMaxSize).
// The largest Member takes 216.
const MetadataMax = 512

const metadataVersion = 1

// Errors of ParseMetadata. They are static: what it parses comes from the network.
var (
	ErrMetadataVersion = errors.New("cluster: metadata of an unknown version")
	ErrMetadata        = errors.New("cluster: malformed metadata")
)

// Validate says what keeps m from being encoded.
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

// AppendMetadata appends what m tells besides its name and gossip address. Numbers
// are little endian:
//
//	version     uint8 = 1
//	role        uint8
//	phase       uint8
//	load        uint8
//	shards      uint16
//	incarnation uint64
//	program     uint8 length, bytes
//	addresses   uint8 count, each {service uint8, uint8 length 4 or 16, bytes, port uint16}
//	sender      uint64; missing if it is 0
//
// Later fields of the same version may follow. m has to be valid.
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
	if m.Sender != 0 {
		b = binary.LittleEndian.AppendUint64(b, m.Sender)
	}
	return b
}

// ParseMetadata returns the member that p describes, without name and gossip
// address. It keeps nothing of p. Bytes behind the known fields are ignored, so
// that a later program can say more.
func ParseMetadata(p []byte) (Member, error) {
	if len(p) > MetadataMax {
		return Member{}, ErrMetadata
	}
	r := metadataReader{p: p}
	if r.uint8() != metadataVersion {
		return Member{}, ErrMetadataVersion
	}
	m := Member{
		Role: Role(r.uint8()), Phase: Phase(r.uint8()), Load: r.uint8(),
		Shards: r.uint16(), Incarnation: r.uint64(),
	}
	m.Version = string(r.bytes(int(r.uint8()), VersionMax))
	count := int(r.uint8())
	if count > AddressesMax {
		return Member{}, ErrMetadata
	}
	for range count {
		m.Addresses = append(m.Addresses, r.address())
	}
	if len(r.p) > 0 { // a relay has none
		m.Sender = r.uint64()
	}
	known := (m.Role == RoleRelay || m.Role == RoleEdge) && m.Phase >= PhaseStarting && m.Phase <= PhaseLeaving
	if r.short || !known || m.Load > LoadMax || m.Shards == 0 {
		return Member{}, ErrMetadata
	}
	return m, nil
}

// A metadataReader reads until something is missing or impossible; short then
// stays set and every field is zero.
type metadataReader struct {
	p     []byte
	short bool
}

func (r *metadataReader) bytes(n, most int) []byte {
	if r.short || n > most || n > len(r.p) {
		r.short = true
		return nil
	}
	b := r.p[:n]
	r.p = r.p[n:]
	return b
}

func (r *metadataReader) uint8() uint8 {
	if b := r.bytes(1, 1); b != nil {
		return b[0]
	}
	return 0
}

func (r *metadataReader) uint16() uint16 {
	if b := r.bytes(2, 2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *metadataReader) uint64() uint64 {
	if b := r.bytes(8, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *metadataReader) address() Address {
	a := Address{Service: Service(r.uint8())}
	ip, ok := netip.AddrFromSlice(r.bytes(int(r.uint8()), 16))
	if !ok {
		r.short = true
	}
	a.Addr = netip.AddrPortFrom(ip, r.uint16())
	return a
}

// Equal reports whether m and o say the same.
func (m Member) Equal(o Member) bool {
	return m.Name == o.Name && m.Gossip == o.Gossip && m.Role == o.Role && m.Phase == o.Phase && m.Load == o.Load &&
		m.Shards == o.Shards && m.Incarnation == o.Incarnation && m.Version == o.Version && m.Sender == o.Sender && slices.Equal(m.Addresses, o.Addresses)
}
