package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Bounds of a key file.
const (
	keysMax    = 8
	keyFileMax = 64 << 10 // bytes
)

// A key is 16, 24 or 32 bytes for AES-128, -192 or -256.
type key []byte

// id names a key in logs without giving it away.
func (k key) id() string {
	sum := sha256.Sum256(append([]byte("dnprelay gossip key id:"), k...))
	return hex.EncodeToString(sum[:4])
}

// readKeys returns the keys of a file; the first is the one to send with. Its
// errors never hold anything of the file.
func readKeys(file string) ([]key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, openError(file, os.Getuid(), err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, keyFileMax+1))
	if err != nil {
		return nil, fmt.Errorf("gossip: key file: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("gossip: key file %s: %w", file, err)
	}
	return keys, nil
}

// openError says why a key file cannot be opened, and what to do when it is there.
func openError(file string, user int, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("gossip: key file %s: user %d has no permission to read it; make that user its owner, or one of its group and the file readable for the group", file, user)
	}
	return fmt.Errorf("gossip: key file: %w", err)
}

// parseKeys parses one key a line. Empty lines and those that start with # are
// left out.
func parseKeys(text []byte) (keys []key, err error) {
	if len(text) > keyFileMax {
		return nil, fmt.Errorf("has more than %d bytes", keyFileMax)
	}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		k, err := parseKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if !slices.ContainsFunc(keys, func(o key) bool { return bytes.Equal(o, k) }) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("holds no key; `head -c 32 /dev/urandom | base64` makes one")
	}
	if len(keys) > keysMax {
		return nil, fmt.Errorf("holds %d keys, at most %d", len(keys), keysMax)
	}
	return keys, nil
}

// parseKey parses hex or base64. What could be both, 32 hex digits, is hex.
func parseKey(line string) (key, error) {
	if k, err := hex.DecodeString(line); err == nil && keyLength(len(k)) {
		return k, nil
	}
	line = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(line), "=")
	k, err := base64.RawStdEncoding.DecodeString(line)
	if err != nil {
		return nil, errors.New("want a key in hex or base64")
	}
	if !keyLength(len(k)) {
		return nil, fmt.Errorf("has a key of %d bytes, want 16, 24 or 32", len(k))
	}
	return k, nil
}

func keyLength(n int) bool { return n == 16 || n == 24 || n == 32 }
