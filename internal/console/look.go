package console

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/subject"
)

// pageOf returns which page of a list a request wants.
func pageOf(r *http.Request) inspect.Query {
	most, err := strconv.Atoi(r.URL.Query().Get("max"))
	if err != nil || most <= 0 {
		most = inspect.PageDefault
	}
	return inspect.Query{After: r.URL.Query().Get("after"), Max: min(most, inspect.PageMax)}
}

// tell answers with what nodes said, or with the reason why they did not.
func (s *Server) tell(w http.ResponseWriter, v any, err error) {
	if err != nil && !s.cfg.Bus.Connected() {
		err = errors.New("no connection to NATS")
	}
	if err != nil {
		problem(w, http.StatusBadGateway, "no_answer", err.Error())
		return
	}
	answer(w, v)
}

func (s *Server) spaces(w http.ResponseWriter, r *http.Request) {
	page, err := s.asker.SpacesPage(r.Context(), pageOf(r))
	s.tell(w, page, err)
}

// A node is what the page shows of a node. One that only gossip knows is Silent.
type node struct {
	Node string `json:"node"`
	Role string `json:"role"`
	*inspect.NodeFacts
	Silent bool `json:"silent,omitempty"`
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	answers, missing, err := s.asker.Nodes(r.Context())
	s.tell(w, nodesOf(answers, missing), err)
}

// nodesOf returns the nodes that answer, and those that do not.
func nodesOf(answers []inspect.NodesAnswer, missing []inspect.Member) inspect.List[node] {
	list := inspect.List[node]{Entries: []node{}}
	for _, a := range answers {
		list.Entries = append(list.Entries, node{Node: a.Node, Role: a.Role, NodeFacts: a.NodeFacts})
	}
	for _, m := range missing {
		list.Entries = append(list.Entries, node{Node: m.Node, Role: m.Role, Silent: true})
	}
	return list
}

// spaceOf returns the space that a request is about, or answers that it is none.
func spaceOf(w http.ResponseWriter, r *http.Request) (space string, ok bool) {
	space = r.URL.Query().Get("space")
	if ok = subject.ValidToken(space); !ok {
		problem(w, http.StatusBadRequest, "bad_request", "want a space: 1 to 64 letters, digits, _ or -")
	}
	return space, ok
}

func (s *Server) clients(w http.ResponseWriter, r *http.Request) {
	space, ok := spaceOf(w, r)
	if !ok {
		return
	}
	q, near := pageOf(r), r.URL.Query().Get("near")
	if near == "" {
		page, err := s.asker.ClientsPage(r.Context(), space, q)
		s.tell(w, page, err)
		return
	}
	place, err := inspect.ParsePlace(near)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", "near: "+err.Error())
		return
	}
	q.Near = &place
	page, err := s.asker.NearPage(r.Context(), space, q)
	s.tell(w, page, err)
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	space, ok := spaceOf(w, r)
	if !ok {
		return
	}
	client, key := r.URL.Query().Get("client"), r.URL.Query().Get("key")
	if !subject.ValidToken(client) || !subject.ValidKey(key) {
		problem(w, http.StatusBadRequest, "bad_request", "want a client and the key of a state")
		return
	}
	facts, err := s.asker.Why(r.Context(), space, client, key)
	if err != nil {
		s.tell(w, nil, err)
		return
	}
	answer(w, inspect.WhyAnswer{Space: space, Client: client, Key: key, Facts: facts, Reasons: inspect.Reasons(facts)})
}
