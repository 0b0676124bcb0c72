package arch

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makeList returns the words of a variable of the Makefile.
func makeList(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` := ((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the Makefile has no list %s", name)
	}
	return strings.Fields(strings.NewReplacer("\\\n", " ", "$$", "$").Replace(string(found[1])))
}

// TestRaceDetector checks the lists of what make race-test leaves out: the pure packages, in whose tests nothing may run at the same time
// either, and simulations.
func TestRaceDetector(t *testing.T) {
	plain, names := makeList(t, "PURE"), makeList(t, "SIMULATED")
	simulated := regexp.MustCompile(names[0])
	unseen := map[string]bool{}
	for _, name := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(names[0], "^Test("), ")$"), "|") {
		unseen["Test"+name] = true
	}
	for _, dir := range pure {
		want := !slices.ContainsFunc(shells, func(s string) bool { return path.Dir(s) == dir })
		if want != slices.Contains(plain, dir) {
			t.Errorf("package %s is in the list PURE of the Makefile: %t, want %t: a pure package without a shell is", dir, !want, want)
		}
	}
	for _, dir := range plain {
		if !slices.Contains(pure, dir) {
			t.Errorf("the list PURE of the Makefile has %s, which is not pure", dir)
		}
	}
	for _, file := range files(t) {
		if !strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") || strings.HasPrefix(file, "testbed/") {
			continue
		}
		s := parse(t, file, nil)
		if slices.Contains(plain, s.dir) {
			report(t, checkSequential(s, s.ast))
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !simulated.MatchString(f.Name.Name) || slices.Contains(plain, s.dir) {
				continue
			}
			delete(unseen, f.Name.Name)
			report(t, checkSequential(s, f))
		}
	}
	for name := range unseen {
		t.Errorf("no package that is not pure has %s", name)
	}
}

// checkSequential finds what runs at the same time as something else.
func checkSequential(s source, in ast.Node) (findings []string) {
	ast.Inspect(in, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
			what = impurity(n, nil)
		case *ast.SelectorExpr:
			if slices.Contains([]string{"Go", "Parallel", "RunParallel", "AfterFunc"}, n.Sel.Name) {
				what = "uses " + n.Sel.Name
			}
		}
		if what != "" {
			findings = append(findings, fmt.Sprintf("%s:%d: %s, and make race-test leaves it out", s.file, s.fset.Position(n.Pos()).Line, what))
		}
		return true
	})
	return findings
}

func TestRaceDetectorNotice(t *testing.T) {
	for _, body := range []string{"go f()", "select {}", "_ = make(chan int)", "t.Parallel()", "b.RunParallel(f)", "var w sync.WaitGroup; w.Go(f)", "time.AfterFunc(1, f)"} {
		if s := parse(t, "dnp/x_test.go", "package dnp\nfunc f() { "+body+" }"); checkSequential(s, s.ast) == nil {
			t.Errorf("%q passes", body)
		}
	}
}
