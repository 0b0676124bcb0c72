package forward

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
)

// KeysMax bounds the keys of a ring: those of a key file, twice, while it changes.
const KeysMax = 16

// Labels of what is derived from a key (RFC 5869, info). Another version of the
// datagram has to have others.
const (
	labelName = "dnp-fwd 1 name"
	labelPair = "dnp-fwd 1 pair"
)

// ErrKeys says that a ring has too many keys or one that is too short.
var ErrKeys = errors.New("forward: want at most 16 keys of at least 16 bytes")

// A ringKey is a key of gossip as it is used here: only what is derived from it
// meets data.
type ringKey struct {
	secret []byte // of gossip
	name   uint16 // two keys may have the same
}

func newRing(secrets [][]byte) (ring []ringKey, err error) {
	if len(secrets) > KeysMax {
		return nil, ErrKeys
	}
	for _, s := range secrets {
		if len(s) < 16 {
			return nil, ErrKeys
		}
		name := derive(s, labelName, 2)
		ring = append(ring, ringKey{slices.Clone(s), binary.LittleEndian.Uint16(name)})
	}
	return ring, nil
}

// pair returns the cipher for datagrams from one process to another. It has a key of
// its own for each pair and direction, so that a datagram cannot be opened by another
// receiver, by its sender, or by the next process of the same node.
func (k ringKey) pair(from, to uint64) cipher.AEAD {
	info := binary.LittleEndian.AppendUint64([]byte(labelPair), from)
	info = binary.LittleEndian.AppendUint64(info, to)
	block, err := aes.NewCipher(derive(k.secret, string(info), 32))
	if err != nil {
		panic("forward: AES refuses a key of 32 bytes: " + err.Error())
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("forward: GCM refuses AES: " + err.Error())
	}
	return gcm
}

func derive(secret []byte, info string, size int) []byte {
	out, err := hkdf.Key(sha256.New, secret, nil, info, size)
	if err != nil {
		panic("forward: HKDF refuses " + err.Error()) // too much asked for, or a secret too short in FIPS mode
	}
	return out
}

func sameSecrets(ring []ringKey, secrets [][]byte) bool {
	return slices.EqualFunc(ring, secrets, func(k ringKey, s []byte) bool { return bytes.Equal(k.secret, s) })
}
