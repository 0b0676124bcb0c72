package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// imports are the packages that a fragment may name, by name.
var imports = map[string]string{
	"context":   "context",
	"fmt":       "fmt",
	"log":       "log",
	"time":      "time",
	"client":    "github.com/dnprelay/dnprelay/client",
	"publisher": "github.com/dnprelay/dnprelay/publisher",
	"token":     "github.com/dnprelay/dnprelay/token",
}

// given are the variables that a fragment may use without declaring them.
var given = map[string]string{
	"ctx":   "ctx := context.Background()",
	"token": "token := \"\"",
}

const mainStart = "package main\n\nfunc main() {\n"

// program makes a program of a Go block. A block that begins with a package clause is one
// already. Of another, the statements become the body of main, which ends after the first
// statement that sets err to an error; and declarations are compiled beside an empty main.
func program(text string) (string, error) {
	if strings.HasPrefix(text, "package ") {
		return text, nil
	}
	fset := token.NewFileSet()
	source := mainStart + text + "}\n"
	file, err := parser.ParseFile(fset, "block.go", source, 0)
	if err != nil {
		source = "package main\n\nfunc main() {}\n\n" + text
		var second error
		if file, second = parser.ParseFile(fset, "block.go", source, 0); second != nil {
			return "", err
		}
	}
	b := bytes.NewBufferString("package main\n\n")
	used := names(file)
	var vars []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if used.plain[name] && !used.selected[name] && !used.declared[name] {
			vars = append(vars, given[name])
			used.selected["context"] = used.selected["context"] || name == "ctx"
		}
	}
	used.selected["log"] = used.selected["log"] || used.declared["err"]
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if used.selected[name] {
			fmt.Fprintf(b, "import %q\n", imports[name])
		}
	}
	main := file.Decls[0].(*ast.FuncDecl)
	if len(main.Body.List) == 0 {
		b.WriteString(strings.TrimPrefix(source, "package main\n"))
	} else {
		fmt.Fprintf(b, "func main() {\n%s\n", strings.Join(vars, "\n"))
		writeStatements(b, fset, source, main.Body.List)
		b.WriteString("}\n")
	}
	out, err := format.Source(b.Bytes())
	return string(out), err
}

// writeStatements appends the statements, and after each one what uses the variables that it
// declares: Go refuses unused ones, and a README leaves the handling of errors away.
func writeStatements(b *bytes.Buffer, fset *token.FileSet, source string, list []ast.Stmt) {
	for _, s := range list {
		fmt.Fprintf(b, "%s\n", source[fset.Position(s.Pos()).Offset:fset.Position(s.End()).Offset])
		assign, ok := s.(*ast.AssignStmt)
		if !ok {
			continue
		}
		for _, left := range assign.Lhs {
			name, ok := left.(*ast.Ident)
			switch {
			case !ok || name.Name == "_":
			case name.Name == "err":
				b.WriteString("if err != nil {\nlog.Fatal(err)\n}\n")
			default:
				fmt.Fprintf(b, "_ = %s\n", name.Name)
			}
		}
	}
}

// A nameSet is how a file uses names.
type nameSet struct {
	selected map[string]bool // before a dot, and not declared
	declared map[string]bool
	plain    map[string]bool
}

func names(file *ast.File) nameSet {
	n := nameSet{selected: map[string]bool{}, declared: map[string]bool{}, plain: map[string]bool{}}
	ast.Inspect(file, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok {
				n.selected[id.Name] = true
			}
		case *ast.AssignStmt:
			for _, left := range x.Lhs {
				if id, ok := left.(*ast.Ident); ok {
					n.declared[id.Name] = true
				}
			}
		case *ast.Ident:
			n.plain[x.Name] = true
		}
		return true
	})
	maps.DeleteFunc(n.selected, func(name string, _ bool) bool { return n.declared[name] })
	return n
}
