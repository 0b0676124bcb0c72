// Readme runs the shell, Go and JavaScript blocks of the READMEs in order, in a clone of HEAD,
// and compares what they print with what the text shows. It uses the ports of the text, so
// nothing else may have them. It needs Linux, bash, git, make, Go, Node and npm.
//
//	go run ./scripts/readme [README…]
//	go run ./scripts/readme -ports       only says whether the ports are free
//
// All blocks of one README run in one terminal. A console block has commands in the lines that
// begin with "$ ", and what they print in the others; a command that runs on is interrupted when
// it has printed that. A block of another language runs if a comment on the line before it, or
// before the blank lines before it, says how:
//
//	<!-- readme: ORDER -->
//
// An order is one of these; a comment of several lines has an order on each.
//
//	skip REASON     the block does not run; the program lists it
//	tested NAME     another test runs it: a function Test…, or a target, as "make viewer-test", which has to exist
//	until TEXT      the block runs on, in a terminal of its own, and the next begins when it has printed this
//	prints TEXT     the block prints this; a block that runs on is interrupted then
//	before COMMAND  runs first
//	env NAME=VALUE  a variable of a terminal of its own
//	file FILE       the block is saved as this file in the clone
//	run COMMAND     runs the file
//	same FILE       the block has the same text as the file
//	output          the block is what the block before prints
//
// In the output that a text shows, "…" stands for anything, and a number with a fraction of
// three digits or more, or with ten digits or more, for any number.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// folders have the READMEs that are run, besides that of the root.
var folders = regexp.MustCompile(`^(README\.md|(examples|clients|deploy|helm)/.*README\.md)$`)

func main() {
	limit := flag.Duration("timeout", 40*time.Minute, "longest time for everything")
	only := flag.Bool("ports", false, "only try the ports of the READMEs, and exit with 1 if one is in use")
	flag.Parse()
	if err := portsFree(tcpPorts, udpPorts); err != nil || *only {
		exit(err)
	}
	r := &runner{mark: fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())}
	err := r.setup()
	if err == nil {
		done := make(chan error, 1)
		go func() { done <- r.all(flag.Args()) }()
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		select {
		case err = <-done:
		case <-time.After(*limit):
			err = fmt.Errorf("not done after %s", *limit)
		case s := <-stop:
			err = fmt.Errorf("%s", s)
		}
	}
	if e := endProcesses(r.mark, 10*time.Second); e != nil {
		fmt.Fprintln(os.Stderr, "readme:", e)
	}
	if e := os.RemoveAll(r.dir); e != nil {
		fmt.Fprintln(os.Stderr, "readme:", e)
	}
	r.summary()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A runner runs READMEs.
type runner struct {
	mark    string
	dir     string // temporary: clone, terminals
	clone   string
	ran     int
	tested  []string // blocks that other tests run
	skipped []string
}

// setup clones HEAD.
func (r *runner) setup() (err error) {
	if r.dir, err = os.MkdirTemp("", "readme-"); err != nil {
		return err
	}
	r.clone = filepath.Join(r.dir, "dnprelay")
	out, err := exec.Command("git", "clone", "--quiet", ".", r.clone).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git clone: %w\n%s", err, out)
	}
	return nil
}

// all runs the READMEs, all those of the clone if none is named. Each begins without the
// processes of the one before.
func (r *runner) all(files []string) error {
	if len(files) == 0 {
		out, err := exec.Command("git", "-C", r.clone, "ls-files").Output()
		if err != nil {
			return err
		}
		for file := range strings.FieldsSeq(string(out)) {
			if folders.MatchString(file) {
				files = append(files, file)
			}
		}
	}
	for _, file := range files {
		if err := r.readme(file); err != nil {
			return err
		}
		if err := endProcesses(r.mark, 10*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) summary() {
	fmt.Printf("%d blocks ran, other tests run %d:\n", r.ran, len(r.tested))
	for _, s := range r.tested {
		fmt.Println("  " + s)
	}
	fmt.Printf("%d blocks did not run:\n", len(r.skipped))
	for _, s := range r.skipped {
		fmt.Println("  " + s)
	}
}
