package systest

import (
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A gameInbox is the game servers' side: it keeps each message once, as a game server
// does by the number.
type gameInbox struct {
	mu        sync.Mutex
	bySession map[string]*inbox
	doubled   int
}

type inbox struct {
	client string
	next   uint64 // number that was not seen yet
	texts  []string
}

type feed struct {
	g         *gameInbox
	box       *inbox
	delivered func(uint64)
}

func (g *gameInbox) Begin(_, client, id string, delivered func(uint64)) edge.Feed {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bySession[id] == nil {
		g.bySession[id] = &inbox{client: client}
	}
	return &feed{g, g.bySession[id], delivered}
}

func (f *feed) Deliver(m sessionlog.Message) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if m.Number < f.box.next {
		f.g.doubled++ // an adoption delivers again what may not have come
	} else {
		f.box.next = m.Number + 1
		f.box.texts = append(f.box.texts, string(m.Data))
	}
	go f.delivered(m.Number) // never before Deliver returns
}

func (f *feed) End() {}

// await waits for the sessions, by client, until each has n messages.
func (g *gameInbox) await(p *pair, sessions, n int) (list []inbox) {
	p.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		list = nil
		enough := 0
		g.mu.Lock()
		for _, b := range g.bySession {
			list = append(list, inbox{client: b.client, texts: append([]string(nil), b.texts...)})
			if len(b.texts) >= n {
				enough++
			}
		}
		g.mu.Unlock()
		if enough >= sessions {
			return list
		}
		if time.Now().After(end) {
			p.Fatalf("%d sessions, of which %d have %d messages; want %d sessions: %v", len(list), enough, n, sessions, list)
		}
	}
}
