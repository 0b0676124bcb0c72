package cluster

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func fullMember() Member {
	m := Member{
		Name: strings.Repeat("n", NameMax), Role: RoleEdge, Phase: PhaseLeaving, Load: LoadMax, Shards: 4096,
		Incarnation: 1<<64 - 1, Version: strings.Repeat("v", VersionMax), Sender: 1<<64 - 1,
	}
	for i := range AddressesMax {
		m.Addresses = append(m.Addresses, Address{Service(i), netip.MustParseAddrPort("[2001:db8::1]:65535")})
	}
	return m
}

func TestMetadata(t *testing.T) {
	m := Member{
		Role: RoleRelay, Phase: PhaseReady, Load: 25, Shards: 64, Incarnation: 0x0102030405, Version: "1.2",
		Addresses: []Address{
			{ServiceHTTP, netip.MustParseAddrPort("127.0.0.1:8413")},
			{ServiceForward, netip.MustParseAddrPort("[::1]:7947")},
		},
	}
	want := strings.ReplaceAll("01 01 02 19 4000 0504030201000000 03 312e32 02 03 04 7f000001 dd20 02 10 00000000000000000000000000000001 0b1f", " ", "")
	b := m.AppendMetadata([]byte("prefix"))
	if got := hex.EncodeToString(b[6:]); got != want {
		t.Errorf("encoding:\ngot  %s\nwant %s", got, want)
	}
	if got, err := ParseMetadata(b[6:]); err != nil || !got.Equal(m) {
		t.Errorf("the member came back as %+v, %v", got, err)
	}
	for n := range len(b) - 6 {
		if _, err := ParseMetadata(b[6 : 6+n]); err == nil {
			t.Errorf("the first %d bytes pass", n)
		}
	}
	m.Sender = 0x0807060504030201
	b = m.AppendMetadata(b[:6])
	if got := hex.EncodeToString(b[6:]); got != want+"0102030405060708" {
		t.Errorf("with a sender: got %s", got)
	}
	if got, err := ParseMetadata(append(b[6:], 1, 2, 3)); err != nil || !got.Equal(m) {
		t.Errorf("fields of a newer program must be ignored, got %+v, %v", got, err)
	}
	m.Format = 2
	b = m.AppendMetadata(b[:6])
	if got := hex.EncodeToString(b[6:]); got != want+"010203040506070802" {
		t.Errorf("with a format: got %s", got)
	}
	if got, err := ParseMetadata(append(b[6:], 1, 2, 3)); err != nil || !got.Equal(m) || got.Format != 2 {
		t.Errorf("a member that reads format 2 came back as %+v, %v", got, err)
	}
	m.Sender = 0
	b = m.AppendMetadata(b[:6])
	if got := hex.EncodeToString(b[6:]); got != want+"000000000000000002" {
		t.Errorf("with a format and no sender: got %s", got)
	}
	if addr, ok := m.Address(ServiceForward); !ok || addr.Port() != 7947 {
		t.Errorf("address: got %v, %v", addr, ok)
	}
	if _, ok := m.Address(ServiceDNP); ok {
		t.Error("Address finds a service that the member does not offer")
	}
}

func TestMetadataBounds(t *testing.T) {
	m := fullMember()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if n := len(m.AppendMetadata(nil)); n > 216 {
		t.Errorf("the largest member takes %d bytes, want 216", n)
	}
	m.Format = 255
	if n := len(m.AppendMetadata(nil)); n > 217 || n > MetadataMax {
		t.Errorf("the largest member with a format takes %d bytes, the documentation says 217", n)
	}
	m.Format = 0
	for name, spoil := range map[string]func(*Member){
		"no name": func(m *Member) { m.Name = "" }, "long name": func(m *Member) { m.Name += "n" },
		"no role": func(m *Member) { m.Role = 0 }, "no phase": func(m *Member) { m.Phase = 0 },
		"late phase": func(m *Member) { m.Phase = 5 }, "load": func(m *Member) { m.Load++ },
		"shards": func(m *Member) { m.Shards = 0 }, "version": func(m *Member) { m.Version += "v" },
		"addresses": func(m *Member) { m.Addresses = append(m.Addresses, m.Addresses[0]) },
		"zone":      func(m *Member) { m.Addresses[0].Addr = netip.MustParseAddrPort("[fe80::1%eth0]:1") },
		"address":   func(m *Member) { m.Addresses[0].Addr = netip.AddrPort{} },
	} {
		m := fullMember()
		if spoil(&m); m.Validate() == nil {
			t.Errorf("%s: is valid", name)
		}
	}
}

func TestMetadataErrors(t *testing.T) {
	good := fullMember().AppendMetadata(nil)
	for name, c := range map[string]struct {
		index int
		value byte
		want  error
	}{
		"version": {0, 2, ErrMetadataVersion}, "role": {1, 3, ErrMetadata}, "phase": {2, 0, ErrMetadata}, "load": {3, 101, ErrMetadata},
		"program": {14, 33, ErrMetadata}, "count": {47, 9, ErrMetadata}, "ip": {49, 5, ErrMetadata},
	} {
		b := append([]byte{}, good...)
		b[c.index] = c.value
		if _, err := ParseMetadata(b); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := ParseMetadata(make([]byte, MetadataMax+1)); err == nil {
		t.Error("too long metadata passes")
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(fullMember().AppendMetadata(nil))
	f.Add(Member{Role: RoleRelay, Phase: PhaseReady, Shards: 64}.AppendMetadata(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := ParseMetadata(p)
		if err != nil {
			return
		}
		m.Name = "n"
		if err := m.Validate(); err != nil {
			t.Fatalf("%x parses as something that cannot be encoded: %v", p, err)
		}
		m.Name = ""
		b := m.AppendMetadata(nil)
		if len(b) > MetadataMax || string(p[:len(b)]) != string(b) {
			t.Fatalf("%x came back as %x", p, b)
		}
	})
}
