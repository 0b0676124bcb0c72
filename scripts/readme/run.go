package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// The longest times are those of a slow machine that does something else as well. They end a block that hangs, and
	// say nothing about how long one should take.
	blockTimeout   = 15 * time.Minute // for one block: the first one builds the programs
	commandTimeout = 5 * time.Minute  // for a command of a console

	linesShown = 40 // of what a block printed, at its start and end, beside a failure
)

// A reader goes through one README.
type reader struct {
	*runner
	main  *terminal
	count int // of terminals and programs
}

// readme runs the blocks of one README.
func (r *runner) readme(file string) error {
	text, err := os.ReadFile(filepath.Join(r.clone, file))
	if err != nil {
		return err
	}
	blocks, err := parseBlocks(file, string(text))
	if err != nil {
		return err
	}
	d := &reader{runner: r}
	if d.main, err = d.terminal(nil); err != nil {
		return err
	}
	defer d.main.close()
	for i, b := range blocks {
		shown := ""
		if i+1 < len(blocks) && blocks[i+1].orders.output {
			shown = blocks[i+1].text
		}
		start := time.Now()
		ran, err := d.block(b, shown)
		if err != nil {
			return fmt.Errorf("%s: %w", b, err)
		}
		if ran {
			r.ran++
			fmt.Printf("%6.1f s  %s\n", time.Since(start).Seconds(), b)
		}
	}
	return nil
}

// terminal opens another terminal in the clone.
func (d *reader) terminal(env []string) (*terminal, error) {
	dir, err := os.MkdirTemp(d.dir, "terminal-")
	if err != nil {
		return nil, err
	}
	return newTerminal(d.clone, dir, append(env, mark+"="+d.mark))
}

// block runs one block, and reports whether it did.
func (d *reader) block(b block, shown string) (bool, error) {
	o := b.orders
	commands, console := b.console()
	if o.before != "" {
		if err := d.source(o.before); err != nil {
			return false, fmt.Errorf("before: %w", err)
		}
	}
	switch {
	case o.skip != "":
		d.skipped = append(d.skipped, fmt.Sprintf("%s: %s", b, o.skip))
		return false, nil
	case o.tested != "":
		d.tested = append(d.tested, fmt.Sprintf("%s: %s", b, o.tested))
		return false, d.exists(o.tested)
	case o.output:
		return false, nil // it was compared with the block before
	case o.same != "":
		return true, d.same(b)
	case o.file != "":
		if err := d.write(o.file, b.text); err != nil {
			return false, err
		}
		b.text = o.run
	}
	switch {
	case o.until != "":
		return true, d.background(b)
	case o.file != "":
		return true, d.run(b.text, shown, o.prints, blockTimeout)
	case b.language == "" && console:
		return true, d.console(commands)
	case b.language == "go":
		return true, d.program(b)
	case b.language == "sh" && o.prints == "":
		return true, d.source(b.text)
	case b.language == "sh":
		return true, d.run(b.text, shown, o.prints, blockTimeout)
	case b.language == "js" || b.language == "":
		return false, fmt.Errorf("no comment says how to run the block")
	}
	d.skipped = append(d.skipped, fmt.Sprintf("%s: not a language that this program runs", b))
	return false, nil
}

// exists returns an error unless the clone has the test or the target of make.
func (d *reader) exists(test string) error {
	pattern, where := "^func "+test+"\\(t \\*testing", "*_test.go"
	if target, ok := strings.CutPrefix(test, "make "); ok {
		pattern, where = "^"+target+":", "Makefile"
	}
	if err := exec.Command("git", "-C", d.clone, "grep", "--quiet", "-E", pattern, "--", where).Run(); err != nil {
		return fmt.Errorf("there is no %s that tests the block: %w", test, err)
	}
	return nil
}

// source runs a script in the reader's terminal.
func (d *reader) source(text string) error {
	j, err := d.main.source(text)
	if err != nil {
		return err
	}
	if _, err = j.wait(blockTimeout, nil); err != nil {
		return fmt.Errorf("%w\n%s", err, short(j.printed()))
	}
	return nil
}

// run runs a command, compares what it prints, and interrupts it if it runs on.
func (d *reader) run(text, shown, contains string, limit time.Duration) error {
	j, err := d.main.start(text)
	if err != nil {
		return err
	}
	start, all := pattern(shown, false), pattern(shown, true)
	enough := func(printed []byte) bool {
		return (shown != "" || contains != "") && start.Match(printed) && strings.Contains(string(printed), contains)
	}
	ended, err := j.wait(limit, enough)
	printed := j.printed()
	switch {
	case err != nil:
		return fmt.Errorf("%w; it printed\n%s\nand the text shows\n%s%s", err, short(printed), shown, contains)
	case !ended:
		return j.interrupt()
	case shown != "" && !all.Match(printed), !strings.Contains(string(printed), contains):
		return fmt.Errorf("it printed\n%s\nand the text shows\n%s%s", short(printed), shown, contains)
	}
	return nil
}

// console runs commands one after the other.
func (d *reader) console(commands []command) error {
	for _, c := range commands {
		if err := d.run(c.text, c.output, "", commandTimeout); err != nil {
			return fmt.Errorf("%s%w", c.text, err)
		}
	}
	return nil
}

// background runs a block on, in a terminal of its own.
func (d *reader) background(b block) error {
	t, err := d.terminal(b.orders.env)
	if err != nil {
		return err
	}
	j, err := t.start(b.text)
	if err != nil {
		return err
	}
	want := []byte(b.orders.until)
	ended, err := j.wait(blockTimeout, func(printed []byte) bool { return strings.Contains(string(printed), string(want)) })
	if err == nil && ended {
		err = fmt.Errorf("it ended")
	}
	if err != nil {
		return fmt.Errorf("%w; waiting for %q it printed\n%s", err, want, short(j.printed()))
	}
	return nil
}

// program compiles and runs a Go block.
func (d *reader) program(b block) error {
	text, err := program(b.text)
	if err != nil {
		return err
	}
	d.count++
	folder := fmt.Sprintf("tmp/readme%d", d.count)
	if err := d.write(folder+"/main.go", text); err != nil {
		return err
	}
	return d.run("go run ./"+folder, "", b.orders.prints, blockTimeout)
}

func (d *reader) write(name, text string) error {
	name = filepath.Join(d.clone, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

func (d *reader) same(b block) error {
	text, err := os.ReadFile(filepath.Join(d.clone, b.orders.same))
	if err == nil && string(text) != b.text {
		err = fmt.Errorf("the block is not %s", b.orders.same)
	}
	return err
}

// short leaves out the middle of a long output.
func short(printed []byte) string {
	lines := strings.SplitAfter(string(printed), "\n")
	if len(lines) > 2*linesShown {
		lines = slices.Concat(lines[:linesShown], []string{"[…]\n"}, lines[len(lines)-linesShown:])
	}
	return strings.Join(lines, "")
}
