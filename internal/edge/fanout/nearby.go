package fanout

import (
	"math"

	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/replication"
)

// unsightedCost is what it costs to find the eyes of a client in a space without interests, in the units of stepCost.
const unsightedCost = 200

// A nearby tells how near the clients of a space are to what a query names. What it points at is valid for one turn of
// the worker.
type nearby struct {
	space *space
	query *inspect.Query

	state   *replication.State // which clients see in some way; nil if the query names none, or there is none
	at      interest.Point
	axes    interest.Axes
	nowhere string // why no client is near, or sees the state; empty if there may be some
}

// aim finds in the replica what the query names.
func (n *nearby) aim() {
	n.nowhere, n.axes, n.state = "", 0, nil
	if n.space == nil {
		n.nowhere = inspect.NoState
		return
	}
	if key := n.query.Sees; key != "" {
		if n.state = n.space.replica.ByKey(key); n.state == nil {
			n.nowhere = inspect.NoState
			return
		}
	}
	if n.query.Near != nil {
		n.aimAt(n.query.Near)
	}
}

// aimAt finds where a place is, and between which axes its distances are.
func (n *nearby) aimAt(p *inspect.Place) {
	if p.At != nil {
		at := append(append([]float64{}, p.At...), 0)
		n.at, n.axes = interest.Point{X: at[0], Y: at[1], Z: at[2]}, interest.AllAxes
		if len(p.At) == 2 {
			n.axes = interest.AxisX | interest.AxisY
		}
	} else {
		st := n.space.replica.ByKey(p.Key)
		if st == nil {
			n.nowhere = inspect.NoState
			return
		}
		if n.query.Sees == "" {
			n.state = st
		}
		n.at, n.axes = n.space.near.placed(st, p.Value)
	}
	if axes, ok := interest.ParseAxes(n.query.Axes); ok {
		n.axes = axes
	}
	if n.axes == 0 || math.IsInf(n.axes.Distance(n.at, n.at), 1) {
		n.nowhere = inspect.NoPlace
	}
}

// selects reports whether a session belongs to the answer, and what it cost to find out.
func (n *nearby) selects(session *Session) (is bool, cost int) {
	if n.nowhere != "" {
		return false, 0
	}
	x, cost := n.look(session)
	switch {
	case n.query.Sees != "" && !x.Sees:
		return false, cost
	case n.query.Near == nil:
		return true, cost
	}
	return x.Distance != nil && (n.query.Within == nil || *x.Distance <= *n.query.Within), cost
}

// look returns how near a session is, and what it cost to find out.
func (n *nearby) look(session *Session) (x inspect.Nearness, cost int) {
	eyes := n.space.near.eyesOf(session)
	x.Eyes = len(eyes)
	cost = len(eyes)
	if session.sight == nil {
		cost = unsightedCost
	}
	if n.query.Near != nil {
		if d := n.axes.Distance(n.at, eyes...); !math.IsInf(d, 1) {
			x.Distance = &d
		}
	}
	if n.state == nil {
		return x, cost
	}
	if session.sight != nil {
		cost += 2 * session.sight.Seen() // see Bander.Band
	}
	band := n.space.near.band(session, n.state)
	x.Sees = band != interest.Beyond && n.space.includes(n.state, session)
	if f := n.space.near.facts(session, n.state, band, false); f != nil {
		x.Band, x.Bands = f.Band, f.Bands
		if n.query.Near == nil {
			x.Distance = f.Distance
		}
	}
	return x, cost
}

// placed returns where a state is, by a value or by its interest, and between which axes distances to it are; no axes
// if it has no such place.
func (n *interests) placed(st *replication.State, value string) (interest.Point, interest.Axes) {
	src := sourcesOf(st)
	index, says := src.place, (*replication.Interest)(nil)
	if src.object != nil {
		says = src.rule.says
	}
	if value != "" {
		says = &replication.Interest{At: value}
		i, err := says.Value(st.Desc.Values)
		if index = i; err != nil {
			says = nil
		}
	}
	if says == nil {
		return nowhere, 0
	}
	return placeOf(st, index), says.AxesOf(st.Desc.Values[index].Type)
}

// eyesOf returns where the eyes of a session are. In a space without interests it has none to see with, but people may
// ask where they are.
func (n *interests) eyesOf(session *Session) (all []interest.Point) {
	if session.sight != nil {
		return session.sight.Eyes()
	}
	for _, x := range n.space.replica.Eyes(session.Claims.Client) {
		at := x.At
		if x.Key != "" {
			e := eye{of: &followed{st: n.space.replica.ByKey(x.Key)}, value: x.Value}
			e.find()
			at = placeOf(e.of.st, e.place)
		}
		all = append(all, at)
	}
	return all
}
