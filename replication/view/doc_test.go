package view

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sections are what the views document describes. Each has a row in the table of doc.go.
var sections = []string{
	"View", "Controller", "commands about an entity", "ShadowField", "struct fields", "nullable field", "ShadowFieldIndex", "up to 128 fields",
	"index -1 to -128", "keyframe", "keyframe with GUID", "keyframe limited to one", "bitfield", "update", "remove", "checksum", "RefIdAssign",
	"routed messages", "RefId 0xFFFF",
}

// TestMapping wants the table of doc.go to have a row for each section of the views document, to name only what exists, and
// to have the numbers of messages that the code has.
func TestMapping(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "# The views document")
	if !ok {
		t.Fatal("doc.go has no table")
	}
	for _, s := range sections {
		if !regexp.MustCompile(`(?m)^//\t` + regexp.QuoteMeta(s) + `(  |$)`).MatchString(table) {
			t.Errorf("the table has no row %q", s)
		}
	}
	names := exported(t)
	for _, link := range regexp.MustCompile(`\[(\w+)\]`).FindAllStringSubmatch(table, -1) {
		if !names[link[1]] {
			t.Errorf("the table names %s, which does not exist", link[0])
		}
	}
	numbers := map[string]MessageID{"Keyframe": Keyframe, "Remove": Remove, "Checksum": Checksum, "RefIDAssign": RefIDAssign}
	said := regexp.MustCompile(`\[(\w+)\], message (\d+)`).FindAllStringSubmatch(table, -1)
	if len(said) != len(numbers) {
		t.Errorf("the table has the numbers of %d messages, want %d", len(said), len(numbers))
	}
	for _, s := range said {
		if strconv.Itoa(int(numbers[s[1]])) != s[2] {
			t.Errorf("the table says that %s is message %s; it is %d", s[1], s[2], numbers[s[1]])
		}
	}
}

// exported returns the names that other packages can use.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(set, files, "view")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Funcs {
		names[f.Name] = true
	}
	for _, v := range append(p.Consts, p.Vars...) {
		for _, name := range v.Names {
			names[name] = true
		}
	}
	for _, typ := range p.Types {
		names[typ.Name] = true
		for _, f := range typ.Funcs {
			names[f.Name] = true
		}
		for _, v := range append(typ.Consts, typ.Vars...) {
			for _, name := range v.Names {
				names[name] = true
			}
		}
	}
	return names
}
