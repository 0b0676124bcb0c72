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

// KickReasonMax is how long the reason of a kick may be, in bytes, so that it fits into an event. It is arbitrary.
const KickReasonMax = 200

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

// A limitRow is one field of Limits.
type limitRow struct {
	name         string
	field        *int
	preset, most int // default and greatest value
}

func (l *Limits) rows() []limitRow {
	return []limitRow{
		{"values per state", &l.Values, 1024, netstate.ValuesMax},
		{"bytes per value", &l.ValueBytes, 1024, valueMaxMax},
		{"bytes per link message", &l.Message, messageMaxMax, messageMaxMax},
		{"views per space", &l.Views, 65_000, viewsMaxMax},
		{"ops per publish", &l.Ops, 10_000, 1 << 20},
		{"waiting answers", &l.Waiting, 16_384, 1 << 20},
		{"groups per client", &l.Groups, 64, 200},
		{"sessions", &l.Sessions, 65_536, 1 << 20},
		{"states per client", &l.ClientStates, 64, 1 << 16},
	}
}

func (l Limits) withDefaults() Limits {
	for _, r := range l.rows() {
		*r.field = cmp.Or(*r.field, r.preset)
	}
	return l
}

// Validate returns one line for each limit that is out of range.
func (l Limits) Validate() (problems []string) {
	l = l.withDefaults()
	for _, r := range l.rows() {
		if *r.field < 1 || *r.field > r.most {
			problems = append(problems, fmt.Sprintf("%s is %d, want 1 to %d", r.name, *r.field, r.most))
		}
	}
	return problems
}

// NameMax is the most characters of the name of a value.
const NameMax = 64

// First tokens of keys that publishers cannot use.
const (
	groupsToken   = "_groups"   // records with the groups of a client
	interestToken = "_interest" // records with an interest
	eyesToken     = "_eyes"     // records with the eyes of a client, or of all
	clientToken   = "client"    // states that clients made
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

// reserved reports whether a key is that of a record.
func reserved(key string) bool {
	first := firstToken(key)
	return first == groupsToken || first == interestToken || first == eyesToken
}

func groupsKey(client string) string { return groupsToken + "." + client }
func eyesKey(client string) string   { return eyesToken + "." + client }
func interestKey(name string) string { return interestToken + "." + name }

// recordClient returns the client in the key of a record that a client has.
func recordClient(key string) (client string, ok bool) {
	if client, ok = strings.CutPrefix(key, groupsToken+"."); ok {
		return client, true
	}
	return strings.CutPrefix(key, eyesToken+".")
}
