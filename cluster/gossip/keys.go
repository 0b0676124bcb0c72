package gossip

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/hashicorp/memberlist"
)

// keys follow the key file and keep memberlist's keyring equal to it.
//
// They have a mutex, because two goroutines use them: the one that polls the file, and the one that
// joins, which tries the second key if the first is refused.
type keys struct {
	file    string
	log     *slog.Logger
	keyring *memberlist.Keyring // nil without a file

	mu       sync.Mutex
	rotation *rotation
	problem  string // of the file, logged once
}

// openKeys reads the keys of a file; without a file there are none.
func openKeys(file string, delay time.Duration, log *slog.Logger) (*keys, error) {
	k := &keys{file: file, log: log}
	if file == "" {
		return k, nil
	}
	list, err := readKeys(file)
	if err != nil {
		return nil, err
	}
	k.rotation = newRotation(list, delay)
	if k.keyring, err = memberlist.NewKeyring(nil, []byte(list[0])); err != nil {
		return nil, err
	}
	install(k.keyring, list)
	return k, nil
}

// follow polls the file until ctx ends.
func (k *keys) follow(ctx context.Context, interval time.Duration) {
	for k.file != "" && turn.Pause(ctx, interval) {
		k.poll(time.Now())
	}
}

// poll reads the file. An invalid file changes nothing: it may be incomplete.
func (k *keys) poll(now time.Time) {
	list, err := readKeys(k.file)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if k.problem != err.Error() {
			k.problem = err.Error()
			k.log.Warn("gossip keeps its keys: the key file is not valid", "error", err)
		}
	} else {
		k.problem = ""
		if k.rotation.read(now, list) {
			k.log.Info("gossip keys changed", "first", list[0].id(), "keys", len(list), "in-use-after", k.rotation.delay)
		}
	}
	switched, dropped := k.rotation.advance(now)
	install(k.keyring, k.rotation.ring)
	if switched {
		k.log.Info("gossip is sent with another key", "key", k.rotation.ring[0].id())
	}
	if dropped {
		k.log.Info("gossip forgot old keys", "keys", len(k.rotation.ring))
	}
}

