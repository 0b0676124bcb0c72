package auth

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Bounds of a key file.
const (
	KeyFileMax = 64 << 10 // bytes
	keysMax    = 8
)

// KeyID returns the name of a key: the first 8 bytes of its SHA-256, in hex.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// IsKeyID reports whether s has the form of a key's name.
func IsKeyID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 8
}

// Keys are the public keys that verify tokens.
type Keys struct {
	keys []namedKey
}

type namedKey struct {
	id  string
	key ed25519.PublicKey
}

// ParseKeys parses the public keys of a file: one or more PEM blocks PUBLIC KEY with
// Ed25519 keys. A header "Kid: name" names a key for issuers that do not use KeyID. A
// private key is an error, because an edge must not have one. Errors contain nothing of the
// file.
func ParseKeys(text []byte) (*Keys, error) {
	if len(text) > KeyFileMax {
		return nil, fmt.Errorf("has more than %d bytes", KeyFileMax)
	}
	k := &Keys{}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		key, err := parsePublic(block)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", len(k.keys)+1, err)
		}
		k.keys = append(k.keys, key)
	}
	switch {
	case len(bytes.TrimSpace(text)) > 0:
		return nil, errors.New("contains text outside of PEM blocks")
	case len(k.keys) == 0:
		return nil, errors.New("contains no key; `dnpctl token keygen` makes one")
	case len(k.keys) > keysMax:
		return nil, fmt.Errorf("contains %d keys, at most %d", len(k.keys), keysMax)
	}
	return k, nil
}

func parsePublic(block *pem.Block) (namedKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
	case "PRIVATE KEY":
		return namedKey{}, errors.New("is a private key; an edge needs only the public key")
	default:
		return namedKey{}, fmt.Errorf("want a PUBLIC KEY, got a %.40q", block.Type)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	key, ok := parsed.(ed25519.PublicKey)
	if err != nil || !ok {
		return namedKey{}, errors.New("is not an Ed25519 key")
	}
	return namedKey{cmp.Or(block.Headers["Kid"], KeyID(key)), key}, nil
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.keys) }

// candidates returns the keys that may have signed a token with this kid; nil stands for
// all. The header of a token may have a kid of any type.
func (k *Keys) candidates(kid any) (set jwt.VerificationKeySet) {
	for _, key := range k.keys {
		if kid == nil || kid == key.id {
			set.Keys = append(set.Keys, key.key)
		}
	}
	return set
}

// EncodePublic returns a public key in the form of a file.
func EncodePublic(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// EncodePrivate returns a private key in the form of a file.
func EncodePrivate(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// ParsePrivate parses what EncodePrivate made.
func ParsePrivate(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("contains no PRIVATE KEY")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("is not an Ed25519 key")
	}
	return key, nil
}
