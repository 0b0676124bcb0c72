package replication

import (
	"strings"

	"github.com/dnprelay/dnprelay/subject"
)

// NameMax is how many characters the name of a value may have.
const NameMax = 64

// First tokens of keys that are not the publishers' own.
const (
	groupsToken = "_groups" // the groups of a client, kept as a hidden state
	clientToken = "client"  // states that clients made
)

// ValidName reports whether s matches [A-Za-z_][A-Za-z0-9_]{0,63}, so that a
// name is never mistaken for an index.
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

// groupsClient returns the client whose groups the state with this key holds.
func groupsClient(key string) (client string, ok bool) {
	return strings.CutPrefix(key, groupsToken+".")
}
