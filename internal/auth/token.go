package auth

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"errors"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/golang-jwt/jwt/v5"
)

// Bounds of what a token may say.
const (
	LifeMax   = 24 * time.Hour // from now to exp
	GroupsMax = 32
	idMax     = 128 // bytes of jti

	notBeforeLeeway = 5 * time.Second // clocks of issuers may be ahead
)

// Claims are who a client is and what it may.
type Claims struct {
	Client  string
	Space   string
	Groups  []string
	Write   bool      // it may write states and make some
	Expires time.Time // when its session ends
	ID      string    // of the token; empty if it was no token
}

// A Reason says why a client is not let in. None is the zero value.
type Reason uint8

const (
	None       Reason = iota
	NoToken           // the message is no login
	BadToken          // not a JWT, or not as this package wants one
	BadKey            // signed with EdDSA, but by no key that is known, or not at all
	NotYet            // nbf is in the future
	Expired           // exp is over
	TooLong           // exp is more than LifeMax away
	BadClaims         // a name, space or group that cannot be
	Replayed          // the token was used before, from another address
	Refused           // the game's service said so
	NoService         // the game's service did not answer in time
	Busy              // too many logins are being looked into
	NumReasons = int(iota)
)

var reasonNames = [NumReasons]string{
	None: "none", NoToken: "no_token", BadToken: "bad_token", BadKey: "bad_key", NotYet: "not_yet", Expired: "expired",
	TooLong: "too_long", BadClaims: "bad_claims", Replayed: "replayed", Refused: "refused", NoService: "no_service", Busy: "busy",
}

// String returns the name of r as metrics show it.
func (r Reason) String() string { return reasonNames[r] }

// tokenClaims is the JSON of a token.
type tokenClaims struct {
	Subject   string           `json:"sub"`
	ID        string           `json:"jti"`
	Expires   *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf,omitempty"`
	DNP       *tokenRights     `json:"dnp"`
}

type tokenRights struct {
	Space  string   `json:"space"`
	Groups []string `json:"groups,omitempty"`
	Write  *bool    `json:"write,omitempty"` // true if absent
}

// The rules about times and names are in check, where each has its Reason.
func (tokenClaims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (tokenClaims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (tokenClaims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (tokenClaims) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }
func (tokenClaims) GetIssuer() (string, error)                   { return "", nil }
func (c tokenClaims) GetSubject() (string, error)                { return c.Subject, nil }

// parser takes one algorithm and no base64 but the strict one.
var parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding())

// Verify returns what a token says, if one of the keys signed it and it is good now.
func (k *Keys) Verify(now time.Time, token []byte) (Claims, Reason) {
	if len(token) > TokenMax || bytes.Count(token, []byte(".")) != 2 {
		return Claims{}, BadToken
	}
	if bytes.ContainsAny(token, "\r\n") { // the base64 of the standard library skips them, strict or not
		return Claims{}, BadToken
	}
	var c tokenClaims
	_, err := parser.ParseWithClaims(string(token), &c, func(t *jwt.Token) (any, error) {
		set := jwt.VerificationKeySet{}
		for _, key := range k.candidates(t.Header["kid"]) {
			set.Keys = append(set.Keys, key)
		}
		return set, nil
	})
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return Claims{}, BadToken
	case err != nil:
		return Claims{}, BadKey
	}
	return c.check(now)
}

// check applies the rules to claims whose signature is good.
func (c *tokenClaims) check(now time.Time) (Claims, Reason) {
	switch {
	case c.DNP == nil, c.Expires == nil, c.ID == "", len(c.ID) > idMax:
		return Claims{}, BadToken
	case c.NotBefore != nil && c.NotBefore.After(now.Add(notBeforeLeeway)):
		return Claims{}, NotYet
	}
	out := Claims{
		Client: c.Subject, Space: c.DNP.Space, Groups: c.DNP.Groups, Write: c.DNP.Write == nil || *c.DNP.Write,
		Expires: c.Expires.Time, ID: c.ID,
	}
	return out, out.Check(now)
}

// Check says what is wrong with claims, whoever made them. A zero Expires means
// LifeMax; it is for the caller to set it.
func (c *Claims) Check(now time.Time) Reason {
	switch {
	case !c.Expires.After(now):
		return Expired
	case c.Expires.After(now.Add(LifeMax)):
		return TooLong
	case !subject.ValidToken(c.Client), !subject.ValidToken(c.Space), strings.HasPrefix(c.Space, "_"), len(c.Groups) > GroupsMax:
		return BadClaims
	}
	for _, g := range c.Groups {
		if !subject.ValidToken(g) {
			return BadClaims
		}
	}
	return None
}

// Issue returns a token with these claims, good from notBefore on if that is not zero.
func Issue(key crypto.Signer, c Claims, notBefore time.Time) (string, error) {
	claims := tokenClaims{
		Subject: c.Client, ID: c.ID, Expires: jwt.NewNumericDate(c.Expires),
		DNP: &tokenRights{Space: c.Space, Groups: c.Groups, Write: &c.Write},
	}
	if !notBefore.IsZero() {
		claims.NotBefore = jwt.NewNumericDate(notBefore)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("auth: not an Ed25519 key")
	}
	t.Header["kid"] = KeyID(public)
	return t.SignedString(key)
}
