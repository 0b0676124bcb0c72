package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// pure are the packages whose behaviour is a function of their inputs, so that
// a test of them is a list of inputs and a bug is a seed.
var pure = []string{
	"dnp", "dnp/admit", "dnp/wire", "dnp/netstate", "dnp/linkmsg", "dnp/command", "dnp/outbox", "dnp/dnptest",
	"interest", "replication", "replication/view", "replication/payload",
	"cluster", "cluster/lease", "cluster/forward", "sessionlog", "sessionlog/quorumlog", "internal/fence", "internal/format", "subject", "lludp/zerocode", "lludp", "lludp/wire", "godot/variant", "publisher/layout", "internal/auth", "internal/edge/fanout", "internal/edge/takeover", "internal/edge/lludp/viewer", "internal/edge/variant/protocol", "internal/turn/heap", "internal/backup", "internal/inspect", "internal/top", "internal/latency", "internal/simnet",
}

// shells are single files of pure packages that bring them to a real network.
var shells = []string{"dnp/dnptest/udp.go", "sessionlog/quorumlog/log.go"}

// impure are the standard packages that let in what a pure package must not
// have, with all their subpackages; exempt are the exceptions.
var (
	impure = []string{
		"context", "crypto/rand", "embed", "expvar", "log", "net", "os", "plugin", "runtime", "sync", "syscall", "testing", "unsafe",
	}
	exempt = []string{"net/netip"}
)

// hidden are functions that read something which is not an argument: the clock,
// or a generator of random numbers that nobody gave a seed. maphash.MakeSeed is not
// among them: where an entry lies in a hash table shows nowhere, and an attacker must
// not know it.
var hidden = map[string][]string{
	"time":         {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick", "Local", "LoadLocation"},
	"math/rand":    randFunctions,
	"math/rand/v2": randFunctions,
	"fmt":          {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

var randFunctions = []string{
	"ExpFloat64", "Float32", "Float64", "Int", "Int31", "Int31n", "Int32", "Int32N", "Int63", "Int63n", "Int64", "Int64N", "IntN", "Intn",
	"N", "NormFloat64", "Perm", "Read", "Seed", "Shuffle", "Uint", "Uint32", "Uint32N", "Uint64", "Uint64N", "UintN",
}

func TestPure(t *testing.T) {
	for _, dir := range pure {
		if _, ok := rules[dir]; !ok {
			t.Errorf("pure package %s has no line in the import table", dir)
		}
	}
	for _, s := range sources(t) {
		if slices.Contains(pure, s.dir) && !slices.Contains(shells, s.file) {
			report(t, checkPure(s))
		}
	}
}

// checkPure finds what makes a file impure.
func checkPure(s source) (findings []string) {
	names := map[string]string{} // of the imports in this file, and their paths
	for _, spec := range s.ast.Imports {
		imported := importPath(spec)
		name := path.Base(strings.TrimSuffix(imported, "/v2"))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
		if forbidden(imported) {
			findings = append(findings, fmt.Sprintf("%s: imports %s, which a pure package must not", s.file, imported))
		}
		if name == "." {
			findings = append(findings, fmt.Sprintf("%s: imports %s as a dot, which hides what it uses", s.file, imported))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if what := impurity(n, names); what != "" {
			findings = append(findings, fmt.Sprintf("%s:%d: %s", s.file, s.fset.Position(n.Pos()).Line, what))
		}
		return true
	})
	return findings
}

func forbidden(imported string) bool {
	return !slices.Contains(exempt, imported) && slices.ContainsFunc(impure, func(p string) bool {
		return imported == p || strings.HasPrefix(imported, p+"/")
	})
}

// impurity says what is wrong with a node, if anything is.
func impurity(n ast.Node, names map[string]string) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		return "waits with select"
	case *ast.ChanType:
		return "has a channel"
	case *ast.SelectorExpr:
		if id, ok := n.X.(*ast.Ident); ok && slices.Contains(hidden[names[id.Name]], n.Sel.Name) {
			return "uses " + id.Name + "." + n.Sel.Name
		}
	}
	return ""
}

func TestPureNotice(t *testing.T) {
	for _, src := range []string{
		`import "sync"`, `import "sync/atomic"`, `import "context"`, `import "net"`, `import "net/http"`, `import "os"`, `import "log/slog"`,
		`import . "strings"`,
		`func f() { go f() }`,
		`func f() { select {} }`,
		`var c chan int`,
		`import "time"; var now = time.Now`,
		`import clock "time"; func f() { clock.Sleep(1) }`,
		`import "math/rand/v2"; var n = rand.IntN(3)`,
		`import "fmt"; func f() { fmt.Println() }`,
	} {
		if checkPure(parse(t, "dnp/x.go", "package dnp\n"+src)) == nil {
			t.Errorf("%q passes", src)
		}
	}
	innocent := `import ("net/netip"; "time"; "math/rand/v2"); var a netip.Addr; var d = time.Second; func f(r *rand.Rand) int { return r.IntN(3) }`
	if found := checkPure(parse(t, "dnp/x.go", "package dnp\n"+innocent)); found != nil {
		t.Errorf("innocent code has findings: %q", found)
	}
}
