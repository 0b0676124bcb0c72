package auth

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/golang-jwt/jwt/v5"
)

// Bounds of the claims of a token.
const (
	LifeMax   = 24 * time.Hour // from now to exp
	GroupsMax = 32
	IDMax     = 128 // bytes of jti

	notBeforeLeeway = 5 * time.Second // the clock of the issuer may be ahead
)

// Claims are the identity and the rights of a client.
type Claims struct {
	Client  string
	Space   string
	Groups  []string
	Write   bool      // may write and make states
	Expires time.Time // when its session ends
	ID      string    // of the token; empty without a token
}

// A Reason says why an edge refuses a client. None is the zero value.
type Reason uint8

const (
	None       Reason = iota
	NoToken           // the message is not a login
	BadToken          // not a JWT, or not one of the form that the package requires
	BadKey            // not signed, or not by a known key
	NotYet            // nbf is in the future
	Expired           // exp is in the past
	TooLong           // exp is more than LifeMax away
	BadClaims         // an invalid name, space or group
	Replayed          // the token was used before, from another address
	Refused           // the game's service refused the client
	NoService         // the game's service did not answer in time
	Busy              // too many logins are in progress
	NumReasons = int(iota)
)

var reasonNames = [NumReasons]string{
	None: "none", NoToken: "no_token", BadToken: "bad_token", BadKey: "bad_key", NotYet: "not_yet", Expired: "expired",
	TooLong: "too_long", BadClaims: "bad_claims", Replayed: "replayed", Refused: "refused", NoService: "no_service", Busy: "busy",
}

// String returns the name of r as metrics show it.
func (r Reason) String() string { return reasonNames[r] }

// tokenClaims is the JSON of a token. The rules about times and names are in check, where
// each has its Reason.
type tokenClaims struct {
	jwt.Claims `json:"-"` // nil, because the parser validates nothing

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

// parser accepts one algorithm and strict base64 only.
var parser = jwt.NewParser(
	jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())

// Verify returns the claims of a token, if one of the keys signed it and it is valid now.
func (k *Keys) Verify(now time.Time, token []byte) (Claims, Reason) {
	if len(token) > TokenMax || bytes.Count(token, []byte(".")) != 2 || bytes.ContainsAny(token, "\r\n") { // encoding/base64 skips line ends, strict or not
		return Claims{}, BadToken
	}
	var c tokenClaims
	_, err := parser.ParseWithClaims(string(token), &c, func(t *jwt.Token) (any, error) { return k.candidates(t.Header["kid"]), nil })
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return Claims{}, BadToken
	case err != nil:
		return Claims{}, BadKey
	}
	return c.check(now)
}

// check applies the rules to claims whose signature is valid.
func (c *tokenClaims) check(now time.Time) (Claims, Reason) {
	switch {
	case c.DNP == nil, c.Expires == nil, c.ID == "", len(c.ID) > IDMax:
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

// Check returns what is wrong with claims of any origin. The caller sets Expires.
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

// Issue returns a token with these claims. It is valid from notBefore on if that is not
// zero.
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

// messageMagic begins a login message that is framed.
const messageMagic = "DNPA\x01"

// TokenMax is the largest token in bytes. With its frame it fits a message that every
// library sends as one command 4. To accept a login in parts, an edge would have to store
// parts of unknown clients.
const TokenMax = 1350

// Token returns the token in a login message, which it aliases. The message is the token
// after
//
//	magic  "DNPA"
//	version uint8 = 1
//	size    uint16, little endian
//
// or the token alone, if it begins as every JWT does. It reports false for anything else.
func Token(message []byte) (token []byte, ok bool) {
	if len(message) > len(messageMagic)+2 && string(message[:len(messageMagic)]) == messageMagic {
		size := int(binary.LittleEndian.Uint16(message[len(messageMagic):]))
		token = message[len(messageMagic)+2:]
		return token, len(token) == size && size <= TokenMax
	}
	return message, len(message) <= TokenMax && len(message) > 2 && string(message[:2]) == "ey"
}

// AppendMessage appends the login message with a token of at most TokenMax bytes.
func AppendMessage(b []byte, token string) []byte {
	b = append(b, messageMagic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(token)))
	return append(b, token...)
}
