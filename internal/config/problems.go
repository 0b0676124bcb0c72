package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problems are what is wrong with a configuration, one line each, so that an operator can
// repair all of it at once.
type Problems []string

// Add adds a problem of a flag, unless the list has it already.
func (p *Problems) Add(flag, format string, args ...any) {
	p.addLine(flag + ": " + fmt.Sprintf(format, args...))
}

func (p *Problems) addLine(line string) {
	if !slices.Contains(*p, line) {
		*p = append(*p, line)
	}
}

func (p *Problems) oneOf(flag, got string, want ...string) {
	if !slices.Contains(want, got) {
		last := len(want) - 1
		p.Add(flag, "want %s or %s, got %q", strings.Join(want[:last], ", "), want[last], got)
	}
}

func (p *Problems) number(flag string, got, low, high int) {
	if got < low || got > high {
		p.Add(flag, "want %d to %d, got %d", low, high, got)
	}
}

func (p *Problems) rate(flag string, got float64) {
	if !(got >= 0 && got <= 1e7) { // NaN is a problem, too
		p.Add(flag, "want 0 to 10000000 per second, got %v", got)
	}
}

func (p *Problems) duration(flag string, got, low, high time.Duration) {
	if got < low || got > high {
		p.Add(flag, "want %v to %v, got %v", low, high, got)
	}
}

func (p *Problems) hostPort(flag, got string) {
	_, port, err := net.SplitHostPort(got)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		p.Add(flag, "want ADDRESS:PORT, got %q", got)
	}
}

func (p *Problems) natsURLs(flag, got string) {
	for i, text := range strings.Split(got, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			p.Add(flag, "want nats://HOST:PORT (or tls, ws, wss), address %d is none", i+1) // without the text, which may have a password
		}
	}
}

func (p *Problems) readable(flag, file string) {
	if file == "" {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		p.Add(flag, "%v", err)
		return
	}
	f.Close()
}

// Names that become tokens of NATS subjects.
var (
	tokenForm  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}$`)
	nodeForm   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

func (p *Problems) token(flag, got string) {
	if !tokenForm.MatchString(got) {
		p.Add(flag, "want 1 to 64 letters, digits, _ or -, got %q", got)
	}
}

func (p *Problems) subject(flag, got string) {
	if !prefixForm.MatchString(got) {
		p.Add(flag, "want up to 8 tokens of letters, digits, _ or -, joined by dots, got %q", got)
	}
}

func (p *Problems) node(flag, got string) {
	if !nodeForm.MatchString(got) {
		p.Add(flag, "want 1 to 64 letters, digits, dots, _ or -, got %q", got)
	}
}

// DefaultNode returns the name of a node that was given none: POD_NAME, in which the chart
// passes the name of the pod, or else the host name.
func DefaultNode() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "node"
	}
	return name
}

// listeners finds listeners with the same address.
func (p *Problems) listeners(flag string, list []Listener) {
	if len(list) == 0 {
		p.Add(flag, "want at least one")
	}
	for i, l := range list {
		for _, m := range list[:i] {
			if l.Addr == m.Addr && l.Addr.Port() != 0 {
				p.Add(flag, "%v and %v are the same address", m, l)
			}
		}
	}
}

// onLoopback reports whether only this machine reaches an address. A malformed address
// counts as one, because it is another problem.
func onLoopback(bind string) bool {
	host, _, err := net.SplitHostPort(bind)
	if err != nil || host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func (p *Problems) bind(flag, got string) {
	host, port, err := net.SplitHostPort(got)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && host != "localhost" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		p.Add(flag, "want [ADDRESS]:PORT with an IP address of this machine, got %q", got)
	}
}

func (p *Problems) advertise(flag, got string) {
	if got == "" {
		return
	}
	addr, err := netip.ParseAddr(strings.Trim(got, "[]"))
	if err != nil {
		var both netip.AddrPort
		both, err = netip.ParseAddrPort(got)
		addr = both.Addr()
	}
	if err != nil || addr.IsUnspecified() || addr.Zone() != "" {
		p.Add(flag, "want ADDRESS or ADDRESS:PORT with an IP address that other nodes reach, got %q", got)
	}
}

// joinMax is how many nodes --gossip-join may name; these name the others.
const joinMax = 64

func (p *Problems) join(flag string, names []string) {
	if len(names) > joinMax {
		p.Add(flag, "want at most %d, got %d", joinMax, len(names))
	}
	for _, name := range names {
		if !joinable(name) {
			p.Add(flag, "want HOST or HOST:PORT, with IPv6 addresses as [ADDRESS]:PORT, got %q", name)
		}
	}
}

// joinable reports whether cluster/gossip can join a name.
func joinable(name string) bool {
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	if !strings.Contains(name, ":") {
		return name != ""
	}
	host, port, err := net.SplitHostPort(name)
	n, numberErr := strconv.ParseUint(port, 10, 16)
	return err == nil && numberErr == nil && host != "" && n > 0
}
