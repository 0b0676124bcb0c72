package login

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
)

// keysInterval is how often the file of token keys is read. The system does not reliably
// report that a secret store replaced a file.
const keysInterval = 2 * time.Second

// A keyring has the token keys that are valid, as the file says. A file that cannot be
// read or parsed changes nothing: the keys from before stay valid.
type keyring struct {
	file string
	log  *slog.Logger

	keys atomic.Pointer[auth.Keys] // read by workers, written by the goroutine in watch
	text []byte                    // that was read last
	bad  string                    // the latest error, to log it once
}

// load reads the file for the first time.
func (k *keyring) load() error {
	text, keys, err := readKeys(k.file)
	if err != nil {
		return fmt.Errorf("token keys: %w", err)
	}
	k.text = text
	k.keys.Store(keys)
	return nil
}

// CheckKeyFile returns why a file has no keys that verify tokens. Its error contains nothing of the file.
func CheckKeyFile(file string) error {
	_, _, err := readKeys(file)
	return err
}

func readKeys(file string) (text []byte, keys *auth.Keys, err error) {
	if text, err = readKeyFile(file); err != nil {
		return nil, nil, err
	}
	if keys, err = auth.ParseKeys(text); err != nil {
		return nil, nil, fmt.Errorf("file %s %w", file, err)
	}
	return text, keys, nil
}

// check replaces the keys if the file has changed. Sessions that began with a key that the
// file no longer has go on until their tokens expire.
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
		k.log.Warn("keeping the token keys from before: the file is not usable", "file", k.file, "error", err)
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
