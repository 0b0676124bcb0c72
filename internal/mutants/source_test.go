package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the root of the module, from the folder of this package.
const root = "../.."

// declarations returns the declarations of a function ("function" or "Type.method") in a package: in its tests, or in what
// is not a test.
func declarations(folder, name string, tests bool) (found []source, err error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, "_test.go") != tests || !strings.Contains(string(text), name[strings.IndexByte(name, '.')+1:]) {
			continue
		}
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		list, err := declarationsIn(source{path: path, text: string(text)}, name)
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	return found, err
}

// declarationsIn returns the declarations of a function in a file.
func declarationsIn(f source, name string) (found []source, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, f.path, f.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && qualified(d) == name {
			f.from, f.to = set.Position(d.Pos()).Offset, set.Position(d.End()).Offset
			found = append(found, f)
		}
	}
	return found, nil
}

// qualified returns the name of a function, for a method after its type and a dot.
func qualified(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch generic := typ.(type) {
	case *ast.IndexExpr:
		typ = generic.X
	case *ast.IndexListExpr:
		typ = generic.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return ""
}

// reported matches a line in which a test reports a failure.
var reported = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

// failure returns the first failure in the output of go test, and whether a test reported one or panicked. A test whose time
// was over has noticed nothing, because the machine may have been slow, and neither has the compiler.
func failure(output string) (first string, noticed bool) {
	for line := range strings.SplitSeq(output, "\n") {
		switch {
		case strings.HasPrefix(line, "panic: test timed out"):
			return line, false
		case strings.HasPrefix(line, "panic: "):
			return line, true
		case strings.Contains(line, "--- FAIL: "):
			noticed = true
		case reported.MatchString(line) && first == "" && !strings.Contains(line, "repeat with"):
			first = strings.TrimSpace(line)
		}
	}
	return first, noticed
}

func TestFailure(t *testing.T) {
	for _, c := range []struct {
		name, output, first string
		noticed             bool
	}{
		{"a failure", "--- FAIL: TestA (0.00s)\n    a_test.go:7: two holders\nFAIL", "a_test.go:7: two holders", true},
		{"a failure after the seed", "--- FAIL: TestA (0.00s)\n    a_test.go:1: repeat with -seed=3\n    a_test.go:7: lost\nFAIL", "a_test.go:7: lost", true},
		{"a panic", "panic: no such link [recovered]\n\ngoroutine 7", "panic: no such link [recovered]", true},
		{"no time left", "panic: test timed out after 1h0m0s\n\ngoroutine 7", "panic: test timed out after 1h0m0s", false},
		{"no program", "# dnp\ndnp/conn.go:7:2: declared and not used: n\nFAIL\tdnp [build failed]", "", false},
		{"all passed", "ok  \tdnp\t0.1s", "", false},
	} {
		if first, noticed := failure(c.output); first != c.first || noticed != c.noticed {
			t.Errorf("%s: %q, noticed %v, want %q, %v", c.name, first, noticed, c.first, c.noticed)
		}
	}
}

// TestDeclarations finds functions by name, and methods by their type.
func TestDeclarations(t *testing.T) {
	const text = "package p\nfunc run() {}\nfunc (s *S) run() {}\nfunc (S) stop() {}\nfunc (m *M[K]) run() {}\n"
	for name, want := range map[string]string{"run": "func run() {}", "S.run": "func (s *S) run() {}", "S.stop": "func (S) stop() {}", "M.run": "func (m *M[K]) run() {}", "stop": ""} {
		found, err := declarationsIn(source{path: "p.go", text: text}, name)
		got := ""
		for _, f := range found {
			got += f.text[f.from:f.to]
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}
