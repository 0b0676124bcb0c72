package top

import (
	"fmt"
	"strings"

	"github.com/dnprelay/dnprelay/internal/inspect"
)

// A page is a kind of screen.
type page uint8

const (
	overview page = iota
	spaces
	nodes
	clients
	states
	reasons
	pages
)

// titles are the names of the pages that a key opens.
var titles = [...]string{overview: "Overview", spaces: "Spaces", nodes: "Nodes", clients: "Clients", states: "States"}

// orders are by what the pages are sorted at first: the busiest come first.
var orders = [pages]order{spaces: {column: 5}, nodes: {column: 1, reverse: true}, clients: {column: 3}, states: {column: 1}}

// table returns the rows of a page that is a list.
func (m *Model) table(p page) table {
	return [...]func() table{spaces: m.spaces, nodes: m.nodes, clients: m.clients, states: m.states}[p]()
}

func (m *Model) spaces() table {
	t := table{columns: []column{{"SPACE", false}, {"STATES", true}, {"CLIENTS", true}, {"PUBLISH/S", true}, {"BATCH/S", true}, {"BYTES/S", true},
		{"HOLDER", false}, {"STATE", false}, {"HELD FOR", true}, {"SHARD", true}, {"EPOCH", true}}}
	for i := range m.rates {
		s := &m.rates[i]
		if m.at.node != "" && s.Holder != m.at.node {
			continue
		}
		state := "stored"
		switch {
		case !s.Serving:
			state = "loading"
		case !s.Durable:
			state = "not stored"
		}
		t.rows = append(t.rows, row{id: s.Space.Space, alarm: !s.Serving || !s.Durable, cells: []cell{
			text(s.Space.Space), count(s.States), count(s.Space.Clients), rate(s.PublishRate), rate(s.BatchRate), rate(s.ByteRate),
			text(s.Holder), text(state), span(s.Since), count(s.Shard), count(s.Epoch),
		}})
	}
	return t
}

// span returns a cell with a time.
func span(d inspect.Millis) cell { return cell{text: d.Brief(), n: float64(d)} }

func (m *Model) nodes() table {
	t := table{columns: []column{{"NODE", false}, {"ROLE", false}, {"CLIENTS", true}, {"SPACES", true}, {"SHARDS", true}, {"WAITING", true},
		{"UP FOR", true}, {"STATE", false}, {"VERSION", false}}}
	for i := range m.now.Nodes {
		n := &m.now.Nodes[i]
		facts := n.NodeFacts
		if facts == nil {
			facts = &inspect.NodeFacts{}
		}
		state := facts.Condition()
		t.rows = append(t.rows, row{id: n.Role + " " + n.Head.Node, alarm: state != "ready", cells: []cell{
			text(n.Head.Node), text(n.Role), count(facts.Clients), count(facts.Spaces), count(facts.Shards), count(facts.Waiting),
			span(facts.Uptime), text(state), text(facts.Version),
		}})
	}
	for _, n := range m.now.Missing {
		t.rows = append(t.rows, row{id: n.Role + " " + n.Node, alarm: true, cells: []cell{
			text(n.Node), text(n.Role), {text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}, text("silent"), text(n.Version),
		}})
	}
	return t
}

func (m *Model) clients() table {
	t := table{columns: []column{{"CLIENT", false}, {"EDGE", false}, {"LINKS", true}, {"WAITING", true}, {"BUDGET", true}, {"LOSS", true}, {"RTT", true},
		{"HEARD", true}, {"SPACE", false}, {"CARRIER", false}, {"FOR", true}, {"ADDRESS", false}}}
	for i := range m.now.Clients {
		c := &m.now.Clients[i]
		if m.at.node != "" && c.Edge != m.at.node || m.at.space != "" && c.Space != m.at.space {
			continue
		}
		rtt := cell{text: "-"}
		if c.Path.RTT > 0 {
			rtt = span(c.Path.RTT)
		}
		t.rows = append(t.rows, row{id: clientID(c), alarm: c.Path.Away, cells: []cell{
			text(c.Client.Client), text(c.Edge), count(c.Links.Up), count(c.Links.Waiting), percent(c.Path.Used), percent(c.Path.Loss), rtt,
			span(c.Path.Heard), text(c.Space), text(c.Carrier), span(c.Age), text(c.Address),
		}})
	}
	return t
}

