// Release makes the files of a release: an archive for each platform, an SBOM of each of these
// (CycloneDX), the addon for Godot 4, and checksums (SHA-256). The same source and the same Go give the same bytes, in
// whatever folder and at whatever time.
//
//	go run ./scripts/release -version v1.2.3 -out tmp/release
//
// Programs of an archive print the version that -version names.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/dnprelay/dnprelay"

// A target is an archive.
type target struct {
	name     string // first part of the name of the file
	os, arch string
	programs []string // packages of the module
}

var all = []string{"cmd/relay", "cmd/edge", "cmd/dnpctl"}

// targets are what a release has: nodes run on Linux, the tool for people also elsewhere.
var targets = []target{
	{"dnprelay", "linux", "amd64", all},
	{"dnprelay", "linux", "arm64", all},
	{"dnpctl", "darwin", "amd64", []string{"cmd/dnpctl"}},
	{"dnpctl", "darwin", "arm64", []string{"cmd/dnpctl"}},
	{"dnpctl", "windows", "amd64", []string{"cmd/dnpctl"}},
	{"dnpctl", "windows", "arm64", []string{"cmd/dnpctl"}},
}

// documents are the files that each archive has beside its programs.
var documents = []string{"LICENSE", "README.md", "CHANGELOG.md"}

// versions are those of semantic versioning with the "v" of Go, without build metadata.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func main() {
	version := flag.String("version", "", "version of the release, as v1.2.3")
	out := flag.String("out", "tmp/release", "folder for the files, which must not exist or be empty")
	only := flag.String("only", "", "make only archives whose name contains this")
	flag.Parse()
	if err := release(*version, *out, *only, os.Getenv("GO")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release makes all files of a release.
func release(version, out, only, goCommand string) error {
	if !versions.MatchString(version) {
		return fmt.Errorf("version %q is not of the form v1.2.3 or v1.2.3-rc.1", version)
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", out)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if goCommand == "" {
		goCommand = "go"
	}
	if files := uncommitted("."); len(files) > 0 {
		fmt.Fprintf(os.Stderr, "release: warning: the archives will have changes that are in no commit, of %s\n", strings.Join(files, ", "))
	}
	b := builder{goCommand: goCommand, version: version}
	var names []string
	for _, t := range targets {
		if !strings.Contains(t.base(version), only) {
			continue
		}
		made, err := b.archive(t, ".", out)
		if err != nil {
			return fmt.Errorf("%s: %w", t.base(version), err)
		}
		fmt.Println(strings.Join(made, "\n"))
		names = append(names, made...)
	}
	if name := addonName(version); strings.Contains(name, only) {
		if err := b.addon(".", filepath.Join(out, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Println(name)
		names = append(names, name)
	}
	if len(names) == 0 {
		return errors.New("no archive has such a name")
	}
	return checksums(out, names)
}

// uncommitted returns the files of a folder that differ from the commit, or are in none; none if the folder is of no
// repository, as in an archive of the source.
func uncommitted(dir string) []string {
	c := exec.Command("git", "status", "--porcelain", "--untracked-files=normal", ".")
	c.Dir = dir
	text, err := c.Output()
	if err != nil {
		return nil
	}
	var files []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			files = append(files, f[len(f)-1])
		}
	}
	return files
}

// base is the name of the archive without its ending.
func (t target) base(version string) string {
	return fmt.Sprintf("%s_%s_%s_%s", t.name, strings.TrimPrefix(version, "v"), t.os, t.arch)
}

// checksums writes the file that sha256sum -c reads.
func checksums(out string, names []string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(names)) {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
