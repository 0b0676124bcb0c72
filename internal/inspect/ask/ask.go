// Package ask asks the nodes of a deployment, over NATS, the questions of package inspect, and puts their answers
// together.
//
//	a := ask.Asker{Conn: nc}
//	spaces, err := a.Spaces(ctx)
//	facts, err := a.Why(ctx, "demo", "alice", "tower")
//
// An asker does not know how many nodes will answer, so it waits for more after each answer, and never
// longer than a second for a page.
package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// Times and bounds of a question.
const (
	limit      = time.Second            // for all answers
	drainLimit = 10 * time.Second       // for the one answer to a request to drain, which an edge under load may owe for long
	quiet      = 300 * time.Millisecond // after the last answer
	busyPause  = 300 * time.Millisecond // before a question to busy nodes is asked again
	busyMax    = 5
	answersMax = 10_000
	pagesMax   = 1000
)

// ErrNone says that no node answered.
var ErrNone = errors.New("no relay and no edge answers")

// An Asker asks over a connection, which its caller closes.
type Asker struct {
	Conn     *nats.Conn
	Subjects subject.Names

	// Page, if set, is called with the number of entries of each page of a list.
	Page func(entries int)
}

// An answer is one of the answers of package inspect.
type answer interface{ Code() string }

// A question is what an Asker asks.
type question[T answer] struct {
	subject string
	query   inspect.Query
	limit   time.Duration          // for all answers; 0 for the usual one
	enough  func(answers []T) bool // ends it early; nil for never
}

// ask returns the answers to one question. Nodes that are busy are asked again.
func ask[T answer](ctx context.Context, a *Asker, q question[T]) (all []T, err error) {
	for range busyMax {
		var busy bool
		if all, busy, err = once(ctx, a, q); err != nil || !busy {
			return all, err
		}
		if !turn.Pause(ctx, busyPause) {
			return nil, ctx.Err()
		}
	}
	return nil, errors.New("nodes are busy with other questions; try again")
}

func once[T answer](ctx context.Context, a *Asker, q question[T]) (all []T, busy bool, err error) {
	body, err := json.Marshal(q.query)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(q.limit, limit))
	defer cancel()
	inbox := a.Conn.NewInbox()
	sub, err := a.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails for a closed connection only
	before := a.Conn.LastError()
	if err := a.Conn.PublishRequest(q.subject, inbox, body); err != nil {
		return nil, false, err
	}
	if err := a.Conn.FlushWithContext(ctx); err != nil { // a server that refuses the question says so before it answers this
		return nil, false, fmt.Errorf("NATS does not answer: %w", err)
	}
	if err := a.refused(before, q.subject); err != nil {
		return nil, false, err
	}
	for len(all) < answersMax && (len(all) == 0 || q.enough == nil || !q.enough(all)) {
		m, more, err := next(ctx, sub, len(all) > 0)
		if err != nil || !more {
			return all, busy, err
		}
		var x T
		if err := json.Unmarshal(m.Data, &x); err != nil {
			return nil, false, fmt.Errorf("an answer to %s: %w", q.subject, err)
		}
		switch problem := x.Code(); problem {
		case "":
			all = append(all, x)
		case inspect.ErrBusy.Error():
			busy = true
		default:
			return nil, false, fmt.Errorf("a node answers %s to %s", problem, q.subject)
		}
	}
	return all, busy, nil
}

