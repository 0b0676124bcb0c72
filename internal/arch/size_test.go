package arch

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// Sizes beyond which a reader loses the thread, in lines.
const (
	fileMax     = 400
	functionMax = 70
)

func TestSize(t *testing.T) {
	for _, s := range sources(t) {
		report(t, checkSize(s))
	}
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
			findings = append(findings, fmt.Sprintf("%s:%d: has an init function, which runs where nobody looks", s.file, first))
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
	if found := checkSize(parse(t, "dnp/x.go", "package dnp\nfunc f() {"+strings.Repeat("\n", functionMax-1)+"}")); found != nil {
		t.Errorf("a function of the largest size has findings: %q", found)
	}
}
