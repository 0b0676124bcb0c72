package config

import (
	"fmt"
	"slices"
	"strings"
)

// nearMax is how many letters may differ between a name and the one that was meant. The value is
// arbitrary.
const nearMax = 2

// misspelt returns a line for each variable of the environment that no flag of this program
// reads, but whose name is almost that of one. Other variables may be for other programs.
func (s *parser) misspelt(environ []string) (lines []string) {
	var known []string
	for _, flag := range s.flags() {
		known = append(known, flag.Envs...)
	}
	for _, text := range environ {
		name, _, _ := strings.Cut(text, "=")
		if !strings.HasPrefix(name, envPrefix+"_") || slices.Contains(known, name) {
			continue
		}
		if near := nearest(name, known); near != "" {
			lines = append(lines, fmt.Sprintf("environment variable %s is of no flag%s", name, suggestion("", near)))
		}
	}
	slices.Sort(lines)
	return lines
}

// suggestion names what was meant, if there is something.
func suggestion(prefix, near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", prefix+near)
}

// nearest returns the most similar name, the first in alphabetical order, or nothing.
func nearest(name string, names []string) string {
	best, found := min(nearMax, len(name)/3)+1, ""
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := distance(name, n); d < best {
			best, found = d, n
		}
	}
	return found
}

// distance is how many letters have to be inserted, removed, replaced or exchanged with their
// neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
