package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/subject"
)

// How long to wait for answers of nodes, whose number is not known, and how many to take.
const (
	answerPause = 300 * time.Millisecond // behind the last one
	answerWait  = time.Second
	answersMax  = 1000
)

// gather asks all nodes and returns their answers, in the order in which they came.
func (s *Server) gather(ctx context.Context, to string, q inspect.Query) ([]json.RawMessage, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	inbox := s.newInbox()
	came := make(chan bus.Msg, answersMax)
	end, err := s.cfg.Bus.Subscribe(inbox, func(m bus.Msg) {
		select {
		case came <- m:
		default: // there are enough
		}
	})
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.cfg.Bus.Publish(bus.Msg{Subject: to, Reply: inbox, Data: body}); err != nil {
		return nil, err
	}
	var all []json.RawMessage
	over := time.NewTimer(answerWait)
	defer over.Stop()
	pause := time.NewTimer(answerWait)
	defer pause.Stop()
	for len(all) < answersMax {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			return all, nil
		case <-pause.C:
			return all, nil
		case m := <-came:
			if m.NoResponders() {
				return all, nil
			}
			all = append(all, m.Data)
			pause.Reset(answerPause)
		}
	}
	return all, nil
}

// asked returns the answers of all nodes as values; those that say an error, or are no JSON, are left out.
func asked[T any](s *Server, r *http.Request, to string, q inspect.Query) (list []T, err error) {
	all, err := s.gather(r.Context(), to, q)
	for _, data := range all {
		var head inspect.Head
		var v T
		if json.Unmarshal(data, &head) == nil && head.Error == nil && json.Unmarshal(data, &v) == nil {
			list = append(list, v)
		}
	}
	return list, err
}

// page returns which page of a list a request wants.
func page(r *http.Request) inspect.Query {
	most, _ := strconv.Atoi(r.URL.Query().Get("max")) // 0 is the usual number
	return inspect.Query{After: r.URL.Query().Get("after"), Max: min(max(0, most), inspect.PageMax)}
}

func unreachable(w http.ResponseWriter, err error) {
	problem(w, http.StatusBadGateway, "no_answer", "NATS: "+err.Error())
}

func (s *Server) spaces(w http.ResponseWriter, r *http.Request) {
	q := page(r)
	answers, err := asked[inspect.SpacesAnswer](s, r, s.cfg.Subjects.Spaces(), q)
	if err != nil {
		unreachable(w, err)
		return
	}
	var pages []inspect.List[inspect.Space]
	for _, a := range answers {
		pages = append(pages, a.List)
	}
	answer(w, inspect.MergePages(pages, (*inspect.Space).Name))
}

// A node is what the page shows of a node. One that only gossip knows is Missing.
type node struct {
	Node string `json:"node"`
	Role string `json:"role"`
	*inspect.NodeFacts
	Missing bool `json:"missing,omitempty"`
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	answers, err := asked[inspect.NodesAnswer](s, r, s.cfg.Subjects.Nodes(), inspect.Query{Max: inspect.PageMax})
	if err != nil {
		unreachable(w, err)
		return
	}
	list := []node{}
	heard := make(map[[2]string]bool) // role, node
	for _, a := range answers {
		if a.NodeFacts != nil {
			heard[[2]string{a.Role, a.Node}] = true
			list = append(list, node{Node: a.Node, Role: a.Role, NodeFacts: a.NodeFacts})
		}
	}
	for _, a := range answers {
		for _, m := range a.Entries {
			if k := [2]string{m.Role, m.Node}; !heard[k] {
				heard[k] = true
				list = append(list, node{Node: m.Node, Role: m.Role, Missing: true})
			}
		}
	}
	slices.SortFunc(list, func(a, b node) int { return cmp.Or(cmp.Compare(b.Role, a.Role), cmp.Compare(a.Node, b.Node)) })
	answer(w, inspect.List[node]{Entries: list})
}

// space returns the space that a request is about, or answers that it is none.
func space(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	name = r.URL.Query().Get("space")
	if ok = subject.ValidToken(name); !ok {
		problem(w, http.StatusBadRequest, "bad_request", "want a space: 1 to 64 letters, digits, _ or -")
	}
	return name, ok
}

func (s *Server) clients(w http.ResponseWriter, r *http.Request) {
	space, ok := space(w, r)
	if !ok {
		return
	}
	answers, err := asked[inspect.ClientsAnswer](s, r, s.cfg.Subjects.Clients(space), page(r))
	if err != nil {
		unreachable(w, err)
		return
	}
	var pages []inspect.List[inspect.Client]
	for _, a := range answers {
		pages = append(pages, a.List)
	}
	answer(w, inspect.MergePages(pages, (*inspect.Client).Name))
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	space, ok := space(w, r)
	if !ok {
		return
	}
	q := inspect.Query{Client: r.URL.Query().Get("client"), Key: r.URL.Query().Get("key")}
	if !subject.ValidToken(q.Client) || !subject.ValidKey(q.Key) {
		problem(w, http.StatusBadRequest, "bad_request", "want a client and the key of a state")
		return
	}
	answers, err := asked[inspect.WhyAnswer](s, r, s.cfg.Subjects.Why(space), q)
	if err != nil {
		unreachable(w, err)
		return
	}
	var facts []*inspect.Facts
	for _, a := range answers {
		facts = append(facts, a.Facts)
	}
	all := inspect.Merge(facts)
	answer(w, inspect.WhyAnswer{Space: space, Client: q.Client, Key: q.Key, Facts: all, Reasons: inspect.Reasons(all)})
}
