package main

import (
	"fmt"
	"reflect"
	"strings"
)

// A block is a fenced block of a README with what the HTML comment before it says.
type block struct {
	file     string
	line     int    // of the fence
	language string // "sh", "go"; "" = output, or a console with lines that begin with "$ "
	text     string
	orders   orders
}

func (b block) String() string { return fmt.Sprintf("%s:%d (%s)", b.file, b.line, b.language) }

// orders are what a comment such as <!-- readme: until ready --> asks for.
// main.go lists them.
type orders struct {
	skip   string   // the reason
	tested string   // the test or the target of make that runs it
	until  string   // the text after which the next block begins, while this one runs on
	prints string   // a text that the block prints
	before string   // a command to run first
	file   string   // where to save the block
	run    string   // the command that runs the saved block
	same   string   // the file with the same text
	env    []string // NAME=VALUE
	output bool     // the block is what the one before prints
}

// orderPrefix begins the comments that are for this program.
const orderPrefix = "<!-- readme:"

// parseBlocks returns the fenced blocks of a README.
func parseBlocks(file, text string) (blocks []block, err error) {
	var next orders
	var in *block
	var body []string
	comment := "" // as far as it has come
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case in == nil && strings.HasPrefix(trimmed, "```"):
			in = &block{file: file, line: i + 1, language: trimmed[3:], orders: next}
			next, body = orders{}, nil
		case in != nil && trimmed == "```":
			in.text = strings.Join(body, "\n") + "\n"
			blocks, in = append(blocks, *in), nil
		case in != nil:
			body = append(body, line)
		case comment != "" || strings.HasPrefix(trimmed, orderPrefix):
			comment += line + "\n"
			if !strings.HasSuffix(trimmed, "-->") {
				continue
			}
			if next, err = parseOrders(comment); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
			comment = ""
		case trimmed != "" && next.any():
			return nil, fmt.Errorf("%s:%d: the block of the comment before this line is missing", file, i+1)
		}
	}
	if in != nil || comment != "" {
		return nil, fmt.Errorf("%s: the last block or comment has no end", file)
	}
	return blocks, nil
}

func (o orders) any() bool { return !reflect.ValueOf(o).IsZero() }

// parseOrders reads a comment. Each line is an order, which has a word and its text.
func parseOrders(comment string) (o orders, err error) {
	comment = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(comment), orderPrefix), "-->")
	texts := map[string]*string{
		"skip": &o.skip, "tested": &o.tested, "until": &o.until, "prints": &o.prints, "before": &o.before, "file": &o.file, "run": &o.run, "same": &o.same,
	}
	for order := range strings.Lines(comment) {
		word, text, _ := strings.Cut(strings.TrimSpace(order), " ")
		if word == "" {
			continue
		}
		text = strings.TrimSpace(text)
		if (text == "") != (word == "output") {
			return o, fmt.Errorf("order %q has a text missing or too many", word)
		}
		switch into := texts[word]; {
		case into != nil:
			*into = text
		case word == "env":
			o.env = append(o.env, text)
		case word == "output":
			o.output = true
		default:
			return o, fmt.Errorf("unknown order %q", word)
		}
	}
	if (o.file == "") != (o.run == "") {
		return o, fmt.Errorf("file and run belong together")
	}
	return o, nil
}

// A command is one line of a console block, with the output that the text shows.
type command struct {
	text   string
	output string
}

// console splits a block whose lines begin with "$ " where they are commands; ok is false
// if the block is no console.
func (b block) console() (commands []command, ok bool) {
	for line := range strings.Lines(b.text) {
		if text, is := strings.CutPrefix(line, "$ "); is {
			commands = append(commands, command{text: text})
		} else if len(commands) > 0 {
			commands[len(commands)-1].output += line
		} else {
			return nil, false
		}
	}
	return commands, len(commands) > 0
}