// tryNext sends with the next key of the file, or reports false.
func (k *keys) tryNext() bool {
	if k.file == "" {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.rotation.useNext(time.Now()) {
		return false
	}
	k.log.Info("gossip tries another key of the file", "key", k.rotation.ring[0].id())
	install(k.keyring, k.rotation.ring)
	return true
}

// Keys returns the keys of the cluster, the one to send with first; none without a key file. They change
// while Run follows the file, so a caller should not keep them.
func (g *Gossip) Keys() [][]byte {
	if g.keys.file == "" {
		return nil
	}
	g.keys.mu.Lock()
	defer g.keys.mu.Unlock()
	list := make([][]byte, 0, len(g.keys.rotation.ring))
	for _, k := range g.keys.rotation.ring {
		list = append(list, []byte(k))
	}
	return list
}

// A rotation decides which keys a node knows and sends with while the key file changes. Nodes see a new
// file at different times, at most delay after the first. So a node knows new keys at once, sends with
// the first of them delay later, when all nodes know it, and forgets the old keys another delay later,
// when no node sends with them.
type rotation struct {
	delay  time.Duration
	wanted []key     // of the file
	ring   []key     // known; the first is the one to send with
	useAt  time.Time // when to send with wanted[0], unless the node does so already
	dropAt time.Time // when to forget the keys that are not in wanted; zero = nothing to forget
}

// newRotation starts with the keys of the file.
func newRotation(keys []key, delay time.Duration) *rotation {
	return &rotation{delay: delay, wanted: keys, ring: slices.Clone(keys)}
}

// read takes the keys of the file and reports whether they have changed.
func (r *rotation) read(now time.Time, keys []key) (changed bool) {
	if slices.Equal(keys, r.wanted) {
		return false
	}
	r.wanted = keys
	for _, k := range keys {
		if !slices.Contains(r.ring, k) {
			r.ring = append(r.ring, k)
		}
	}
	r.useAt, r.dropAt = now.Add(r.delay), now.Add(2*r.delay)
	if r.ring[0] == keys[0] {
		r.dropAt = r.useAt
	}
	return true
}

// advance does what is due, and reports whether it switched the key to send with or dropped old keys.
func (r *rotation) advance(now time.Time) (switched, dropped bool) {
	if r.ring[0] != r.wanted[0] && !now.Before(r.useAt) {
		r.use(r.wanted[0])
		switched = true
	}
	if !r.dropAt.IsZero() && !now.Before(r.dropAt) {
		r.ring, r.dropAt = slices.Clone(r.wanted), time.Time{}
		dropped = true
	}
	return switched, dropped
}

// useNext switches to the next key of the file: a node that starts in the middle of a rotation finds out
// so which key the others know. It reports false if there is none.
func (r *rotation) useNext(now time.Time) bool {
	i := slices.Index(r.wanted, r.ring[0])
	if i < 0 || i+1 == len(r.wanted) {
		return false
	}
	r.use(r.wanted[i+1])
	r.useAt = now.Add(r.delay)
	return true
}

func (r *rotation) use(k key) {
	others := slices.DeleteFunc(slices.Clone(r.ring), func(o key) bool { return o == k })
	r.ring = append([]key{k}, others...)
}

// install makes a keyring of memberlist equal to ring, while it is in use. It removes keys from the end
// only: Keyring.RemoveKey (keyring.go:132) shifts the keys behind in place, while other goroutines
// decrypt with them.
func install(keyring *memberlist.Keyring, ring []key) {
	check := func(err error) {
		if err != nil {
			panic("gossip: keys that were checked do not fit: " + err.Error())
		}
	}
	add := func() {
		for _, k := range ring {
			check(keyring.AddKey([]byte(k)))
		}
	}
	unknown := func(k []byte) bool { return !slices.Contains(ring, key(k)) }
	add()
	check(keyring.UseKey([]byte(ring[0])))
	for keys := keyring.GetKeys(); slices.ContainsFunc(keys, unknown); keys = keyring.GetKeys() {
		check(keyring.RemoveKey(keys[len(keys)-1]))
	}
	add()
}

// Bounds of a key file.
const (
	keysMax    = 8
	keyFileMax = 64 << 10 // bytes
)

// A key is 16, 24 or 32 bytes for AES-128, -192 or -256.
type key string

// id identifies a key in logs without giving it away.
func (k key) id() string {
	sum := sha256.Sum256([]byte("dnprelay gossip key id:" + k))
	return hex.EncodeToString(sum[:4])
}

// CheckKeyFile returns why a file has no keys for gossip. Its error contains nothing of the file.
func CheckKeyFile(file string) error {
	_, err := readKeys(file)
	return err
}

// readKeys returns the keys of a file; the first is the one to send with. Its errors never contain
// anything of the file.
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

// openError says why a key file cannot be opened, and what to do about its permissions.
func openError(file string, user int, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("gossip: key file %s: user %d has no permission to read it; make that user its owner, or one of its group and the file readable for the group", file, user)
	}
	return fmt.Errorf("gossip: key file: %w", err)
}

// parseKeys parses one key a line. It skips empty lines and those that start with #.
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
		if !slices.Contains(keys, k) {
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

// parseKey parses hex or base64. A line that could be both, of 32 hex digits, is hex.
func parseKey(line string) (key, error) {
	if k, err := hex.DecodeString(line); err == nil && memberlist.ValidateKey(k) == nil {
		return key(k), nil
	}
	line = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(line), "=")
	k, err := base64.RawStdEncoding.DecodeString(line)
	if err != nil {
		return "", errors.New("want a key in hex or base64")
	}
	if memberlist.ValidateKey(k) != nil {
		return "", fmt.Errorf("has a key of %d bytes, want 16, 24 or 32", len(k))
	}
	return key(k), nil
}
