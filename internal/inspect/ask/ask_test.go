package ask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// patience bounds the time until a question is answered as it should be. It says nothing about speed.
const patience = 30 * time.Second

// A rig is nodes that say what a test wants, and somebody who asks them.
type rig struct {
	*testing.T
	nodes *nats.Conn
	asker ask.Asker
	names subject.Names
}

func newRig(t *testing.T) *rig {
	t.Helper()
	looks := &server.User{Username: "looks", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject.Names{}.Drain("*")}}}}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, Users: []*server.User{looks, {Username: "node", Password: "p"}}})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	connect := func(user string) *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	r := &rig{T: t, nodes: connect("node")}
	r.asker.Conn = connect("looks")
	return r
}

// node answers questions on a subject, all at once. It gets the number of the question, too.
func (r *rig) node(on string, answers func(q inspect.Query, n int) []any) {
	r.Helper()
	n := 0
	if _, err := r.nodes.Subscribe(on, func(m *nats.Msg) {
		var q inspect.Query
		if err := json.Unmarshal(m.Data, &q); err != nil {
			r.Error(err)
		}
		for _, a := range answers(q, n) {
			data, err := json.Marshal(a)
			if err == nil {
				err = m.Respond(data)
			}
			if err != nil {
				r.Error(err)
			}
		}
		n++
	}); err != nil {
		r.Fatal(err)
	}
	if err := r.nodes.Flush(); err != nil {
		r.Fatal(err)
	}
}

// becomes asks until the answer is the one that it should be: on a machine that stands still, nodes seem not to answer.
func (r *rig) becomes(want string, question func(ctx context.Context) string) {
	r.Helper()
	got, end := "", time.Now().Add(patience)
	for got != want {
		if time.Now().After(end) {
			r.Fatalf("the answer is %s, want %s", got, want)
		}
		got = question(r.Context())
	}
}

func head(node, role, problem string) inspect.Head {
	if problem != "" {
		return inspect.NewHead(node, role, errors.New(problem))
	}
	return inspect.NewHead(node, role, nil)
}

// TestPages: a list has what all nodes have, page by page. A node that is busy is asked again.
func TestPages(t *testing.T) {
	r := newRig(t)
	have := map[string][]string{"r1": {"a", "c", "f"}, "r2": {"b", "d", "e"}}
	r.node(r.names.Spaces(), func(q inspect.Query, n int) (all []any) {
		for node, spaces := range have {
			a := inspect.SpacesAnswer{Head: head(node, "relay", "")}
			page := inspect.NewPage[inspect.Space](inspect.Query{Max: 2, After: q.After})
			for _, s := range spaces {
				page.Offer(s, inspect.Space{Space: s})
			}
			if a.List = page.List(); n%2 == 1 && node == "r2" {
				a = inspect.SpacesAnswer{Head: head(node, "relay", "busy")}
			}
			all = append(all, a)
		}
		return all
	})
	r.becomes("a b c d e f, pages with 6", func(ctx context.Context) string {
		entries := 0
		r.asker.Page = func(n int) { entries += n }
		all, err := r.asker.Spaces(ctx)
		var names []string
		for _, s := range all {
			names = append(names, s.Space)
		}
		return fmt.Sprintf("%s, pages with %d%s", strings.Join(names, " "), entries, said(err))
	})
	if n := r.asker.Conn.NumSubscriptions(); n > 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return ", " + err.Error()
}

// TestNodes: relays come first, and a node that does not answer and that several relays know is missing once.
func TestNodes(t *testing.T) {
	r := newRig(t)
	r.becomes("[] [], no relay and no edge answers", func(ctx context.Context) string {
		all, missing, err := r.asker.Nodes(ctx)
		return fmt.Sprint(all, " ", missing, said(err))
	})
	member := func(names ...string) (l inspect.List[inspect.Member]) {
		for _, n := range names {
			l.Entries = append(l.Entries, inspect.Member{Node: n, Role: "edge"})
		}
		return l
	}
	r.node(r.names.Nodes(), func(inspect.Query, int) []any {
		return []any{
			inspect.NodesAnswer{Head: head("e1", "edge", "")}, inspect.NodesAnswer{Head: head("r2", "relay", ""), List: member("r1", "e1", "e9")},
			inspect.NodesAnswer{Head: head("r1", "relay", ""), List: member("e9", "r2")},
		}
	})
	r.becomes("r1 r2 e1, missing e9", func(ctx context.Context) string {
		all, missing, err := r.asker.Nodes(ctx)
		var there, gone []string
		for _, n := range all {
			there = append(there, n.Head.Node)
		}
		for _, m := range missing {
			gone = append(gone, m.Node)
		}
		return strings.Join(there, " ") + ", missing " + strings.Join(gone, " ") + said(err)
	})
}

