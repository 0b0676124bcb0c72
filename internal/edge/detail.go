package edge

import (
	"math"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication"
)

// quietAfter is how long a state has to be quiet before those who are told less of
// it are told its exact values, so that everybody ends up with the same.
const quietAfter = time.Second

// A fanout is what the links to a state are bound to.
type fanout struct {
	full   *dnp.Source
	levels []*level // that some session of this worker has or had lately
}

// A level is a state as those clients see it that are told less: values of its own,
// and a source of its own, so that all that a worker's clients of this level share
// is made once, as it is for the state itself.
//
// A value is brought up to date when the state's is further away from it than its
// precision times the factor allows, or when the state has been quiet, and in both
// cases at most once in each period. Periods of different levels begin at different
// times, so that not all levels are sent together.
type level struct {
	space  *space
	st     *replication.State
	factor float64       // on the precision
	period time.Duration // 0: no limit
	phase  time.Duration // of the periods

	source *dnp.Source
	values *netstate.State
	lacks  netstate.Mask // values that may differ from the state's

	used    int64     // period in which it was brought up to date last
	changed time.Time // when the state changed last
	touched bool      // in the space's list of those
	due     time.Time // when something is to be done
	place   int       // in the space's heap, from 1; 0 is not in it
}

// levelOf returns the level for d, which it makes if there is none.
func (s *space) levelOf(st *replication.State, d replication.Detail) *level {
	f := st.Data.(*fanout)
	factor, period := max(d.Precision, 1), time.Duration(0)
	if d.Rate > 0 {
		period = time.Duration(float64(time.Second) / d.Rate)
	}
	for _, l := range f.levels {
		if l.factor == factor && l.period == period {
			return l
		}
	}
	l := &level{
		space: s, st: st, factor: factor, period: period, used: math.MinInt64,
		values: netstate.NewState(st.Values.Layout()), lacks: netstate.NewMask(st.Values.Layout().Len()),
	}
	const golden = 0.6180339887
	_, turn := math.Modf(float64(s.levels.made) * golden)
	l.phase = time.Duration(turn * float64(period))
	for i := range st.Values.Layout().Len() {
		l.values.Set(i, st.Values.Value(i))
	}
	l.source = s.newSource(st, l.values)
	f.levels = append(f.levels, l)
	s.levels.made++
	s.w.counts.Levels++
	return l
}

// newSource makes what links to a state can be bound to. All sources of a state
// have its number as Ref: a connection that is restored begins with everything, and
// is moved to its level like one whose groups changed.
func (s *space) newSource(st *replication.State, values *netstate.State) *dnp.Source {
	return s.w.ep.NewSource(dnp.SourceConfig{
		State: values, Message: st.Desc.Message, Farewell: st.Desc.Farewell, Ref: st.Number, Data: st, Priority: st.Desc.Priority,
	})
}

// sourceFor returns what the link of a session to a state is to be bound to, and the
// level if that is not the state itself.
func (s *space) sourceFor(session *session, st *replication.State) (*dnp.Source, *level) {
	if len(st.Desc.Details) == 0 {
		return source(st), nil
	}
	d, ok := st.Desc.Detail(session.client, s.replica.Groups(session.client))
	if !ok {
		return source(st), nil
	}
	l := s.levelOf(st, d)
	return l.source, l
}

// linkTo returns the link of a session to a state, what it is bound to, and the level
// if that is not the state itself.
func (s *session) linkTo(st *replication.State) (link dnp.LinkInfo, src *dnp.Source, l *level) {
	f := st.Data.(*fanout)
	if link, ok := s.conn.LinkOf(f.full); ok {
		return link, f.full, nil
	}
	for _, l := range f.levels {
		if link, ok := s.conn.LinkOf(l.source); ok {
			return link, l.source, l
		}
	}
	return link, nil, nil
}

// move binds the link of a session to what it is to be bound to. The level is brought
// up to date before, because a client must not see older values than it has.
func (s *space) move(session *session, from, to *dnp.Source, l *level) {
	if from == to {
		return
	}
	if l != nil {
		l.all()
	}
	if session.conn.Relink(from, to) == nil {
		s.levels.ended = true
	}
}

// unlink ends the link of a session to a state, if there is one.
func (s *space) unlink(session *session, st *replication.State, farewell bool) {
	if _, src, _ := session.linkTo(st); src != nil {
		session.conn.Unlink(src, farewell)
		s.shortage.ended, s.levels.ended = true, true
	}
}

// touch notes that values of the state changed.
func (l *level) touch(changed netstate.Mask) {
	l.lacks.Or(changed)
	if !l.touched {
		l.touched = true
		l.space.levels.touched = append(l.space.levels.touched, l)
	}
}

// exact brings one value up to date at once.
func (l *level) exact(index int) {
	l.lacks.Clear(index)
	if l.values.Set(index, l.st.Values.Value(index)) {
		l.source.Changed(index)
	}
}

// all brings all values up to date at once.
func (l *level) all() { l.copy(func(int) bool { return true }) }

// copy brings the values up to date for which want holds, and reports whether there
// were any.
func (l *level) copy(want func(i int) bool) (any bool) {
	for i, ok := l.lacks.Next(0); ok; i, ok = l.lacks.Next(i + 1) {
		if string(l.values.Value(i)) == string(l.st.Values.Value(i)) {
			l.lacks.Clear(i)
		} else if want(i) {
			l.exact(i)
			any = true
		}
	}
	return any
}

// far reports whether value i is further from the state's than the level allows.
func (l *level) far(i int) bool {
	layout := l.st.Values.Layout()
	return !replication.Within(layout.Type(i), layout.Value(i).Precision*l.factor, l.values.Value(i), l.st.Values.Value(i))
}

// advance does what can be done and works out when there is more.
func (l *level) advance(now time.Time) {
	if quiet := l.changed.Add(quietAfter); l.free(now) {
		if l.copy(func(i int) bool { return !now.Before(quiet) || l.far(i) }) {
			l.used = l.periodOf(now)
		}
	}
	l.due = l.next(now)
}

// next returns when there is something to do; the zero time for never.
func (l *level) next(now time.Time) time.Time {
	if l.lacks.Empty() {
		return time.Time{}
	}
	at := l.changed.Add(quietAfter)
	for i, ok := l.lacks.Next(0); ok; i, ok = l.lacks.Next(i + 1) {
		if l.far(i) {
			at = now
			break
		}
	}
	if l.free(now) {
		return at
	}
	begin := time.Unix(0, (l.used+1)*int64(l.period)-int64(l.phase))
	if begin.Before(at) {
		return at
	}
	return begin
}

// free reports whether the level was not brought up to date in this period.
func (l *level) free(now time.Time) bool { return l.period == 0 || l.periodOf(now) != l.used }

// periodOf returns which period it is.
func (l *level) periodOf(now time.Time) int64 {
	if l.period == 0 {
		return 0
	}
	return (now.UnixNano() + int64(l.phase)) / int64(l.period)
}
