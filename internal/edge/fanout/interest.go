package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
)

// lookStep is how long looks wait for a batch of the space. Looks of hundreds of sessions are due at as many times; together
// they cost a hundred turns a second at most, and what they move is sent with the values of the batch.
const lookStep = 10 * time.Millisecond

// interests say which states of a space its sessions are near enough to see: the states that have an interest,
// the eyes of the sessions, and the grid and the bander that bring both together. The replica has all of it, so
// nothing is stored for a link, and a session that comes from another edge gets the bands that it had there.
//
// Without a state that has an interest there is neither a grid nor a sight.
type interests struct {
	space    *space
	rules    map[string]*rule     // of the states that have an interest, by its name
	followed map[string]*followed // states that are eyes, whether they exist or not, by key
	states   int                  // that have an interest
	grid     *interest.Grid       // nil without such a state
	bander   *interest.Bander
	tell     func(interest.Change) // told, made once
	jumped   []*replication.State  // that may have left sights which must not see more of them, since the last advance
}

// A rule is an interest as the states of a space follow it.
type rule struct {
	name   string
	says   *replication.Interest // nil if it did not come yet, or this release cannot read it
	states []*replication.State
	byAxes [4]*interest.Rule // by the components of the place
}

// A followed is a state that some session sees from.
type followed struct {
	key  string
	st   *replication.State // nil if there is none
	eyes []*eye
}

// An eye is one that follows a state. Fixed ones are only in the sight.
type eye struct {
	session *Session
	of      *followed
	index   int    // among the eyes of the sight
	value   string // the value that is its place; empty for that of the interest of the state
	place   int    // index of this value; less than 0 if there is none
}

// nowhere is the place of what has none.
var nowhere = interest.Point{X: math.NaN(), Y: math.NaN(), Z: math.NaN()}

// placeOf returns where a state is, by one of its values. A value that is absent has a substitute, which is no place.
func placeOf(st *replication.State, index int) interest.Point {
	if st == nil || index < 0 || st.IsNull(index) {
		return nowhere
	}
	return replication.Place(st.Values.Layout().Type(index), st.Values.Value(index))
}

// put follows what a state says about its interest: a new one, another one, or none any more.
func (n *interests) put(st *replication.State) {
	src := sourcesOf(st)
	if src.rule != nil && src.rule.name != st.Desc.Interest {
		n.leave(st)
	}
	if src.rule == nil && st.Desc.Interest != "" {
		n.join(st)
	}
	if src.rule != nil {
		n.place(st)
	}
	n.follow(st)
}

// remove forgets a state that ended.
func (n *interests) remove(st *replication.State) {
	src := sourcesOf(st)
	if src.rule != nil {
		n.leave(st)
	}
	if f := src.followed; f != nil {
		src.followed, f.st = nil, nil
		n.locate(f)
	}
}

func (n *interests) join(st *replication.State) {
	name := st.Desc.Interest
	r := n.rules[name]
	if r == nil {
		r = &rule{name: name, says: n.space.replica.Interest(name)}
		if n.rules == nil {
			n.rules = make(map[string]*rule)
		}
		n.rules[name] = r
	}
	src := sourcesOf(st)
	src.rule, src.inRule = r, int32(len(r.states))
	r.states = append(r.states, st)
	if n.states++; n.states == 1 {
		n.begin()
	}
}

// leave takes a state from its rule and from the grid.
func (n *interests) leave(st *replication.State) {
	src := sourcesOf(st)
	r := src.rule
	last := len(r.states) - 1
	moved := r.states[last]
	r.states[src.inRule], r.states[last] = moved, nil
	sourcesOf(moved).inRule = src.inRule
	if r.states = r.states[:last]; last == 0 {
		delete(n.rules, r.name)
	}
	n.displace(src)
	src.rule = nil
	if n.states--; n.states == 0 {
		n.end()
	}
}

// begin makes what a space with interests needs.
func (n *interests) begin() {
	n.grid = interest.NewGrid(int(view.NoRef)) // more states than a replica has
	n.bander = interest.NewBander(n.grid)
	n.tell = n.told
	for _, session := range n.space.sessions {
		if !session.unaligned {
			n.see(n.space.now, session)
		}
	}
}

