// Command godot4 writes scripts for Godot 4 from those for Godot 3. The addon for Godot 4 is not in the repository; `make godot4` runs
//
//	go run ./scripts/godot4 clients/godot/addons/dnp clients/godot/godot4/addons/dnp clients/godot/godot4
//
// Most differences are names, which a table replaces. A line that needs more ends with a comment of the form
// "# 4: LINE", and becomes that line. Scripts of the last folder are for Godot 4, written by hand, and are copied in place of those
// of their names: websocket.gd, because the classes have nothing in common.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

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

// each writes what becomes of the scripts of a folder into another one.
func each(from, to string, become func(script string) string) error {
	names, err := filepath.Glob(filepath.Join(from, "*.gd"))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), []byte(become(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run writes the scripts of from, for Godot 4, into to, which it makes, and those that are written by hand, if there is such a folder.
func run(from, to, byHand string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := each(from, to, port); err != nil || byHand == "" {
		return err
	}
	return each(byHand, to, func(script string) string { return script })
}

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: godot4 FROM TO [BYHAND]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], strings.Join(os.Args[3:], "")); err != nil {
		fmt.Fprintln(os.Stderr, "godot4:", err)
		os.Exit(1)
	}
}
