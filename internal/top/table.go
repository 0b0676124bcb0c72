package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// Control sequences of terminals (ECMA-48). Where there is no colour, bubbletea leaves the colours out, so none
// of them says something that words do not say.
const (
	bold     = "\x1b[1m"
	faint    = "\x1b[2m"
	reversed = "\x1b[7m"
	red      = "\x1b[31m"
	plain    = "\x1b[0m"
)

// Widths of columns of names. The numbers are arbitrary.
const (
	nameMax   = 28
	nameMin   = 8  // below it, columns on the right are left out
	firstMin  = 20 // the same for the column that says what the row is about
	columnGap = 2
)

// A column is a column of a table.
type column struct {
	title  string
	number bool // aligned to the right, and the highest come first
}

// A cell is text, and for columns of numbers what it is sorted by.
type cell struct {
	text string
	n    float64
}

// A row is a line of a table.
type row struct {
	id    string // stays the same from reading to reading
	cells []cell
	alarm bool // something is wrong
}

// A table is a list of rows with a heading. Names of other programs are in it only through text.
type table struct {
	columns []column
	rows    []row
}

// text returns a cell with what other programs say.
func text(s string) cell { return cell{text: Printable(s)} }

// Printable returns text for a terminal, which text of other programs must not control: every character that is not
// printable is replaced.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// count returns a cell with a whole number.
func count[N int | uint64](n N) cell { return cell{text: fmt.Sprint(n), n: float64(n)} }

// amount returns a cell with a number of at most five characters.
func amount(n uint64) cell { return cell{text: short(float64(n)), n: float64(n)} }

// rate returns a cell with a number a second.
func rate(n float64) cell {
	if n > 0 && n < 100 {
		return cell{text: fmt.Sprintf("%.1f", n), n: n}
	}
	return cell{text: short(n), n: n}
}

// short returns a number of at most five characters.
func short(n float64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%.0f", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.0fk", n/1e3)
	case n < 10_000_000_000:
		return fmt.Sprintf("%.0fM", n/1e6)
	}
	return fmt.Sprintf("%.0fG", n/1e9)
}

// An order says by which column a table is sorted.
type order struct {
	column  int
	reverse bool
}

// sort sorts the rows. Equal ones stay in the order of their ids, so that rows do not jump.
func (t *table) sort(by order) {
	if by.column >= len(t.columns) {
		return
	}
	sign := 1
	if t.columns[by.column].number != by.reverse {
		sign = -1
	}
	slices.SortFunc(t.rows, func(x, y row) int {
		a, b := x.cells[by.column], y.cells[by.column]
		if t.columns[by.column].number {
			return cmp.Or(sign*cmp.Compare(a.n, b.n), cmp.Compare(x.id, y.id))
		}
		return cmp.Or(sign*cmp.Compare(a.text, b.text), cmp.Compare(x.id, y.id))
	})
}

// widths returns the widths of the columns that fit.
func (t *table) widths(rows []row, width int, by order) (list []int) {
	sum := 0
	for i, c := range t.columns {
		title := ansi.StringWidth(c.title)
		if i == by.column {
			title++ // for its mark
		}
		w := title
		for _, r := range rows {
			w = max(w, ansi.StringWidth(r.cells[i].text))
		}
		w = min(w, max(nameMax, title))
		list = append(list, w)
		sum += w + columnGap
	}
	for sum -= columnGap; sum > width && len(list) > 1; {
		if at := t.widestName(list); at >= 0 {
			list[at]--
			sum--
		} else {
			sum -= list[len(list)-1] + columnGap
			list = list[:len(list)-1]
		}
	}
	return list
}

// widestName returns the column of names that can be narrower, or -1.
func (t *table) widestName(widths []int) (at int) {
	at = -1
	for i, w := range widths {
		least := max(nameMin, ansi.StringWidth(t.columns[i].title)+1)
		if i == 0 {
			least = max(firstMin, least)
		}
		if !t.columns[i].number && w > least && (at < 0 || w > widths[at]) {
			at = i
		}
	}
	return at
}

// lines returns the heading and some of the rows, each of them with the given width. The row at the cursor is
// marked; -1 is none.
func (t *table) lines(rows []row, width int, by order, cursor int) (list []string) {
	widths := t.widths(rows, width, by)
	head := make([]string, len(widths))
	for i := range widths {
		title, mark := t.columns[i].title, ""
		if i == by.column {
			if mark = "▾"; t.columns[i].number == by.reverse {
				mark = "▴"
			}
		}
		head[i] = title + mark
	}
	list = append(list, bold+t.join(head, widths, width)+plain)
	for n, r := range rows {
		texts := make([]string, len(widths))
		for i := range widths {
			texts[i] = r.cells[i].text
		}
		line := t.join(texts, widths, width)
		switch {
		case n == cursor:
			line = reversed + line + plain
		case r.alarm:
			line = red + line + plain
		}
		list = append(list, line)
	}
	return list
}

// join returns a line with texts in columns, and fills the width.
func (t *table) join(texts []string, widths []int, width int) string {
	var b strings.Builder
	for i, s := range texts {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", columnGap))
		}
		s = ansi.Truncate(s, widths[i], "…")
		space := strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(s)))
		if t.columns[i].number {
			b.WriteString(space + s)
		} else {
			b.WriteString(s + space)
		}
	}
	return fill(b.String(), width)
}

// fill makes a text without styles as wide as a line.
func fill(s string, width int) string {
	s = ansi.Truncate(s, max(0, width), "…")
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}
