package edge

import "net/netip"

// LogAddresses says how much of a client's address log lines have.
type LogAddresses string

const (
	AddressesFull      LogAddresses = "full"
	AddressesTruncated LogAddresses = "truncated" // the /24 or /48, which is no person
	AddressesOff       LogAddresses = "off"
)

// text returns an address as log lines have it.
func (a LogAddresses) text(from netip.AddrPort) string {
	bits := 24
	if from.Addr().Unmap().Is6() {
		bits = 48
	}
	switch a {
	case AddressesFull:
		return from.String()
	case AddressesOff:
		return "-"
	}
	p, err := from.Addr().Unmap().WithZone("").Prefix(bits)
	if err != nil {
		return "-"
	}
	return p.String()
}
