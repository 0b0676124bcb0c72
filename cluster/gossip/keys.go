package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// keys follow the key file and keep memberlist's keyring equal to it.
//
// It has a mutex, because two goroutines come here: the one that polls the file,
// and the one that joins, which tries the second key when the first is refused.
type keys struct {
	file    string
	log     *slog.Logger
	keyring *memberlist.Keyring // nil without a file

	mu       sync.Mutex
	rotation *rotation
	problem  string // of the file, told once
}

// openKeys reads the keys of a file; none without a file.
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
	if k.keyring, err = memberlist.NewKeyring(nil, list[0]); err != nil {
		return nil, err
	}
	return k, install(k.keyring, list)
}

// follow polls the file until ctx ends.
func (k *keys) follow(ctx context.Context, interval time.Duration) {
	if k.file == "" {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			k.poll(now)
		}
	}
}

// poll reads the file. Files that are not in order change nothing: it may be in
// the middle of being written.
func (k *keys) poll(now time.Time) {
	list, err := readKeys(k.file)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if k.problem != err.Error() {
			k.problem = err.Error()
			k.log.Warn("gossip keeps the keys it has", "error", err)
		}
	} else {
		k.problem = ""
		if k.rotation.read(now, list) {
			k.log.Info("gossip keys changed", "first", list[0].id(), "keys", len(list), "in-use-after", k.rotation.delay)
		}
	}
	k.advance(now)
}

func (k *keys) advance(now time.Time) {
	switched, dropped := k.rotation.advance(now)
	k.install()
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
	k.install()
	return true
}

// Keys returns the keys of the cluster, the one to send with first; none without a key
// file. They change while Run follows the file, so who uses them asks again.
func (g *Gossip) Keys() [][]byte {
	if g.keys.file == "" {
		return nil
	}
	g.keys.mu.Lock()
	defer g.keys.mu.Unlock()
	list := make([][]byte, 0, len(g.keys.rotation.ring))
	for _, k := range g.keys.rotation.ring {
		list = append(list, bytes.Clone(k))
	}
	return list
}

func (k *keys) install() {
	if err := install(k.keyring, k.rotation.ring); err != nil {
		panic("gossip: keys that were checked do not fit: " + err.Error())
	}
}