// end releases it.
func (n *interests) end() {
	for _, session := range n.space.sessions {
		n.unsee(session)
	}
	n.grid, n.bander, n.tell, n.jumped = nil, nil, nil, nil
}

// place puts a state where it is into the grid. One whose interest is unknown, or does not fit its values, is not
// there, and clients see nothing of it.
func (n *interests) place(st *replication.State) {
	src := sourcesOf(st)
	r, index := src.rule.of(st.Desc.Values)
	if r == nil {
		n.displace(src)
		return
	}
	src.place = index
	if src.object != nil {
		n.grid.SetRule(src.object, r, placeOf(st, index))
		n.noteJump(st, src)
		return
	}
	src.object, _ = n.grid.Add(r, st)
	n.grid.Move(src.object, placeOf(st, index))
}

func (n *interests) displace(src *sources) {
	if src.object != nil {
		n.grid.Remove(src.object)
		src.object = nil
	}
}

// of returns the rule for a state with these values, and the index of the one that is its place; nil if there is none.
func (r *rule) of(defs []replication.ValueDef) (*interest.Rule, int) {
	if r.says == nil {
		return nil, 0
	}
	index, err := r.says.Value(defs)
	if err != nil {
		return nil, 0
	}
	t := defs[index].Type
	same := &r.byAxes[t.Components()]
	if *same == nil {
		*same, _ = r.says.Rule(t) // a rule that the replica could read has valid bands
	}
	return *same, index
}

// changed moves a state, and the eyes that follow it, if its place is among the values that changed.
func (n *interests) changed(st *replication.State, src *sources, values netstate.Mask) {
	if src.object != nil && values.Has(src.place) {
		n.grid.Move(src.object, placeOf(st, src.place))
		n.noteJump(st, src)
	}
	if src.followed == nil {
		return
	}
	for _, e := range src.followed.eyes {
		if e.place >= 0 && values.Has(e.place) {
			n.bander.MoveEye(n.space.now, e.session.sight, e.index, placeOf(st, e.place))
		}
	}
}

// noteJump notes that a state was moved far enough to be compared with the eyes before its values are sent. Only what the
// client must not have is worth that; anything else follows with the next look.
func (n *interests) noteJump(st *replication.State, src *sources) {
	if src.rule.says.Unlink && n.grid.Jumped(src.object) {
		n.jumped = append(n.jumped, st)
	}
}

// unlinkJumped ends the links of sessions to states that jumped out of their sight. It waits for the end of a batch, because the
// eyes may have moved along.
func (n *interests) unlinkJumped() {
	for i, st := range n.jumped {
		n.jumped[i] = nil
		src := sourcesOf(st)
		if src.object == nil {
			continue
		}
		for _, session := range n.space.sessions {
			if session.sight == nil {
				continue
			}
			if _, linked, _ := linkTo(session.conn, st); linked != nil && n.bander.Lose(session.sight, src.object) {
				n.space.counts.BandMoves++
				n.space.offerIn(session, st, interest.Beyond)
			}
		}
	}
	n.jumped = n.jumped[:0]
}

// renamed follows an interest that came, changed or ended.
func (n *interests) renamed(name string, says *replication.Interest) {
	r := n.rules[name]
	if r == nil {
		return
	}
	r.says, r.byAxes = says, [4]*interest.Rule{}
	for _, st := range r.states {
		n.place(st)
		if f := sourcesOf(st).followed; f != nil {
			n.locate(f)
		}
	}
	for _, session := range n.space.sessions {
		for _, st := range r.states {
			n.space.offer(session, st)
		}
	}
}

// looked gives the sessions of a client the eyes that it has now; those of every client if the name is empty.
func (n *interests) looked(client string) {
	for _, session := range n.space.sessions {
		if session.sight != nil && (client == "" || session.Claims.Client == client) {
			n.setEyes(n.space.now, session)
		}
	}
}

// see gives a session a sight, if the space has interests.
func (n *interests) see(now time.Time, session *Session) {
	if n.grid != nil && session.sight == nil {
		session.sight = n.bander.NewSight(session)
		n.setEyes(now, session)
	}
}

