package arch

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copyMin is the size in bytes from which on a file has no equal. Smaller ones, such as .npmrc, are settings that two tools share.
const copyMin = 100

// TestCopies wants one source of everything: of two equal files one is changed and the other forgotten.
func TestCopies(t *testing.T) {
	all := map[string][]byte{}
	for _, name := range files(t) {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = data
	}
	report(t, checkCopies(all))
}

// checkCopies finds files, by name, that equal another one.
func checkCopies(all map[string][]byte) (findings []string) {
	first := map[[sha256.Size]byte]string{}
	names := make([]string, 0, len(all))
	for name, data := range all {
		if len(data) >= copyMin {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		sum := sha256.Sum256(all[name])
		if other, ok := first[sum]; ok {
			findings = append(findings, fmt.Sprintf("%s equals %s: keep one, and have both users read it", name, other))
			continue
		}
		first[sum] = name
	}
	return findings
}

// TestIgnored wants nothing of what git ignores, such as what `make generate` writes, to be in the repository.
func TestIgnored(t *testing.T) {
	c := exec.Command("git", "ls-files", "--cached", "--ignored", "--exclude-standard")
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		t.Skip("no git, or no repository: ", err)
	}
	for name := range strings.Lines(string(out)) {
		t.Errorf("%s is in the repository, although git ignores it", strings.TrimSpace(name))
	}
}

func TestCopiesNotice(t *testing.T) {
	long, short := make([]byte, copyMin), make([]byte, copyMin-1)
	if checkCopies(map[string][]byte{"a": long, "b": long}) == nil {
		t.Error("two equal files pass")
	}
	if found := checkCopies(map[string][]byte{"a": short, "b": short}); found != nil {
		t.Error(found)
	}
}
