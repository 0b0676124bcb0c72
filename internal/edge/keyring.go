package edge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
)

// keysInterval is how often the file of token keys is looked at. A file that a secret
// store replaces has no event that could be relied on.
const keysInterval = 2 * time.Second

// A keyring is the token keys that are good, as the file has them. A file that cannot
// be read or parsed changes nothing: the keys from before stay good.
type keyring struct {
	file string
	log  *slog.Logger

	keys atomic.Pointer[auth.Keys] // read by workers, written by the goroutine in watch
	text []byte                    // that was looked at last
	bad  string                    // what was wrong with it, to say it once
}

// load reads the file for the first time.
func (k *keyring) load() error {
	text, err := readKeyFile(k.file)
	if err != nil {
		return fmt.Errorf("token keys: %w", err)
	}
	keys, err := auth.ParseKeys(text)
	if err != nil {
		return fmt.Errorf("token keys: file %s %w", k.file, err)
	}
	k.text = text
	k.keys.Store(keys)
	return nil
}

// watch looks at the file again and again until ctx ends.
func (k *keyring) watch(ctx context.Context) {
	tick := time.NewTicker(keysInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.check()
		}
	}
}

// check takes the file's keys if it has changed. Sessions that began with a key that
// is gone go on until their tokens expire.
func (k *keyring) check() {
	text, err := readKeyFile(k.file)
	if err == nil && bytes.Equal(text, k.text) {
		return
	}
	var keys *auth.Keys
	if err == nil {
		keys, err = auth.ParseKeys(text)
	}
	switch {
	case err == nil:
		k.text, k.bad = text, ""
		k.keys.Store(keys)
		k.log.Info("token keys changed", "file", k.file, "keys", keys.Len())
	case err.Error() != k.bad:
		k.bad = err.Error()
		k.log.Warn("token keys stay as they were", "file", k.file, "error", err)
	}
}

func readKeyFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, auth.KeyFileMax+1))
}
