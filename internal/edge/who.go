package edge

import (
	"encoding/json"
	"time"

	"github.com/dnprelay/dnprelay/bus"
)

// A Presence is one session in the answer to the question who is in a space.
type Presence struct {
	Client  string `json:"client"`
	Session string `json:"session"`
}

// A whoAnswer is one edge's answer.
type whoAnswer struct {
	Edge    string     `json:"edge"`
	Space   string     `json:"space"`
	Clients []Presence `json:"clients"`
}

// presencesMax is how many sessions one answer names. An edge with more sends
// several, because a message of NATS has at most 1 MiB.
const presencesMax = 4096

// who answers who is in a space. The question goes from worker to worker, and
// the last one answers for the edge.
func (f *feeds) who(name string, m bus.Msg) {
	if m.Reply == "" {
		return
	}
	f.ask(f.followers(name), m.Reply, whoAnswer{Edge: f.edge.cfg.Node, Space: name, Clients: []Presence{}})
}

func (f *feeds) ask(workers []*Worker, reply string, a whoAnswer) {
	if len(workers) == 0 {
		f.answer(reply, a)
		return
	}
	workers[0].post(0, func(w *Worker, _ time.Time) {
		a.Clients = append(a.Clients, w.presence(a.Space)...)
		f.ask(workers[1:], reply, a)
	})
}

func (f *feeds) answer(reply string, a whoAnswer) {
	all := a.Clients
	for {
		n := min(len(all), presencesMax)
		a.Clients, all = all[:n], all[n:]
		data, err := json.Marshal(a)
		if err != nil {
			panic("edge: an answer that JSON cannot express: " + err.Error())
		}
		_ = f.edge.cfg.Bus.Publish(bus.Msg{Subject: reply, Data: data}) // whoever asks hears from the others
		if len(all) == 0 {
			return
		}
	}
}

// presence returns the sessions of a worker in a space.
func (w *Worker) presence(name string) []Presence {
	s, ok := w.spaces[name]
	if !ok {
		return nil
	}
	all := make([]Presence, len(s.sessions))
	for i, session := range s.sessions {
		all[i] = Presence{Client: session.client, Session: session.id}
	}
	return all
}