// clientID returns what names a session among those of all spaces.
func clientID(c *Client) string { return c.Space + " " + c.Name() }

func percent(share float64) cell { return cell{text: fmt.Sprintf("%.0f%%", 100*share), n: share} }

func (m *Model) states() table {
	t := table{columns: []column{{"STATE", false}, {"CHANGES/S", true}, {"BYTES/S", true}, {"CHANGES", true}, {"BYTES", true}}}
	for i := range m.stateRates {
		s := &m.stateRates[i]
		t.rows = append(t.rows, row{id: s.Key, cells: []cell{
			text(s.Key), rate(s.changeRate), rate(s.byteRate), amount(s.Changes), amount(s.Bytes),
		}})
	}
	return t
}

// note says below the tabs what a page is about.
func (m *Model) note() string {
	switch p := m.at.page; {
	case p == states && m.at.client != "":
		return m.aboutClient()
	case p == states && m.now.Unknown != "":
		return "States: " + m.now.Unknown
	case p == states && m.now.Followed != "":
		return fmt.Sprintf("%d states of space %s", len(m.stateRates), m.now.Followed)
	case p == states:
		return "States: no space has any"
	case p == clients && m.at.node != "":
		return "Clients of edge " + m.at.node
	case p == clients && m.at.space != "":
		return "Clients of space " + m.at.space
	case p == clients:
		return "Clients of the spaces with the most clients"
	case p == spaces && m.at.node != "":
		return "Spaces that relay " + m.at.node + " holds"
	}
	return ""
}

// aboutClient describes the client for whose view states are listed.
func (m *Model) aboutClient() string {
	for i := range m.now.Clients {
		c := &m.now.Clients[i]
		if c.Space != m.at.space || c.Client.Client != m.at.client {
			continue
		}
		list := []string{
			"client " + c.Client.Client, "edge " + c.Edge, c.Carrier + " " + c.Address, fmt.Sprintf("%d links", c.Links.Up),
			fmt.Sprintf("loss %.0f %%", 100*c.Path.Loss), fmt.Sprintf("budget %.0f %%", 100*c.Path.Used),
		}
		if c.Path.Away {
			list = append(list, "away")
		}
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("client %s, which is not in space %s at present", m.at.client, m.at.space)
}

// keys says at the bottom what a key does.
func (m *Model) keys() string {
	switch m.at.page {
	case overview:
		return "1-5 pages  tab, ↵ open a list  p pause  ? keys  q quit"
	case reasons:
		return "esc back  ↑↓ move  p pause  q quit"
	}
	enter := [...]string{spaces: "↵ states  c clients", nodes: "↵ what it has", clients: "↵ states", states: "↵ clients"}[m.at.page]
	if m.at.page == states && m.at.client != "" {
		enter = "↵ why"
	}
	return enter + "  esc back  ↑↓ move  s sort  r reverse  ? keys  q quit"
}

// help is what the key ? shows.
var help = strings.Split(`Keys

1 2 3 4 5      overview, spaces, nodes, clients, states
↑ ↓ k j        move; PgUp, PgDn, Home and End, too
↵ or →         open: a space has states, a relay spaces, an edge clients,
               a client states, and a state of a client the reasons why
               the client has what it has of it
c              the clients of a space
esc or ←       back
tab            on the overview: the next list
s S            sort by the next column, by the one before
r              reverse the order
p or space     pause, and go on
q or Ctrl-C    quit

Rates are those of the last second. The states are those of one space: the
one that you opened, or the busiest.`, "\n")