// next returns the next answer. more is false if none comes in time.
func next(ctx context.Context, sub *nats.Subscription, later bool) (m *nats.Msg, more bool, err error) {
	if later {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	m, err = sub.NextMsgWithContext(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) {
		return nil, false, nil
	}
	return m, err == nil, err
}

// Drain has an edge hand its sessions over, or close them, and end.
func (a *Asker) Drain(ctx context.Context, node string) (inspect.DrainAnswer, error) {
	all, err := ask(ctx, a, question[inspect.DrainAnswer]{
		subject: a.Subjects.Drain(node), limit: drainLimit, enough: func([]inspect.DrainAnswer) bool { return true },
	})
	switch {
	case err != nil:
		return inspect.DrainAnswer{}, err
	case len(all) == 0:
		return inspect.DrainAnswer{}, fmt.Errorf("no edge %s answers a request to drain over NATS: it is gone, stands still, or is part of relay dev", node)
	}
	return all[0], nil
}

// Refused reports whether the server refused something since the last error of a connection was before.
func Refused(c *nats.Conn, before error) bool {
	err := c.LastError()
	return err != nil && err != before && strings.Contains(strings.ToLower(err.Error()), "permissions violation")
}

// refused returns an error if the server refused the question.
func (a *Asker) refused(before error, subject string) error {
	if !Refused(a.Conn, before) {
		return nil
	}
	if strings.HasPrefix(subject, a.Subjects.Drain("")) {
		return fmt.Errorf("the NATS user may not publish on %s; the user admin may", subject)
	}
	return fmt.Errorf("the NATS user may not ask on %s; the users observer and admin may", subject)
}

// pages asks for all pages of a list.
func pages[T any, A answer](ctx context.Context, a *Asker, subject string, q inspect.Query, of func(A) inspect.List[T], name func(*T) string) (all []T, err error) {
	q.Max = inspect.PageMax
	for range pagesMax {
		page, err := page(ctx, a, subject, q, of, name)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if a.Page != nil {
			a.Page(len(page.Entries))
		}
		if page.Next == "" {
			return all, nil
		}
		q.After = page.Next
	}
	return all, nil
}

// page asks for one page of a list.
func page[T any, A answer](ctx context.Context, a *Asker, subject string, q inspect.Query, of func(A) inspect.List[T], name func(*T) string) (inspect.List[T], error) {
	answers, err := ask(ctx, a, question[A]{subject: subject, query: q})
	var lists []inspect.List[T]
	for _, x := range answers {
		lists = append(lists, of(x))
	}
	return inspect.MergePages(lists, name), err
}

// Spaces returns all spaces, in the order of their names.
func (a *Asker) Spaces(ctx context.Context) ([]inspect.Space, error) {
	return pages(ctx, a, a.Subjects.Spaces(), inspect.Query{}, inspect.SpacesAnswer.Page, (*inspect.Space).Name)
}

// SpacesPage returns one page of the spaces.
func (a *Asker) SpacesPage(ctx context.Context, q inspect.Query) (inspect.List[inspect.Space], error) {
	return page(ctx, a, a.Subjects.Spaces(), q, inspect.SpacesAnswer.Page, (*inspect.Space).Name)
}

// Clients returns all clients of a space, in the order of their names.
func (a *Asker) Clients(ctx context.Context, space string) ([]inspect.Client, error) {
	return pages(ctx, a, a.Subjects.Clients(space), inspect.Query{}, inspect.ClientsAnswer.Page, (*inspect.Client).Name)
}

// ClientsPage returns one page of the clients of a space.
func (a *Asker) ClientsPage(ctx context.Context, space string, q inspect.Query) (inspect.List[inspect.Client], error) {
	return page(ctx, a, a.Subjects.Clients(space), q, inspect.ClientsAnswer.Page, (*inspect.Client).Name)
}

// Near returns the clients that a query selects by what they see: the nearest first, and those of which no distance is
// known last. nowhere says why there can be none, as an edge put it: inspect.NoState or inspect.NoPlace.
func (a *Asker) Near(ctx context.Context, space string, q inspect.Query) (all []inspect.Client, nowhere string, err error) {
	of := func(x inspect.ClientsAnswer) inspect.List[inspect.Client] {
		nowhere = cmp.Or(nowhere, x.Nowhere)
		return x.Selected()
	}
	all, err = pages(ctx, a, a.Subjects.Clients(space), q, of, (*inspect.Client).Name)
	nearestFirst(all)
	return all, nowhere, err
}

// NearPage returns one page of these clients. Pages are by name, so nearer clients may be in the next one.
func (a *Asker) NearPage(ctx context.Context, space string, q inspect.Query) (inspect.List[inspect.Client], error) {
	l, err := page(ctx, a, a.Subjects.Clients(space), q, inspect.ClientsAnswer.Selected, (*inspect.Client).Name)
	nearestFirst(l.Entries)
	return l, err
}

func nearestFirst(all []inspect.Client) {
	slices.SortStableFunc(all, func(x, y inspect.Client) int { return cmp.Compare(x.Near.Far(), y.Near.Far()) })
}

// Nodes returns the nodes that answer, relays first, and those that only gossip knows.
func (a *Asker) Nodes(ctx context.Context) (all []inspect.NodesAnswer, missing []inspect.Member, err error) {
	all, err = ask(ctx, a, question[inspect.NodesAnswer]{subject: a.Subjects.Nodes(), query: inspect.Query{Max: inspect.PageMax}})
	if err == nil && len(all) == 0 {
		err = ErrNone
	}
	if err != nil {
		return nil, nil, err
	}
	known := make(map[string]bool)
	for _, x := range all {
		known[x.Head.Node] = true
	}
	for _, x := range all {
		for _, m := range x.Entries {
			if !known[m.Node] {
				known[m.Node] = true
				missing = append(missing, m)
			}
		}
	}
	slices.SortFunc(all, func(x, y inspect.NodesAnswer) int {
		return cmp.Or(cmp.Compare(y.Role, x.Role), cmp.Compare(x.Head.Node, y.Head.Node))
	})
	return all, missing, nil
}

// Why returns what the nodes know of a client and a state.
func (a *Asker) Why(ctx context.Context, space, client, key string) (*inspect.Facts, error) {
	q := question[inspect.WhyAnswer]{subject: a.Subjects.Why(space), query: inspect.Query{Client: client, Key: key}}
	q.enough = func(all []inspect.WhyAnswer) bool {
		f := merge(all)
		return f.Holder != nil && !f.Holder.Loading && f.Edge != nil && f.Edge.Adopting == ""
	}
	answers, err := ask(ctx, a, q)
	if err != nil {
		return nil, err
	}
	return merge(answers), nil
}

func merge(all []inspect.WhyAnswer) *inspect.Facts {
	facts := make([]*inspect.Facts, len(all))
	for i := range all {
		facts[i] = all[i].Facts
	}
	return inspect.Merge(facts)
}
