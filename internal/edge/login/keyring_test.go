package login

import (
	"crypto/ed25519"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/auth"
)

// TestKeyring changes the file while an edge runs.
func TestKeyring(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	var log strings.Builder
	k := &keyring{file: file, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := k.load(); err == nil {
		t.Fatal("an edge starts without its keys")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func(c string) string {
		text, err := auth.EncodePublic(ed25519.NewKeyFromSeed([]byte(strings.Repeat(c, 32))).Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := func(why string, keys, lines int) {
		t.Helper()
		k.check()
		k.check()
		if got := k.keys.Load().Len(); got != keys || strings.Count(log.String(), "\n") != lines {
			t.Fatalf("%s: %d keys, want %d; %d log lines wanted:\n%s", why, got, keys, lines, log.String())
		}
	}
	write(key("a"))
	if err := k.load(); err != nil {
		t.Fatal(err)
	}
	want("nothing changed", 1, 0)
	write(key("a") + key("b"))
	want("a key was added", 2, 1)
	write("half of a")
	want("a file that is being written changes nothing, and that is logged once", 2, 2)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want("a file that does not exist changes nothing", 2, 3)
	write(key("b"))
	want("the old key is removed", 1, 4)
	if strings.Contains(log.String(), "half") {
		t.Errorf("the log shows the content of the file:\n%s", log.String())
	}
}
