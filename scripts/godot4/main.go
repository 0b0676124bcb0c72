// Command godot4 writes the addon for Godot 4 from that for Godot 3, so that the two stay in step.
//
//	go run ./scripts/godot4 clients/godot/addons/dnp clients/godot/godot4/addons/dnp
//
// Most differences are names, which a table replaces. A line that needs more ends with a comment of the form
// "# 4: LINE", and becomes that line. Files that only the target has, such as websocket.gd, whose class has nothing
// in common with that of Godot 3, are written by hand.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// byHand are files that exist in both addons and are not written by this program.
var byHand = map[string]bool{"websocket.gd": true}

// A rename replaces what a pattern matches.
type rename struct {
	pattern *regexp.Regexp
	to      string
}

var renames = []rename{
	{regexp.MustCompile(`^extends Reference$`), "extends RefCounted"},
	{regexp.MustCompile(`^export var `), "@export var "},
	{regexp.MustCompile(`\bPool(Byte|String)Array\b`), "Packed${1}Array"},
	{regexp.MustCompile(`\bQuat\b`), "Quaternion"},
	{regexp.MustCompile(`\bTYPE_QUAT\b`), "TYPE_QUATERNION"},
	{regexp.MustCompile(`\bTYPE_REAL\b`), "TYPE_FLOAT"},
	{regexp.MustCompile(`\bTYPE_RAW_ARRAY\b`), "TYPE_PACKED_BYTE_ARRAY"},
	{regexp.MustCompile(`\bFuncRef\b`), "Callable"},
	{regexp.MustCompile(`\bOS\.get_ticks_`), "Time.get_ticks_"},
	{regexp.MustCompile(`\bto_json\(`), "JSON.stringify("},
	{regexp.MustCompile(`^func _idle\(`), "func _process("}, // of a SceneTree
	{regexp.MustCompile(`\.empty\(\)`), ".is_empty()"},
	{regexp.MustCompile(`\.is_valid_integer\(\)`), ".is_valid_int()"},
	{regexp.MustCompile(`\.to_utf8\(\)`), ".to_utf8_buffer()"},
	{regexp.MustCompile(`\.linear_interpolate\(`), ".lerp("},
	{regexp.MustCompile(`\blinear_interpolate\b`), "lerp"},
	{regexp.MustCompile(`\.instance\(\)`), ".instantiate()"},
	{regexp.MustCompile(`\bconnect\("(\w+)", (\w+), "(\w+)"\)`), `connect("$1", Callable($2, "$3"))`},
}

// marked is a line that says what it is in Godot 4.
var marked = regexp.MustCompile(`^(\t*)(#\t)?.* # 4: (.*)$`)

// port returns a script for Godot 4.
func port(script string) string {
	lines := strings.Split(script, "\n")
	for i, line := range lines {
		if m := marked.FindStringSubmatch(line); m != nil {
			lines[i] = m[1] + m[2] + m[3]
			continue
		}
		for _, r := range renames {
			line = r.pattern.ReplaceAllString(line, r.to)
		}
		lines[i] = line
	}
	return "# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.\n" + strings.Join(lines, "\n")
}

// portAll returns the files of the addon for Godot 4 by name.
func portAll(from string) (map[string]string, error) {
	names, err := filepath.Glob(filepath.Join(from, "*.gd"))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range names {
		if byHand[filepath.Base(name)] {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[filepath.Base(name)] = port(string(text))
	}
	return files, nil
}

func run(from, to string) error {
	files, err := portAll(from)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: godot4 FROM TO")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "godot4:", err)
		os.Exit(1)
	}
}
