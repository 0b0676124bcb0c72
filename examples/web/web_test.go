package web

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// linesMax is the length of the page: whoever copies it reads all of it first.
const linesMax = 25

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := fs.ReadFile(Files, name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPageIsShort(t *testing.T) {
	if n := bytes.Count(read(t, "index.html"), []byte("\n")); n > linesMax {
		t.Errorf("index.html has %d lines, at most %d", n, linesMax)
	}
}

// TestReadme: README.md of the project shows this page.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if block := "```html\n" + string(read(t, "index.html")) + "```\n"; !bytes.Contains(readme, []byte(block)) {
		t.Error("README.md has another page than index.html")
	}
}

func TestPageNamesFilesThatExist(t *testing.T) {
	names := regexp.MustCompile(`(?:from |src=|href=)"\./([^"]+)"`).FindAllSubmatch(read(t, "index.html"), -1)
	if len(names) == 0 {
		t.Error("index.html imports nothing, want the client")
	}
	for _, name := range names {
		read(t, string(name[1]))
	}
	if found := regexp.MustCompile(`(?:from |src=|href=)"(?:https?:)?/`).Find(read(t, "index.html")); found != nil {
		t.Errorf("index.html has %s: the page needs nothing but the edge", found)
	}
}

// TestBundle compares dnprelay.js with the client that is in the repository.
func TestBundle(t *testing.T) {
	const folder = "../../clients/typescript"
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "esbuild")); err != nil {
		t.Skip("clients/typescript/node_modules is missing, which `npm ci --ignore-scripts` makes")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is missing, which makes the bundle")
	}
	made := filepath.Join(t.TempDir(), "dnprelay.js")
	bundle := exec.Command("npm", "run", "--silent", "bundle", "--", "--outfile="+made)
	bundle.Dir = folder
	if out, err := bundle.CombinedOutput(); err != nil {
		t.Fatalf("npm run bundle: %v\n%s", err, out)
	}
	want, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, "dnprelay.js"), want) {
		t.Error("dnprelay.js is not the bundle of the client: run `npm run bundle` in clients/typescript")
	}
}
