package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Listener is an address on which an edge accepts DNP clients, and how it talks to them.
// Its text form is a URL:
//
//	udp://:3413                                  every address of the machine, IPv4 and IPv6
//	udp://127.0.0.1:3413?profile=denetwork       the protocol of the denetwork libraries; the default
//	udp://[::1]:3414?profile=spec                the published document as written
//	udp://:3413?probe=ping|hello|none            how a client proves its address
//
// The default probe is ping with profile denetwork and hello with profile spec,
// which does not know the command that a ping is.
type Listener struct {
	Addr    netip.AddrPort // the unspecified IPv6 address when the URL names no host
	Profile wire.Profile
	Probe   dnp.Probe
}

var errListenerForm = errors.New("want udp://[ADDRESS]:PORT[?profile=denetwork|spec][&probe=ping|hello|none]")

// ParseListener parses the text of a listener.
func ParseListener(text string) (Listener, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "udp" || u.Path != "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return Listener{}, fmt.Errorf("%w, got %q", errListenerForm, text)
	}
	addr, err := parseAddress(u.Hostname(), u.Port())
	if err != nil {
		return Listener{}, fmt.Errorf("%q: %w", text, err)
	}
	l := Listener{Addr: addr}
	if err := l.parseQuery(u.RawQuery); err != nil {
		return Listener{}, fmt.Errorf("%q: %w", text, err)
	}
	return l, nil
}

func parseAddress(host, port string) (netip.AddrPort, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, errors.New("want a port from 0 to 65535 (0 = any free one)")
	}
	addr := netip.IPv6Unspecified()
	switch host {
	case "":
	case "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if addr, err = netip.ParseAddr(host); err != nil || addr.Zone() != "" {
			return netip.AddrPort{}, fmt.Errorf("want an IP address of this machine, got %q", host)
		}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

func (l *Listener) parseQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("the part after ? cannot be read")
	}
	for key, values := range query {
		if key != "profile" && key != "probe" {
			return fmt.Errorf("unknown option %q, want profile or probe", key)
		}
		if len(values) != 1 {
			return fmt.Errorf("option %s is given %d times", key, len(values))
		}
	}
	var ok bool
	if name := query.Get("profile"); query.Has("profile") {
		if l.Profile, ok = wire.ParseProfile(name); !ok {
			return fmt.Errorf("unknown profile %q, want denetwork or spec", name)
		}
	}
	l.Probe = defaultProbe(l.Profile)
	if name := query.Get("probe"); query.Has("probe") {
		if l.Probe, ok = parseProbe(name); !ok {
			return fmt.Errorf("unknown probe %q, want ping, hello or none", name)
		}
	}
	if l.Probe == dnp.ProbePing && !l.Profile.Long() {
		return errors.New("profile spec does not know the command that probe ping sends, use hello or none")
	}
	return nil
}

// String returns the URL of l with every option that is not the default.
func (l Listener) String() string {
	text := "udp://" + l.Addr.String()
	if l.Addr.Addr() == netip.IPv6Unspecified() {
		text = fmt.Sprintf("udp://:%d", l.Addr.Port())
	}
	var options []string
	if l.Profile != wire.Denetwork {
		options = append(options, "profile="+l.Profile.String())
	}
	if l.Probe != defaultProbe(l.Profile) {
		options = append(options, "probe="+probeNames[l.Probe])
	}
	if len(options) > 0 {
		text += "?" + strings.Join(options, "&")
	}
	return text
}

// probeNames are the probes that an operator can choose. The fourth belongs to
// authentication by token, where the client has to send first.
var probeNames = map[dnp.Probe]string{dnp.ProbePing: "ping", dnp.ProbeHello: "hello", dnp.ProbeNone: "none"}

func parseProbe(name string) (p dnp.Probe, ok bool) {
	for p, n := range probeNames {
		if n == name {
			return p, true
		}
	}
	return 0, false
}

func defaultProbe(profile wire.Profile) dnp.Probe {
	if profile.Long() {
		return dnp.ProbePing
	}
	return dnp.ProbeHello
}
