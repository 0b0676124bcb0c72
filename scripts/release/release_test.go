package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/buildtest"
)

// TestReproducible builds an archive twice, from two folders whose files have different times
// and modes, and wants the same bytes.
func TestReproducible(t *testing.T) {
	b := builder{goCommand: "go", version: "v1.2.3"}
	target := target{"godot4", runtime.GOOS, runtime.GOARCH, []string{"scripts/godot4"}}
	made := map[string][]byte{}
	for i := range 2 {
		source, out := filepath.Join(t.TempDir(), strings.Repeat("long", 8*i), "source"), t.TempDir()
		for _, name := range slices.Concat(documents, []string{"go.mod", "go.sum", "scripts/godot4/main.go"}) {
			copyFile(t, filepath.Join("../..", name), filepath.Join(source, name), os.FileMode(0o600|i), time.Unix(int64(1e9*(i+1)), 0))
		}
		names, err := b.archive(target, source, out)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			if first := made[name]; i > 0 && !bytes.Equal(first, data) {
				t.Errorf("the two files %s differ: %d and %d bytes", name, len(first), len(data))
			}
			made[name] = data
		}
	}
	if len(made) != 2 {
		t.Errorf("the builds made %d files, not an archive and an SBOM of the same names", len(made))
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode, at time.Time) {
	t.Helper()
	data, err := os.ReadFile(from)
	err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, mode), os.Chtimes(to, at, at))
	if err != nil {
		t.Fatal(err)
	}
}

// TestAddon wants the addon for Godot 4 under the path that a project has it at, and the same bytes each time.
func TestAddon(t *testing.T) {
	b, out := builder{goCommand: "go", version: "v1.2.3"}, t.TempDir()
	var made [2][]byte
	for i := range made {
		name := filepath.Join(out, addonName(b.version))
		if err := b.addon("../..", name); err != nil {
			t.Fatal(err)
		}
		var err error
		if made[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("the two archives differ")
	}
	r, err := zip.NewReader(bytes.NewReader(made[0]), int64(len(made[0])))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
	}
	for _, want := range []string{"addons/dnp/client.gd", "addons/dnp/websocket.gd", "addons/dnp/LICENSE"} {
		if !slices.Contains(names, want) {
			t.Errorf("the archive has %q, not %s", names, want)
		}
	}
}

func TestPack(t *testing.T) {
	files := []file{{"x/program", 0o755, []byte("a program")}, {"x/LICENSE", 0o644, []byte("a text")}}
	data, err := tarball(files)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for _, f := range files {
		h, err := r.Next()
		if err != nil || h.Name != f.name || h.Mode != f.mode {
			t.Fatalf("the tar file has %+v, %v", h, err)
		}
		if got, err := io.ReadAll(r); !bytes.Equal(got, f.data) || err != nil {
			t.Errorf("%s has %q, %v", f.name, got, err)
		}
	}
	if data, err = zipped(files); err != nil {
		t.Fatal(err)
	}
	zr, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		if got := zr.File[i]; got.Name != f.name || got.Mode() != os.FileMode(f.mode) || got.UncompressedSize64 != uint64(len(f.data)) {
			t.Errorf("the zip file has %+v", got.FileHeader)
		}
	}
}

func TestSBOM(t *testing.T) {
	text, err := sbom("dnprelay", "v1.2.3", []*debug.BuildInfo{
		{GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.com/B", Version: "v1.0.0", Sum: "h1:b"}}},
		{GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.com/a", Version: "v2.0.0"}, {Path: "example.com/B", Version: "v1.0.0", Sum: "h1:b"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got bill
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	var purls []string
	for _, c := range got.Components {
		purls = append(purls, c.PURL)
	}
	want := []string{"pkg:golang/example.com/a@v2.0.0", "pkg:golang/example.com/b@v1.0.0", "pkg:golang/stdlib@1.26.0"}
	if got.Format != "CycloneDX" || got.Metadata.Component.Version != "1.2.3" || !slices.Equal(purls, want) {
		t.Errorf("the SBOM is\n%s\nwith %q, want %q", text, purls, want)
	}
}

// TestUncommitted wants a file that is in no commit to be named, one that git ignores not, and nothing where there is no git.
func TestUncommitted(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing")
	}
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("new.go", "package new\n")
	if got := uncommitted(dir); len(got) > 0 {
		t.Errorf("no repository, and %q is uncommitted", got)
	}
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	write(".gitignore", "made\n.gitignore\n")
	write("made", "")
	if got := uncommitted(dir); !slices.Equal(got, []string{"new.go"}) {
		t.Errorf("uncommitted are %q, want new.go alone", got)
	}
}

func TestRefused(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ version, out, only, want string }{
		{"", t.TempDir(), "", "form v1.2.3"},
		{"1.2.3", t.TempDir(), "", "form v1.2.3"},
		{"v1.2", t.TempDir(), "", "form v1.2.3"},
		{"v1.2.3 -X main.x=y", t.TempDir(), "", "form v1.2.3"},
		{"v1.2.3", full, "", "not empty"},
		{"v1.2.3", t.TempDir(), "plan9", "no archive"},
	} {
		if err := release(c.version, c.out, c.only, "go"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("version %q into %s: %v, want %q", c.version, c.out, err, c.want)
		}
	}
}

// TestInstall requires what go install MODULE/cmd/NAME@VERSION needs: a go.mod without replace
// and exclude directives, and programs that say their names.
func TestInstall(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && (f[0] == "replace" || f[0] == "exclude" || slices.Contains(f, "=>")) {
			t.Errorf("go install refuses a module with %q", strings.TrimSpace(line))
		}
	}
	t.Cleanup(buildtest.Remove)
	for _, p := range all {
		name := filepath.Base(p)
		out, err := exec.Command(buildtest.Program(t, name), "--version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), name+" ") {
			t.Errorf("%s --version prints %q, %v", name, out, err)
		}
	}
}