// unsee takes it away.
func (n *interests) unsee(session *Session) {
	if session.sight == nil {
		return
	}
	n.dropEyes(session)
	n.bander.Remove(session.sight)
	session.sight = nil
}

func (n *interests) setEyes(now time.Time, session *Session) {
	n.dropEyes(session)
	var points []interest.Point
	for i, x := range n.space.replica.Eyes(session.Claims.Client) {
		at := x.At
		if x.Key != "" {
			at = n.addEye(session, i, x)
		}
		points = append(points, at)
	}
	if len(points) > 0 {
		n.space.counts.Seeing++
	}
	session.sees = len(points)
	n.bander.SetEyes(now, session.sight, points...)
}

// addEye lets an eye of a session follow a state, and returns where that is.
func (n *interests) addEye(session *Session, index int, x replication.Eye) interest.Point {
	f := n.followed[x.Key]
	if f == nil {
		f = &followed{key: x.Key, st: n.space.replica.ByKey(x.Key)}
		if n.followed == nil {
			n.followed = make(map[string]*followed)
		}
		n.followed[x.Key] = f
		if f.st != nil {
			sourcesOf(f.st).followed = f
		}
	}
	e := &eye{session: session, of: f, index: index, value: x.Value}
	e.find()
	f.eyes = append(f.eyes, e)
	session.eyes = append(session.eyes, e)
	return placeOf(f.st, e.place)
}

func (n *interests) dropEyes(session *Session) {
	for _, e := range session.eyes {
		f := e.of
		f.eyes = slices.DeleteFunc(f.eyes, func(x *eye) bool { return x == e })
		if len(f.eyes) > 0 {
			continue
		}
		delete(n.followed, f.key)
		if f.st != nil {
			sourcesOf(f.st).followed = nil
		}
	}
	session.eyes = nil
	if session.sees > 0 {
		session.sees = 0
		n.space.counts.Seeing--
	}
}

// find finds the value of the state that is the place of the eye.
func (e *eye) find() {
	e.place = -1
	switch st := e.of.st; {
	case st == nil:
	case e.value != "":
		if i, err := (&replication.Interest{At: e.value}).Value(st.Desc.Values); err == nil {
			e.place = i
		}
	case sourcesOf(st).object != nil:
		e.place = sourcesOf(st).place
	}
}

// follow has the eyes that wait for a state follow it, or find its place again.
func (n *interests) follow(st *replication.State) {
	if f := n.followed[st.Desc.Key]; f != nil {
		f.st = st
		sourcesOf(st).followed = f
		n.locate(f)
	}
}

// locate moves all eyes that follow a state to where it is.
func (n *interests) locate(f *followed) {
	for _, e := range f.eyes {
		e.find()
		n.bander.MoveEye(n.space.now, e.session.sight, e.index, placeOf(f.st, e.place))
	}
}

// band returns the band in which a session has a state: 0 for a state without an interest, Beyond for one
// that it must not see. Calls for many states of one session, one after the other, are fast.
func (n *interests) band(session *Session, st *replication.State) interest.Band {
	switch src := sourcesOf(st); {
	case st.Desc.Interest == "":
		return 0
	case src.object == nil, session.sight == nil:
		return interest.Beyond
	default:
		return n.bander.Band(session.sight, src.object)
	}
}

// told moves the link of a session to a state that came into another band.
func (n *interests) told(c interest.Change) {
	n.space.counts.BandMoves++
	n.space.offerIn(c.Sight.Data.(*Session), c.Object.Data.(*replication.State), c.To)
}

// advance looks at the sights that are due if there is a batch, or if one has waited for lookStep. It returns when there is
// something to do.
func (n *interests) advance(now, next time.Time, batch bool) time.Time {
	if n.grid == nil {
		return next
	}
	n.unlinkJumped()
	if at, ok := n.bander.Next(); !ok || !batch && now.Before(at.Add(lookStep)) {
		return n.next(next)
	}
	before := n.bander.Looks()
	n.bander.Advance(now, n.tell)
	n.space.counts.Looks += n.bander.Looks() - before
	return n.next(next)
}

func (n *interests) next(next time.Time) time.Time {
	if at, ok := n.bander.Next(); ok {
		return earlier(next, at.Add(lookStep))
	}
	return next
}
