package inspect

import (
	"cmp"
	"slices"
)

// A List is one page of an answer: entries in the order of their names. Next is the name
// behind which the next page begins, empty if there is none.
type List[T any] struct {
	Entries []T    `json:"entries"`
	Next    string `json:"next,omitempty"`
}

// A Page selects the entries of one page: the first ones behind the name in the request. It
// holds no more than that, however many are offered.
type Page[T any] struct {
	after   string
	max     int
	entries []entry[T] // ascending by name
	more    bool
}

type entry[T any] struct {
	name  string
	value T
}

// NewPage returns an empty page for a parsed query.
func NewPage[T any](q Query) *Page[T] { return &Page[T]{after: q.After, max: max(1, q.Max)} }

// Offer gives the page an entry. One that it has by this name already is replaced.
func (p *Page[T]) Offer(name string, value T) {
	if name <= p.after {
		return
	}
	full := len(p.entries) == p.max
	if full && name > p.entries[p.max-1].name {
		p.more = true
		return
	}
	at, known := slices.BinarySearchFunc(p.entries, name, func(e entry[T], name string) int { return cmp.Compare(e.name, name) })
	switch {
	case known:
		p.entries[at].value = value
		return
	case full:
		p.more = true
		p.entries = p.entries[:p.max-1]
	}
	p.entries = slices.Insert(p.entries, at, entry[T]{name, value})
}

// Values returns the entries in the order of their names.
func (p *Page[T]) Values() []T {
	all := make([]T, len(p.entries))
	for i, e := range p.entries {
		all[i] = e.value
	}
	return all
}

// Next returns the name behind which the next page begins, or nothing.
func (p *Page[T]) Next() string {
	if !p.more {
		return ""
	}
	return p.entries[len(p.entries)-1].name
}

// List returns the page.
func (p *Page[T]) List() List[T] { return List[T]{Entries: p.Values(), Next: p.Next()} }

// MergePages puts the pages of several nodes together: entries of which some node may have
// more in between are left for the next page.
func MergePages[T any](pages []List[T], name func(*T) string) List[T] {
	all := List[T]{Entries: []T{}}
	for _, p := range pages {
		if p.Next != "" && (all.Next == "" || p.Next < all.Next) {
			all.Next = p.Next
		}
		all.Entries = append(all.Entries, p.Entries...)
	}
	if all.Next != "" {
		all.Entries = slices.DeleteFunc(all.Entries, func(e T) bool { return name(&e) > all.Next })
	}
	slices.SortStableFunc(all.Entries, func(a, b T) int { return cmp.Compare(name(&a), name(&b)) })
	return all
}

// Cut leaves at most so many entries of a list, the first ones.
func Cut[T any](l List[T], most int, name func(*T) string) List[T] {
	if len(l.Entries) > most {
		l.Entries = l.Entries[:most]
		l.Next = name(&l.Entries[most-1])
	}
	return l
}

// Page returns the page of an answer.
func (a SpacesAnswer) Page() List[Space] { return a.List }

// Page returns the page of an answer.
func (a ClientsAnswer) Page() List[Client] { return a.List }

// Name returns the name of a space in its list.
func (s *Space) Name() string { return s.Space }

// Name returns the name of a client in its list. A client may have two sessions for a moment.
func (c *Client) Name() string { return ClientName(c.Client, c.Session) }

// ClientName returns the name of a session of a client in a list.
func ClientName(client, session string) string { return client + " " + session }

// Name returns the name of a member in its list.
func (m *Member) Name() string { return m.Node }
