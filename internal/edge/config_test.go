package edge

import (
	"net/netip"
	"testing"
)

func TestLogAddresses(t *testing.T) {
	for _, c := range []struct {
		how        LogAddresses
		from, want string
	}{
		{AddressesFull, "192.0.2.77:5000", "192.0.2.77:5000"},
		{AddressesTruncated, "192.0.2.77:5000", "192.0.2.0/24"},
		{"", "[::ffff:192.0.2.77]:5000", "192.0.2.0/24"},
		{AddressesTruncated, "[2001:db8:1:2:3:4:5:6]:5000", "2001:db8:1::/48"},
		{AddressesTruncated, "[fe80::1%eth0]:5000", "fe80::/48"},
		{AddressesOff, "192.0.2.77:5000", "-"},
	} {
		if got := c.how.text(netip.MustParseAddrPort(c.from)); got != c.want {
			t.Errorf("%q of %s is %s, want %s", c.how, c.from, got, c.want)
		}
	}
}
