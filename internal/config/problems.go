package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problems are what is wrong with a configuration, one sentence each, so that
// all of it can be repaired at once.
type Problems []string

// add notes that flag is wrong, unless exactly that was noted before.
func (p *Problems) add(flag, format string, args ...any) {
	line := flag + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(*p, line) {
		*p = append(*p, line)
	}
}

func (p *Problems) oneOf(flag, got string, want ...string) {
	if !slices.Contains(want, got) {
		last := len(want) - 1
		p.add(flag, "want %s or %s, got %q", strings.Join(want[:last], ", "), want[last], got)
	}
}

func (p *Problems) number(flag string, got, low, high int) {
	if got < low || got > high {
		p.add(flag, "want %d to %d, got %d", low, high, got)
	}
}

func (p *Problems) rate(flag string, got float64) {
	if !(got >= 0 && got <= 1e7) {
		p.add(flag, "want 0 to 10000000 per second, got %v", got)
	}
}

func (p *Problems) duration(flag string, got, low, high time.Duration) {
	if got < low || got > high {
		p.add(flag, "want %v to %v, got %v", low, high, got)
	}
}

func (p *Problems) hostPort(flag, got string) {
	_, port, err := net.SplitHostPort(got)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		p.add(flag, "want ADDRESS:PORT, got %q", got)
	}
}

func (p *Problems) natsURLs(flag, got string) {
	for i, text := range strings.Split(got, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			p.add(flag, "want nats://HOST:PORT (or tls, ws, wss), address %d is none", i+1) // which may have a password
		}
	}
}

func (p *Problems) readable(flag, file string) {
	if file == "" {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		p.add(flag, "%v", err)
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
		p.add(flag, "want 1 to 64 letters, digits, _ or -, got %q", got)
	}
}

func (p *Problems) subject(flag, got string) {
	if !prefixForm.MatchString(got) {
		p.add(flag, "want up to 8 tokens of letters, digits, _ or -, joined by dots, got %q", got)
	}
}

func (p *Problems) node(flag, got string) {
	if !nodeForm.MatchString(got) {
		p.add(flag, "want 1 to 64 letters, digits, dots, _ or -, got %q", got)
	}
}

// listeners finds listeners that are in each other's way.
func (p *Problems) listeners(flag string, list []Listener) {
	if len(list) == 0 {
		p.add(flag, "want at least one")
	}
	for i, l := range list {
		for _, m := range list[:i] {
			if l.Addr == m.Addr && l.Addr.Port() != 0 {
				p.add(flag, "%v and %v are the same address", m, l)
			}
		}
	}
}

// DefaultNode returns the name of this node when nobody gave it one. Kubernetes gives a pod its name in
// POD_NAME when the chart asks for it.
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
