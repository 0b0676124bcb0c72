package auth

import (
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A Look is what a token says about itself. It proves nothing, because its signature was not
// verified: tools show it to the person who has the token.
type Look struct {
	Claims
	NotBefore time.Time // zero if it is valid at once
	Key       string    // id of the key that signed it; empty if it does not say
	Reason    Reason    // why every edge refuses the token now, whatever its keys are; None if an edge may take it
}

// LookAt returns what a token says about itself.
func LookAt(now time.Time, token string) (l Look) {
	var c tokenClaims
	t, _, err := parser.ParseUnverified(token, &c)
	if err != nil || len(token) > TokenMax {
		l.Reason = BadToken
		return l
	}
	l.Key, _ = t.Header["kid"].(string)
	if c.NotBefore != nil {
		l.NotBefore = c.NotBefore.Time
	}
	if l.Claims, l.Reason = c.check(now); l.Reason == None && t.Method.Alg() != jwt.SigningMethodEdDSA.Alg() {
		l.Reason = BadKey
	}
	return l
}
