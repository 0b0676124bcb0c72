package top

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// Lines of the screen that are not of a list: two above, and one below.
const (
	linesAbove = 2
	linesBelow = 1
)

// View returns the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "dnpctl top"
	return v
}

// screen returns the lines of the screen, as many as it has and none of them wider.
func (m *Model) screen() []string {
	list := []string{m.header(), m.tabs()}
	switch {
	case m.help:
		list = append(list, help...)
	case m.at.page == overview:
		list = append(list, m.overview()...)
	case m.at.page == reasons:
		list = append(list, m.reasons()...)
	default:
		list = append(list, m.list()...)
	}
	list = list[:min(len(list), max(0, m.height-linesBelow))]
	for len(list) < m.height-linesBelow {
		list = append(list, "")
	}
	list = append(list, faint+fill(m.keys(), m.width)+plain)
	for i, line := range list {
		if ansi.StringWidth(line) > m.width {
			list[i] = ansi.Truncate(line, m.width, "") + plain
		}
	}
	return list
}

// room returns how many rows a list shows.
func (m *Model) room() int {
	n := m.height - linesAbove - linesBelow - 1 // the heading
	if m.note() != "" {
		n--
	}
	return max(1, n)
}

// header says how the deployment is as a whole.
func (m *Model) header() string {
	var rate float64
	for _, s := range m.rates {
		rate += s.ByteRate
	}
	var relays, edges, players int
	for _, n := range m.now.Nodes {
		switch {
		case n.Role == "relay":
			relays++
		case n.NodeFacts != nil:
			edges++
			players += n.Clients
		}
	}
	parts := []string{plural(relays, "relay"), plural(edges, "edge")}
	if n := len(m.now.Missing); n > 0 {
		parts = append(parts, fmt.Sprintf("%d silent", n))
	}
	parts = append(parts, plural(len(m.now.Spaces), "space"), plural(players, "client"), short(rate)+" bytes/s")
	left, right := " "+strings.Join(parts, ", "), ""
	if !m.now.At.IsZero() {
		right = m.now.At.Format("15:04:05") + " "
	}
	if m.paused {
		right = "paused at " + right
	}
	if m.trouble != nil {
		return red + fill(" "+Printable(m.trouble.Error()), m.width-len(right)) + plain + right
	}
	if m.now.At.IsZero() {
		left = " asking the nodes"
	}
	return bold + fill(left, m.width-len(right)) + right + plain
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// tabs lists the pages.
func (m *Model) tabs() string {
	var b strings.Builder
	for p, title := range titles {
		entry := fmt.Sprintf(" %d %s ", p+1, title)
		if m.at.page == page(p) || m.at.page == reasons && page(p) == states {
			entry = reversed + entry + plain
		}
		b.WriteString(entry)
	}
	return b.String()
}

// list returns a page that is one table.
func (m *Model) list() (list []string) {
	if note := m.note(); note != "" {
		list = append(list, faint+fill(" "+Printable(note), m.width)+plain)
	}
	t := m.sorted(m.at.page)
	shown := t.rows[m.offset:min(len(t.rows), m.offset+m.room())]
	return append(list, t.lines(shown, m.width, m.orders[m.at.page], m.cursor(t.rows)-m.offset)...)
}

// overview returns the first rows of all lists. A list that needs less than its share leaves the rest to others.
func (m *Model) overview() (list []string) {
	all := []page{spaces, nodes, clients, states}
	room := max(0, m.height-linesAbove-linesBelow-len(all))
	tables := make([]table, len(all))
	for i, p := range all {
		tables[i] = m.sorted(p)
	}
	for i, share := range shares(tables, room) {
		lines := tables[i].lines(tables[i].rows[:share], m.width, m.orders[all[i]], -1)
		if all[i] == m.mark {
			lines[0] = reversed + ansi.Strip(lines[0]) + plain
		}
		list = append(list, lines...)
	}
	return list
}

// shares divides lines among tables: one after the other gets a line, until nothing is left or needed.
func shares(tables []table, room int) []int {
	got := make([]int, len(tables))
	for given := true; given && room > 0; {
		given = false
		for i := range tables {
			if room > 0 && got[i] < len(tables[i].rows) {
				got[i]++
				room--
				given = true
			}
		}
	}
	return got
}

// reasons returns the page that says why a client has what it has.
func (m *Model) reasons() (list []string) {
	w := &m.why
	head := fmt.Sprintf(" Why client %s has what it has of %s in space %s", m.at.client, m.at.key, m.at.space)
	list = append(list, bold+fill(Printable(head), m.width)+plain, "")
	switch {
	case w.err != nil:
		return append(list, wrapped("! ", Printable(w.err.Error()), m.width)...)
	case !w.known:
		return append(list, "  asking the nodes")
	}
	verdict := "The client has the newest values."
	if slices.ContainsFunc(w.reasons, func(r inspect.Reason) bool { return r.Blocks }) {
		verdict = "The client does not have the newest values, because of what ! marks."
	}
	list = append(list, wrapped("  ", verdict, m.width)...)
	return slices.Concat(list, []string{""}, m.because()[m.offset:])
}

// because returns the lines with the reasons.
func (m *Model) because() (list []string) {
	for _, r := range m.why.reasons {
		mark := "  "
		if r.Blocks {
			mark = "! "
		}
		list = append(list, wrapped(mark, Printable(r.Text), m.width)...)
	}
	return list
}

// wrapped breaks a text into lines, behind a mark.
func wrapped(mark, s string, width int) (list []string) {
	for i, line := range strings.Split(ansi.Wordwrap(s, max(1, width-len(mark)), ""), "\n") {
		if i > 0 {
			mark = strings.Repeat(" ", len(mark))
		}
		list = append(list, mark+line)
	}
	return list
}
