package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestBlocks(t *testing.T) {
	blocks, err := parseBlocks("x.md", "text\n```sh\nmake\n```\n\n<!-- readme:\nbefore a; b\nprints c\n-->\n\n```\n$ one\nout\n…\n$ two\n```\n<!-- readme: output -->\n```\nout\n```\n")
	if err != nil || len(blocks) != 3 {
		t.Fatal(blocks, err)
	}
	if b := blocks[0]; b.language != "sh" || b.text != "make\n" || b.line != 2 || b.orders.any() {
		t.Errorf("the plain block is %+v", b)
	}
	if o := blocks[1].orders; o.before != "a; b" || o.prints != "c" {
		t.Errorf("a comment of two orders is %+v", o)
	}
	commands, ok := blocks[1].console()
	if !ok || len(commands) != 2 || commands[0] != (command{"one\n", "out\n…\n"}) || commands[1] != (command{"two\n", ""}) {
		t.Errorf("the console block is %q, %t", commands, ok)
	}
	if _, ok := blocks[2].console(); ok || !blocks[2].orders.output {
		t.Errorf("the block of output is %+v", blocks[2])
	}
}

func TestBadBlocks(t *testing.T) {
	for reason, text := range map[string]string{
		"a block without end":                    "```sh\nmake\n",
		"a comment without end":                  "<!-- readme:\nskip x\n",
		"an unknown order":                       "<!-- readme: run-it x -->\n```\n```\n",
		"an order without text":                  "<!-- readme: skip -->\n```\n```\n",
		"a file that nothing runs":               "<!-- readme: file x -->\n```\n```\n",
		"a comment with a text before its block": "<!-- readme: skip x -->\ntext\n```\n```\n",
	} {
		if _, err := parseBlocks("x.md", text); err == nil {
			t.Errorf("%s passes", reason)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		whole, want    bool
	}{
		{"ball=[0.507,-2.9568]\n", "ball=[-1.2,3e-05]\n", true, true},
		{"epoch: 1795326413851, seq: 1\n", "epoch: 1799999999999, seq: 1\n", true, true},
		{"epoch: 1795326413851, seq: 1\n", "epoch: 1799999999999, seq: 2\n", true, false}, // a short number is meant
		{"at 127.0.0.1:3413\n", "at 127.0.0.1:3414\n", true, false},
		{"hp=93.5\n", "hp=93\n", true, false},
		{"a\n…\nz\n", "a\nb\nc\nz\n", true, true},
		{"a\n…\nz\n", "a\nz\n", true, true},
		{"a … z\n", "a\nz\n", true, false}, // inside a line it is a part of the line
		{"a\n", "a\nb\n", false, true},
		{"a\n", "a\nb\n", true, false},
		{"a\nb\n", "a\n", false, false},
		{"(a)\n", "a\n", true, false}, // nothing in a text is a pattern
	} {
		if got := pattern(c.shown, c.whole).MatchString(c.printed); got != c.want {
			t.Errorf("%q shown, %q printed, whole %t: %t", c.shown, c.printed, c.whole, got)
		}
	}
}

func TestProgram(t *testing.T) {
	for _, c := range []struct{ fragment, want string }{
		{"p, err := publisher.Connect(ctx)\n_, err = p.Space(\"x\")\n", "ctx := context.Background()"},
		{"p, err := publisher.Connect(ctx)\n", "\t_ = p\n"},
		{"c, err := client.Dial(ctx, client.Config{Token: token})\nfmt.Println(c)\n", "token := \"\""},
		{"x, err := f()\n", "log.Fatal(err)"},
		{"type T struct{}\n\nfunc (T) Bind(p *publisher.Space) {}\n", "func (T) Bind"},
		{"package main\n\nfunc main() {}\n", "func main() {}"},
	} {
		got, err := program(c.fragment)
		if err != nil {
			t.Errorf("%s: %v", c.fragment, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "x.go", got, 0); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s\nis the program\n%s\nwithout %q, %v", c.fragment, got, c.want, err)
		}
	}
	if _, err := program("x := := y\n"); err == nil {
		t.Error("a block that is no Go passes")
	}
}

// TestTerminal requires that a shell keeps its variables, that a failing command fails the
// block, that a command which runs on can be interrupted, and that all processes are found.
func TestTerminal(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is missing")
	}
	const limit = time.Minute
	value := t.Name() + t.TempDir()
	term, err := newTerminal(t.TempDir(), t.TempDir(), []string{mark + "=" + value})
	if err != nil {
		t.Fatal(err)
	}
	defer term.close()
	run := func(start func(string) (*job, error), text string, done func([]byte) bool) (*job, bool, error) {
		t.Helper()
		j, err := start(text)
		if err != nil {
			t.Fatal(err)
		}
		ended, err := j.wait(limit, done)
		return j, ended, err
	}
	if _, _, err := run(term.source, "word=hello; sleep 1000 &", nil); err != nil {
		t.Fatal(err)
	}
	if j, ended, err := run(term.start, "echo $word", nil); !ended || err != nil || string(j.printed()) != "hello\n" {
		t.Errorf("the variable of the block before: %q, %v", j.printed(), err)
	}
	if _, _, err := run(term.start, "false; true", nil); err == nil {
		t.Error("a failing command passes")
	}
	j, ended, err := run(term.start, "echo begun; sleep 1000", func(printed []byte) bool { return string(printed) == "begun\n" })
	if err = errors.Join(err, j.interrupt()); ended || err != nil {
		t.Errorf("a command that runs on: ended %t, %v", ended, err)
	}
	if pids, err := marked(value); len(pids) != 2 || err != nil {
		t.Errorf("the shell and its job in the background are %v, %v", pids, err)
	}
	term.close()
	if err := endProcesses(value, limit); err != nil {
		t.Error(err)
	}
	if pids, err := marked(value); len(pids) != 0 || err != nil {
		t.Errorf("left are %v, %v", pids, err)
	}
}

// TestPorts requires that a port which something has is named.
func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	if err := portsFree([]int{taken}, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint("TCP port ", taken)) {
		t.Errorf("a port that is in use: %v", err)
	}
	if err := portsFree(nil, nil); err != nil {
		t.Error(err)
	}
}

// TestTested requires that a test which a README names exists.
func TestTested(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing")
	}
	if err := exec.Command("git", "rev-parse", "--git-dir").Run(); err != nil {
		t.Skip("the source is in no git repository")
	}
	d := &reader{runner: &runner{clone: "../.."}}
	for test, want := range map[string]bool{
		"TestTerminal": true, "make browser-test": true, "TestTermina": false, "make browser-tes": false, "TestNothing": false,
	} {
		if err := d.exists(test); (err == nil) != want {
			t.Errorf("%s exists: want %t, %v", test, want, err)
		}
	}
}
