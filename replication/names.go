package replication

import "strings"

// Bounds of names. They come from the subjects that carry them.
const (
	TokenMax     = 64 // characters of a space, client, session, group or key token
	KeyTokensMax = 8  // tokens of a key
	NameMax      = 64 // characters of a value's name
)

// First tokens of keys that are not the publishers' own.
const (
	groupsToken = "_groups" // the groups of a client, kept as a hidden state
	clientToken = "client"  // states that clients made
)

// ValidToken reports whether s matches [A-Za-z0-9_-]{1,64}: a space, a client,
// a group, or one token of a key.
func ValidToken(s string) bool {
	if s == "" || len(s) > TokenMax {
		return false
	}
	for i := range len(s) {
		if !tokenByte(s[i]) {
			return false
		}
	}
	return true
}

// ValidKey reports whether s is 1 to 8 tokens joined by dots.
func ValidKey(s string) bool {
	for n := 1; n <= KeyTokensMax; n++ {
		token, rest, more := strings.Cut(s, ".")
		if !ValidToken(token) {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
	return false
}

// ValidName reports whether s matches [A-Za-z_][A-Za-z0-9_]{0,63}, so that a
// name is never mistaken for an index.
func ValidName(s string) bool {
	if !ValidToken(s) || len(s) > NameMax || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return strings.IndexByte(s, '-') < 0
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
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
