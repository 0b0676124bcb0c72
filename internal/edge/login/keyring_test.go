package login

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/internal/auth"
)

// testKey returns a key as it is in the file; c is its seed.
func testKey(t *testing.T, c string) string {
	t.Helper()
	text, err := auth.EncodePublic(ed25519.NewKeyFromSeed([]byte(strings.Repeat(c, 32))).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

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
	key := func(c string) string { return testKey(t, c) }
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

// TestWatch: an edge uses what was written into the file after 2 s, and stops to read it when it ends.
func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	synctest.Test(t, func(t *testing.T) {
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(testKey(t, "a"))
		a, err := New(Config{Auth: AuthToken, TokenKeys: file, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go a.Watch(ctx)
		pass := func(d time.Duration, why string, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := a.keys.keys.Load().Len(); got != want {
				t.Errorf("%s: the edge has %d keys, want %d", why, got, want)
			}
		}
		write(testKey(t, "a") + testKey(t, "b"))
		pass(2*time.Second, "2 s after a key was added", 2)
		stop()
		write(testKey(t, "b"))
		pass(time.Minute, "a minute after the edge has ended", 2)
	})
}
