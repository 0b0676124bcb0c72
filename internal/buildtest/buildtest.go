// Package buildtest gives tests the programs of this project.
package buildtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// folderVariable names the folder with the programs. `make test` builds them once for all packages.
const folderVariable = "DNP_TEST_PROGRAMS"

// Program returns the absolute path of relay, edge or dnpctl. Without `make test` the first call builds all three, for all tests of
// a package, and Remove deletes them.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// Made returns the folder with the programs that `make test` made, or "".
func Made() string { return os.Getenv(folderVariable) }

var built string // empty if nothing was built

var programs = sync.OnceValues(func() (string, error) {
	if dir := Made(); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "dnprelay-test-")
	if err != nil {
		return "", err
	}
	built = dir
	const module = "github.com/dnprelay/dnprelay/cmd/"
	if out, err := exec.Command("go", "build", "-o", dir+"/", module+"relay", module+"edge", module+"dnpctl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// Remove deletes what Program built. A TestMain calls it after the tests.
func Remove() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}
