package replication

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/subject"
)

// Bounds that no configuration can exceed, because formats depend on them.
const (
	valueMaxMax    = 16_000  // bytes of a string or data value
	messageMaxMax  = 16_000  // bytes of a link message or farewell
	linkStateMax   = 60_000  // bytes of the LinkState that offers a state
	describeMax    = 160_000 // bytes of a Describe, so that a whole state fits into one batch
	viewsMaxMax    = 65_534  // RefIds 1 to 0xFFFE
	namesMax       = 1_024   // groups and clients in one audience, and writers
	linkStateBytes = 10      // of a LinkState before its message and values
)

// Limits bound what publishers and clients can make a Store hold. A zero field stands for its
// default.
type Limits struct {
	Values       int // values per state; 1,024, at most 8,192
	ValueBytes   int // of a string or data value; 1,024, at most 16,000
	Message      int // bytes of a link message and of a farewell; 16,000
	Views        int // per space; 65,000
	Ops          int // per publish; 10,000
	Waiting      int // outputs that wait for a batch; a publish or write beyond it is answered busy; 16,384
	Groups       int // per client; 64
	Sessions     int // in the space; 65,536
	ClientStates int // states that one client made; 64
}

func (l Limits) withDefaults() Limits {
	l.Values = cmp.Or(l.Values, 1024)
	l.ValueBytes = cmp.Or(l.ValueBytes, 1024)
	l.Message = cmp.Or(l.Message, messageMaxMax)
	l.Views = cmp.Or(l.Views, 65_000)
	l.Ops = cmp.Or(l.Ops, 10_000)
	l.Waiting = cmp.Or(l.Waiting, 16_384)
	l.Groups = cmp.Or(l.Groups, 64)
	l.Sessions = cmp.Or(l.Sessions, 65_536)
	l.ClientStates = cmp.Or(l.ClientStates, 64)
	return l
}

// Validate returns one line for each limit that is out of range.
func (l Limits) Validate() []string {
	l = l.withDefaults()
	var problems []string
	check := func(name string, value, most int) {
		if value < 1 || value > most {
			problems = append(problems, fmt.Sprintf("%s is %d, want 1 to %d", name, value, most))
		}
	}
	check("values per state", l.Values, netstate.ValuesMax)
	check("bytes per value", l.ValueBytes, valueMaxMax)
	check("bytes per link message", l.Message, messageMaxMax)
	check("views per space", l.Views, viewsMaxMax)
	check("ops per publish", l.Ops, 1<<20)
	check("waiting answers", l.Waiting, 1<<20)
	check("groups per client", l.Groups, 200)
	check("sessions", l.Sessions, 1<<20)
	check("states per client", l.ClientStates, 1<<16)
	return problems
}

// NameMax is the most characters of the name of a value.
const NameMax = 64

// First tokens of keys that publishers cannot use.
const (
	groupsToken = "_groups" // states that hold the groups of a client and are hidden from clients
	clientToken = "client"  // states that clients made
)

// ValidName reports whether s matches [A-Za-z_][A-Za-z0-9_]{0,63}. A name therefore never looks
// like an index.
func ValidName(s string) bool {
	if !subject.ValidToken(s) || len(s) > NameMax || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return strings.IndexByte(s, '-') < 0
}

func firstToken(key string) string {
	token, _, _ := strings.Cut(key, ".")
	return token
}

func groupsKey(client string) string { return groupsToken + "." + client }

// groupsClient returns the client in the key of a state that holds groups.
func groupsClient(key string) (client string, ok bool) {
	return strings.CutPrefix(key, groupsToken+".")
}
