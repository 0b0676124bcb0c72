package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Sizes beyond which a reader loses the thread: lines of a file and of a function,
// methods of a type, files of a package.
const (
	fileMax     = 700
	functionMax = 70
	methodsMax  = 70
	filesMax    = 25
)

func TestSize(t *testing.T) {
	all := sources(t)
	for _, s := range all {
		report(t, checkSize(s))
	}
	report(t, checkMethods(all))
	report(t, checkFiles(all))
}

// checkMethods finds types with too many methods. A type that needs more owns parts that
// should own themselves; a short file does not make it small.
func checkMethods(all []source) (findings []string) {
	count := map[string]int{}
	for _, s := range all {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				count[s.dir+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	for name, n := range count {
		if n > methodsMax {
			findings = append(findings, fmt.Sprintf("type %s has %d methods, at most %d: give parts of it types of their own", name, n, methodsMax))
		}
	}
	slices.Sort(findings)
	return findings
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// checkFiles finds packages with too many files. Files for other systems count, too.
func checkFiles(all []source) (findings []string) {
	count := map[string]int{}
	for _, s := range all {
		count[s.dir]++
	}
	for dir, n := range count {
		if n > filesMax {
			findings = append(findings, fmt.Sprintf("package %s has %d files, at most %d: merge what is one topic, or split the package", dir, n, filesMax))
		}
	}
	slices.Sort(findings)
	return findings
}

func checkSize(s source) (findings []string) {
	if n := s.fset.File(s.ast.FileStart).LineCount(); n > fileMax {
		findings = append(findings, fmt.Sprintf("%s: %d lines, at most %d: it is about more than one thing", s.file, n, fileMax))
	}
	for _, d := range s.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first, last := s.fset.Position(f.Pos()).Line, s.fset.Position(f.End()).Line
		if n := last - first + 1; n > functionMax {
			findings = append(findings, fmt.Sprintf("%s:%d: function %s has %d lines, at most %d", s.file, first, f.Name.Name, n, functionMax))
		}
		if f.Name.Name == "init" && f.Recv == nil {
			findings = append(findings, fmt.Sprintf("%s:%d: has an init function, which runs unseen", s.file, first))
		}
	}
	return findings
}

func TestSizeNotice(t *testing.T) {
	for _, src := range []string{
		strings.Repeat("\n", fileMax),
		"func f() {" + strings.Repeat("\n", functionMax) + "}",
		"func init() {}",
	} {
		if checkSize(parse(t, "dnp/x.go", "package dnp\n"+src)) == nil {
			t.Errorf("%.20q passes", src)
		}
	}
	if checkMethods([]source{parse(t, "dnp/x.go", "package dnp\n"+strings.Repeat("func (*T[K]) m() {}\n", methodsMax+1))}) == nil {
		t.Error("a type with too many methods passes")
	}
	if checkFiles(slices.Repeat([]source{parse(t, "dnp/x.go", "package dnp\n")}, filesMax+1)) == nil {
		t.Error("a package with too many files passes")
	}
	if found := checkSize(parse(t, "dnp/x.go", "package dnp\nfunc f() {"+strings.Repeat("\n", functionMax-1)+"}")); found != nil {
		t.Errorf("a function of the largest size has findings: %q", found)
	}
}
