package subject

import "strings"

// Bounds of names, which are tokens of subjects.
const (
	TokenMax     = 64 // characters of a space, client, session, group or key token
	KeyTokensMax = 8  // tokens of a key
)

// ValidToken reports whether s matches [A-Za-z0-9_-]{1,64}: a space, a client, a group, or one
// token of a key.
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

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// Valid reports whether s is a subject of NATS: tokens joined by dots, without white space. With
// wildcards a token may be *, and the last one >.
func Valid(s string, wildcards bool) bool {
	for more := true; more; {
		var token string
		token, s, more = strings.Cut(s, ".")
		wild := token == "*" || token == ">"
		if token == "" || strings.ContainsAny(token, " \t\r\n") || wild && !wildcards || token == ">" && more {
			return false
		}
	}
	return true
}
