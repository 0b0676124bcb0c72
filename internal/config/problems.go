package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
)

// Problems are what is wrong with a configuration, one line each, so that an operator can
// repair all of it at once.
type Problems []string

// Add adds a problem of a flag, unless the list has it already.
func (p *Problems) Add(flag, format string, args ...any) {
	p.addLine(flag + ": " + fmt.Sprintf(format, args...))
}

// AddIf adds a problem if there is one.
func (p *Problems) AddIf(bad bool, flag, format string, args ...any) {
	if bad {
		p.Add(flag, format, args...)
	}
}

// AddErr adds an error of a flag; nil is none.
func (p *Problems) AddErr(flag string, err error) { p.AddIf(err != nil, flag, "%v", err) }

func (p *Problems) addLine(line string) {
	if !slices.Contains(*p, line) {
		*p = append(*p, line)
	}
}

// want adds a problem if the value of a flag or an argument is not what its tag want says:
//
//	a,b,c     one of these
//	~a,b,c    one of these, in capitals or not
//	1..5      a number, a rate or a duration from the first to the last
//	0..       a number or a duration that is not negative
//	>0        a duration above 0
//	file      a file that can be read, or none
//	address   ADDRESS:PORT
//	bind      [ADDRESS]:PORT with an IP address of this machine, or none
//	token, key, subject or node, as forms has them
func (p *Problems) want(flag, want string, got any) {
	low, high, _ := strings.Cut(want, "..")
	if want == "0.." {
		p.AddIf(reflect.ValueOf(got).Int() < 0, flag, "want 0 or more, got %v", got)
		return
	}
	switch got := got.(type) {
	case string:
		p.wantText(flag, want, got)
	case int:
		l, h := must(strconv.Atoi(low)), must(strconv.Atoi(high))
		p.AddIf(got < l || got > h, flag, "want %d to %d, got %d", l, h, got)
	case float64:
		l, h := must(parseFloat(low)), must(parseFloat(high))
		p.AddIf(!(got >= l && got <= h), flag, "want %s to %s per second, got %v", low, high, got) // NaN is a problem, too
	case time.Duration:
		if want == ">0" && got <= 0 {
			p.Add(flag, "want more than 0, got %v", got)
		} else if want != ">0" && (got < must(time.ParseDuration(low)) || got > must(time.ParseDuration(high))) {
			p.Add(flag, "want %s to %s, got %v", low, high, got)
		}
	default:
		panic(fmt.Sprintf("config: %s has a tag want, which cannot check a %T", flag, got))
	}
}

// forms are the forms of names that become tokens of NATS subjects.
var forms = map[string]struct {
	valid func(string) bool
	text  string
}{
	"token":   {subject.ValidToken, "1 to 64 letters, digits, _ or -"},
	"key":     {subject.ValidKey, "up to 8 tokens joined by dots, at most 255 bytes"},
	"subject": {regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}$`).MatchString, "up to 8 tokens of letters, digits, _ or -, joined by dots"},
	"node":    {regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString, "1 to 64 letters, digits, dots, _ or -"},
}

func (p *Problems) wantText(flag, want, got string) {
	want, anyCase := strings.CutPrefix(want, "~")
	if anyCase {
		got = strings.ToLower(got)
	}
	form, named := forms[want]
	words := strings.Split(want, ",")
	switch last := len(words) - 1; {
	case want == "file":
		p.readable(flag, got)
	case want == "address":
		p.hostPort(flag, got)
	case want == "bind":
		if got != "" {
			p.bind(flag, got)
		}
	case named && !form.valid(got):
		p.Add(flag, "want %s, got %q", form.text, got)
	case !named && !slices.Contains(words, got):
		p.Add(flag, "want %s or %s, got %q", strings.Join(words[:last], ", "), words[last], got)
	}
}

// must returns a bound of a tag, which does not depend on the operator.
func must[T any](bound T, err error) T {
	if err != nil {
		panic(err)
	}
	return bound
}

func (p *Problems) hostPort(flag, got string) {
	_, _, err := splitPort(got)
	p.AddIf(err != nil, flag, "want ADDRESS:PORT, got %q", got)
}

// splitPort splits HOST:PORT. The host may be empty.
func splitPort(text string) (host string, port uint64, err error) {
	host, digits, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.ParseUint(digits, 10, 16)
	}
	return host, port, err
}

func (p *Problems) natsURLs(flag, got string) {
	for i, text := range strings.Split(got, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		p.AddIf(err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme),
			flag, "want nats://HOST:PORT (or tls, ws, wss), address %d is none", i+1) // without the text, which may have a password
	}
}

func (p *Problems) readable(flag, file string) {
	if file != "" {
		p.AddErr(flag, openable(file))
	}
}

// openable returns why a file cannot be opened. It reads nothing, because what a pipe has can be read once.
func openable(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return cmp.Or(err, fmt.Errorf("%s is a folder", file))
	}
	return nil
}

// Content adds what check finds in the file of a flag. A flag without a file has no problem, and a file that
// cannot be opened is another one.
func (p *Problems) Content(flag, file string, check func(file string) error) {
	if file != "" && openable(file) == nil {
		p.AddErr(flag, check(file))
	}
}

// DefaultNode returns the name of a node that was given none: POD_NAME, in which the chart
// passes the name of the pod, or else the host name.
func DefaultNode() string {
	host, _ := os.Hostname() // empty with an error
	return cmp.Or(os.Getenv("POD_NAME"), host, "node")
}

// listeners finds listeners with the same address.
func (p *Problems) listeners(flag string, list []Listener) {
	p.AddIf(len(list) == 0, flag, "want at least one")
	for i, l := range list {
		for _, m := range list[:i] {
			p.AddIf(l.Addr == m.Addr && l.Addr.Port() != 0, flag, "%v and %v are the same address", m, l)
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
	_, err := cluster.ParseBind(got, "[::]")
	p.AddErr(flag, err)
}

func (p *Problems) advertise(flag, got string) {
	if got != "" {
		_, err := cluster.ParseAdvertised(got, 0)
		p.AddErr(flag, err)
	}
}

// joinMax is how many nodes --gossip-join may name; these name the others.
const joinMax = 64

func (p *Problems) join(flag string, names []string) {
	p.AddIf(len(names) > joinMax, flag, "want at most %d, got %d", joinMax, len(names))
	for _, name := range names {
		_, _, err := cluster.ParseTarget(name, 1)
		p.AddErr(flag, err)
	}
}
