package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module = "github.com/dnprelay/dnprelay/"
	root   = "../.."
)

// A source is one Go file that is not a test.
type source struct {
	dir  string // of the package, relative to the module: "dnp/wire"
	file string // relative to the module
	fset *token.FileSet
	ast  *ast.File
}

// parse reads Go source that is in memory, or in the file if src is nil.
func parse(t *testing.T, file string, src any) source {
	t.Helper()
	fset := token.NewFileSet()
	where := file
	if src == nil {
		where = filepath.Join(root, file)
	}
	f, err := parser.ParseFile(fset, where, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{dir: path.Dir(file), file: file, fset: fset, ast: f}
}

// sources returns every Go file of the module that is not a test, whatever
// system it is for.
func sources(t *testing.T) (all []source) {
	t.Helper()
	for _, file := range files(t) {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "testdata/") {
			all = append(all, parse(t, file, nil))
		}
	}
	return all
}

// files returns every file of the repository, relative to it, with slashes.
// What git ignores, at the top, beside programs in TypeScript and because `make generate` writes it, is not part of it.
func files(t *testing.T) (all []string) {
	t.Helper()
	const client, recipe = "clients/typescript/", "examples/publishers/typescript/"
	skip := map[string]bool{
		".git": true, "bin": true, "tmp": true, client + "build": true, client + "dist": true, client + "node_modules": true,
		"console/node_modules": true, recipe + "build": true, recipe + "node_modules": true, "internal/edge/lludp/testdata/bot/node_modules": true, "clients/godot/web/node_modules": true,
		"clients/godot/godot4/addons": true, "helm/relay/files/dashboards": true,
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skip[name]:
			return fs.SkipDir
		case d.Type().IsRegular() && name != ".git":
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// importPath returns the import path of s.
func importPath(s *ast.ImportSpec) string { return strings.Trim(s.Path.Value, `"`) }

func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}
