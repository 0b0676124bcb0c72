package top

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// A Source is where readings come from. Its methods wait for the deployment, each call in a goroutine of its own.
type Source interface {
	// Read returns the next reading, about once a second.
	Read(w Want) Reading
	// Why returns what the nodes know of a client and a state.
	Why(space, client, key string) (*inspect.Facts, error)
}

// A place is where a person is: a page, and what was opened on the way there.
type place struct {
	page                     page
	space, node, client, key string
	cursor                   string // id of the row; empty: the first
}

// A Model is the state of the screen. Its owner is the program of bubbletea.
type Model struct {
	source        Source
	width, height int

	at     place
	back   []place // where the key esc leads; at most backMax
	orders [pages]order
	mark   page // the list of the overview that the key enter opens
	offset int  // the first row of the page that is shown
	help   bool
	paused bool

	round      uint64 // of the reading that is awaited
	now        Reading
	trouble    error // of the last reading
	rates      []SpaceRate
	stateRates []stateRate

	why why
}

// backMax is how many places the key esc finds again. The number is arbitrary.
const backMax = 16

// A why is the answer to why a client has what it has of a state.
type why struct {
	space, client, key string
	reasons            []inspect.Reason
	err                error
	known              bool
}

// New returns the model of a screen of 80×24 characters, until a message says its size.
func New(s Source) *Model {
	return &Model{source: s, width: 80, height: 24, orders: orders, mark: spaces, at: place{page: overview}}
}

// Init asks for the first reading.
func (m *Model) Init() tea.Cmd { return m.read(true) }

// read asks for a reading, and makes the model forget one that is under way.
func (m *Model) read(now bool) tea.Cmd {
	m.round++
	w := Want{Space: m.at.space, Now: now, Round: m.round}
	return func() tea.Msg { return m.source.Read(w) }
}

// askWhy asks for the reasons of the page.
func (m *Model) askWhy() tea.Cmd {
	if m.at.page != reasons {
		return nil
	}
	w := why{space: m.at.space, client: m.at.client, key: m.at.key, known: true}
	return func() tea.Msg {
		facts, err := m.source.Why(w.space, w.client, w.key)
		if w.err = err; err == nil {
			w.reasons = inspect.Reasons(facts)
		}
		return w
	}
}

// Update takes a message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var ask tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(1, msg.Width), max(1, msg.Height)
	case Reading:
		ask = m.take(msg)
	case why:
		if msg.space == m.at.space && msg.client == m.at.client && msg.key == m.at.key && !m.paused {
			m.why = msg
		}
	case tea.KeyPressMsg:
		ask = m.press(msg.String())
	}
	m.scroll()
	return m, ask
}

// scroll keeps the row of the cursor on the screen.
func (m *Model) scroll() {
	switch m.at.page {
	case overview:
		m.offset = 0
	case reasons:
		m.offset = max(0, min(m.offset, len(m.because())-1))
	default:
		rows := m.sorted(m.at.page).rows
		room, cursor := m.room(), m.cursor(rows)
		m.offset = min(m.offset, cursor, max(0, len(rows)-room))
		m.offset = max(m.offset, cursor-room+1, 0)
	}
}

// take takes a reading, and asks for the next one.
func (m *Model) take(r Reading) tea.Cmd {
	if r.Round != m.round {
		return nil
	}
	if m.trouble = r.Err; r.Err == nil && !m.paused {
		m.rates = SpaceRates(m.now.Spaces, r.Spaces)
		m.stateRates = stateRates(m.now, r)
		m.now = r
	}
	return tea.Batch(m.read(false), m.askWhy())
}

// press does what a key asks for.
func (m *Model) press(key string) tea.Cmd {
	if m.help && key != "q" && key != "ctrl+c" {
		m.help = false
		return nil
	}
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "?", "h":
		m.help = true
	case "p", "space":
		m.paused = !m.paused
	case "1", "2", "3", "4", "5":
		return m.open(place{page: page(key[0] - '1'), space: m.at.space})
	case "esc", "left", "backspace":
		return m.leave()
	case "enter", "right":
		return m.enter()
	case "c":
		if id, ok := m.selected(); ok && m.at.page == spaces {
			return m.open(place{page: clients, space: id})
		}
	case "s":
		m.sortBy(1)
	case "S":
		m.sortBy(-1)
	case "r":
		m.orders[m.at.page].reverse = !m.orders[m.at.page].reverse
	default:
		m.move(key)
	}
	return nil
}