// TestWhy: the facts of nodes that serve count, however many answer before them that do not yet.
func TestWhy(t *testing.T) {
	r := newRig(t)
	why := func(edge *inspect.EdgeFacts, holder *inspect.HolderFacts) inspect.WhyAnswer {
		return inspect.WhyAnswer{Head: head("n", "edge", ""), Facts: &inspect.Facts{Edge: edge, Holder: holder}}
	}
	for _, holderFirst := range []bool{false, true} {
		r.node(r.names.Why(fmt.Sprint(holderFirst)), func(q inspect.Query, _ int) []any {
			edge, holder := why(&inspect.EdgeFacts{Edge: "e2", Session: q.Client}, nil), why(nil, &inspect.HolderFacts{Relay: "r2", Known: q.Key == "tower"})
			if holderFirst {
				edge, holder = holder, edge
			}
			return []any{why(nil, nil), why(&inspect.EdgeFacts{Edge: "e1", Adopting: "found"}, nil), why(nil, &inspect.HolderFacts{Relay: "r1", Loading: true}), edge, holder}
		})
		r.becomes("e2 serves ann, r2 knows the state: true", func(ctx context.Context) string {
			f, err := r.asker.Why(ctx, fmt.Sprint(holderFirst), "ann", "tower")
			if err != nil || f.Edge == nil || f.Holder == nil {
				return fmt.Sprint(f, err)
			}
			return fmt.Sprintf("%s serves %s, %s knows the state: %t", f.Edge.Edge, f.Edge.Session, f.Holder.Relay, f.Holder.Known)
		})
	}
}

// TestNear: the nearest client comes first, and one whose distance is not known last.
func TestNear(t *testing.T) {
	r := newRig(t)
	client := func(name string, near *inspect.Nearness) inspect.Client {
		return inspect.Client{Client: name, Session: "s", Near: near}
	}
	at := func(d float64) *inspect.Nearness { return &inspect.Nearness{Eyes: 1, Distance: &d} }
	r.node(r.names.Clients("demo"), func(inspect.Query, int) []any {
		list := func(all ...inspect.Client) inspect.List[inspect.Client] {
			return inspect.List[inspect.Client]{Entries: all}
		}
		return []any{
			inspect.ClientsAnswer{Head: head("e1", "edge", ""), Nowhere: inspect.NoState},
			inspect.ClientsAnswer{Head: head("e2", "edge", ""), List: list(client("a", &inspect.Nearness{Eyes: 1}), client("b", at(5)), client("c", at(1)), client("old", nil))},
		}
	})
	names := func(all []inspect.Client) string {
		var names []string
		for _, c := range all {
			names = append(names, c.Client)
		}
		return strings.Join(names, " ")
	}
	near := inspect.Query{Near: &inspect.Place{Key: "npc"}}
	r.becomes("c b a no_state", func(ctx context.Context) string {
		all, nowhere, err := r.asker.Near(ctx, "demo", near)
		return names(all) + " " + nowhere + said(err)
	})
	r.becomes("c b a", func(ctx context.Context) string {
		page, err := r.asker.NearPage(ctx, "demo", near)
		return names(page.Entries) + said(err)
	})
}

// TestRefused: who may not ask is told so at once, and an earlier refusal says nothing about a later question. A node that
// refuses a question is an error.
func TestRefused(t *testing.T) {
	r := newRig(t)
	var drained atomic.Bool
	r.node(r.names.Drain("*"), func(inspect.Query, int) []any { drained.Store(true); return nil })
	_, err := r.asker.Drain(t.Context(), "e1")
	if err == nil || !strings.Contains(err.Error(), "may not publish") || drained.Load() {
		t.Errorf("a drain without the right: %v; it came to the edge: %t", err, drained.Load())
	}
	r.node(r.names.Spaces(), func(inspect.Query, int) []any {
		return []any{inspect.SpacesAnswer{Head: head("r1", "relay", ""), List: inspect.List[inspect.Space]{Entries: []inspect.Space{{Space: "a"}}}}}
	})
	r.becomes("1", func(ctx context.Context) string {
		page, err := r.asker.SpacesPage(ctx, inspect.Query{})
		return fmt.Sprint(len(page.Entries), said(err))
	})
	r.node(r.names.Clients("demo"), func(inspect.Query, int) []any {
		return []any{inspect.ClientsAnswer{Head: head("e1", "edge", "bad_request")}}
	})
	r.becomes(", a node answers bad_request to "+r.names.Clients("demo"), func(ctx context.Context) string {
		_, err := r.asker.ClientsPage(ctx, "demo", inspect.Query{})
		return said(err)
	})
	r.asker.Conn = r.nodes
	closed := inspect.DrainAnswer{Head: head("e2", "edge", ""), Sessions: "closed"}
	r.node(r.names.Drain("e2"), func(inspect.Query, int) []any { return []any{closed} })
	r.becomes("closed", func(ctx context.Context) string {
		a, err := r.asker.Drain(ctx, "e2")
		return a.Sessions + said(err)
	})
}
