package main

import (
	"regexp"
	"strings"
)

// number is what stands for any number, if it has a fraction of three digits or more, or ten
// digits or more: positions and measured values differ in each run, ports and written values do not.
var number = regexp.MustCompile(`-?\b(?:\d+\.\d{3,}|\d{10,})\b`)

// anyNumber is what such a number matches.
const anyNumber = `-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?`

// pattern returns what matches the printed text that a README shows. "…" alone on a line is any
// number of lines, elsewhere any text of the line. With whole, nothing may follow.
func pattern(shown string, whole bool) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for line := range strings.Lines(shown) {
		line = strings.TrimRight(line, " \n")
		if line == "…" {
			b.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				b.WriteString(`[^\n]*`)
			}
			writeText(&b, part)
		}
		b.WriteString(` *\n`)
	}
	if whole {
		b.WriteString(`\z`)
	}
	return regexp.MustCompile(b.String())
}

// writeText appends the pattern of a text without "…".
func writeText(b *strings.Builder, text string) {
	end := 0
	for _, at := range number.FindAllStringIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[end:at[0]]))
		b.WriteString(anyNumber)
		end = at[1]
	}
	b.WriteString(regexp.QuoteMeta(text[end:]))
}