// open goes to a place, from which the key esc leads back.
func (m *Model) open(p place) tea.Cmd {
	if len(m.back) == backMax {
		m.back = slices.Delete(m.back, 0, 1)
	}
	m.back = append(m.back, m.at)
	return m.arrive(p)
}

// leave goes back: to the place before, or to the busiest spaces.
func (m *Model) leave() tea.Cmd {
	if len(m.back) == 0 {
		return m.arrive(place{page: overview})
	}
	p := m.back[len(m.back)-1]
	m.back = m.back[:len(m.back)-1]
	return m.arrive(p)
}

// arrive asks for what the place shows, if the last reading does not have it.
func (m *Model) arrive(p place) tea.Cmd {
	other := p.space != m.at.space
	m.at, m.offset, m.why = p, 0, why{}
	if p.page == overview {
		m.mark = spaces
	}
	ask := m.askWhy()
	if other {
		return tea.Batch(m.read(true), ask)
	}
	return ask
}

// enter opens what the cursor is on.
func (m *Model) enter() tea.Cmd {
	if m.at.page == overview {
		return m.open(place{page: m.mark, space: m.at.space})
	}
	id, ok := m.selected()
	if !ok {
		return nil
	}
	switch m.at.page {
	case spaces:
		return m.open(place{page: states, space: id})
	case nodes:
		return m.openNode(id)
	case clients:
		for i := range m.now.Clients {
			if c := &m.now.Clients[i]; clientID(c) == id {
				return m.open(place{page: states, space: c.Space, client: c.Client.Client})
			}
		}
	case states:
		if m.at.client != "" {
			return m.open(place{page: reasons, space: m.at.space, client: m.at.client, key: id})
		}
		return m.open(place{page: clients, space: m.now.Followed})
	}
	return nil
}

// openNode opens the spaces of a relay, or the clients of an edge. A relay and an edge may have one name.
func (m *Model) openNode(id string) tea.Cmd {
	role, name, _ := strings.Cut(id, " ")
	if role == "edge" {
		return m.open(place{page: clients, node: name})
	}
	return m.open(place{page: spaces, node: name})
}

// sortBy sorts by a column further right or left.
func (m *Model) sortBy(step int) {
	if m.at.page == overview || m.at.page == reasons {
		return
	}
	o := &m.orders[m.at.page]
	n := len(m.table(m.at.page).columns)
	*o = order{column: (o.column + step + n) % n}
}

// move moves the cursor.
func (m *Model) move(key string) {
	switch {
	case m.at.page == overview:
		m.moveMark(key)
		return
	case m.at.page == reasons:
		m.offset = max(0, m.offset+m.step(key, 1<<20))
		return
	}
	rows := m.sorted(m.at.page).rows
	if len(rows) == 0 {
		return
	}
	to := m.cursor(rows) + m.step(key, len(rows))
	m.at.cursor = rows[min(max(0, to), len(rows)-1)].id
}

// step returns by how many rows a key moves.
func (m *Model) step(key string, all int) int {
	switch key {
	case "up", "k":
		return -1
	case "down", "j":
		return 1
	case "pgup":
		return -m.room()
	case "pgdown":
		return m.room()
	case "home", "g":
		return -all
	case "end", "G":
		return all
	}
	return 0
}

func (m *Model) moveMark(key string) {
	const lists = int(states - spaces + 1)
	step := 0
	switch key {
	case "tab", "down", "j":
		step = 1
	case "shift+tab", "up", "k":
		step = lists - 1
	}
	m.mark = spaces + page((int(m.mark-spaces)+step)%lists)
}

// sorted returns the table of a page in its order.
func (m *Model) sorted(p page) table {
	t := m.table(p)
	t.sort(m.orders[p])
	return t
}

// cursor returns the row of the cursor. A row that is gone leaves it at the top.
func (m *Model) cursor(rows []row) int {
	return max(0, slices.IndexFunc(rows, func(r row) bool { return r.id == m.at.cursor }))
}

// selected returns the id of the row of the cursor.
func (m *Model) selected() (id string, ok bool) {
	if m.at.page == overview || m.at.page == reasons {
		return "", false
	}
	rows := m.sorted(m.at.page).rows
	if len(rows) == 0 {
		return "", false
	}
	return rows[m.cursor(rows)].id, true
}
