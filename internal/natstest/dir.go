package natstest

import (
	"os"
	"testing"
	"time"
)

// Dir returns a new folder for the store of a nats-server, which is removed at the end of the
// test. Unlike testing.TB.TempDir it does not fail the test while the server, which may write
// its stream state for some time after WaitForShutdown, fills the folder again.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}
