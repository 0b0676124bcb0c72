package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/replication"
)

// quietAfter is how long a state has to be quiet before the clients that see it in less
// detail get its exact values, so that all clients end up with the same.
const quietAfter = time.Second

// sweepInterval is the least time between two searches for levels of detail that have no
// links.
const sweepInterval = time.Second

// The sources of a state are what links to it can be bound to. They are the replicated
// state's Data.
type sources struct {
	full   *dnp.Source
	levels []*level // that some session of this worker has or had lately

	// What changed is noted once for all levels. Each takes it over when it is looked at: see settle.
	changed   netstate.Mask // since then; of length 0 until there is a level
	word      [1]uint64     // memory for changed
	changedAt int64         // when the state changed last while it had levels, in Unix nanoseconds

	touched  bool             // in levels.changed
	inRule   int32            // place in rule.states
	rule     *rule            // of its interest; nil without
	object   *interest.Object // nil if clients see nothing of it, whatever their eyes
	place    int              // index of the value that is its place, if it is an object
	followed *followed        // nil if it is no eye
}

func sourcesOf(st *replication.State) *sources { return st.Data.(*sources) }

// source returns the source with everything. Sessions that remember something about a
// state remember it under this source.
func source(st *replication.State) *dnp.Source { return sourcesOf(st).full }

// stateOf returns the replicated state behind a source. It reports false for nil and for
// the source of a client's own state.
func stateOf(src *dnp.Source) (*replication.State, bool) {
	if src == nil {
		return nil, false
	}
	st, ok := src.Data().(*replication.State)
	return st, ok
}

// linkTo returns the link of a connection to a state, the source that it is bound to, and
// the level if that is not the source with everything. The source is nil if there is no
// link.
func linkTo(conn *dnp.Conn, st *replication.State) (link dnp.LinkInfo, src *dnp.Source, l *level) {
	s := sourcesOf(st)
	if link, ok := conn.LinkOf(s.full); ok {
		return link, s.full, nil
	}
	for _, l := range s.levels {
		if link, ok := conn.LinkOf(l.source); ok {
			return link, l.source, l
		}
	}
	return link, nil, nil
}

// linkMessage returns the link message of a state.
func (b *base) linkMessage(d *replication.Description) []byte {
	if b.Describe && string(d.Message) == d.Key {
		return d.Describing()
	}
	return d.Message
}

// maskIn returns a mask for n values. That of most states is a word beside what is read with it, which saves a cache miss for
// each change.
func maskIn(word *[1]uint64, n int) netstate.Mask {
	if n <= 64 {
		return word[:]
	}
	return netstate.NewMask(n)
}

// describe gives every source of the state what the state says of itself.
func (s *sources) describe(d *replication.Description, message []byte) {
	set := func(src *dnp.Source) {
		src.SetDescription(message, d.Farewell)
		src.SetPriority(d.Priority)
	}
	set(s.full)
	for _, l := range s.levels {
		set(l.source)
	}
}

// A level is a state as clients see it that get less detail. It has values and a source
// of its own, so that all that the worker's clients of this level share is made once, as
// it is for the state itself.
//
// A value is brought up to date when the state's is further away from it than its
// precision times the factor allows, or when the state has been quiet, and in both cases
// at most once in each period; copyValue and copyAll do not wait for that. Periods of
// different levels begin at different times, so that not all levels are sent together.
//
// A level that is asleep is never brought up to date, and its source is silent: clients keep
// what they were shown last.
type level struct {
	levelKind
	st    *replication.State
	phase time.Duration // of the periods

	source *dnp.Source
	values *netstate.State // those of the state if the level is asleep
	lacks  netstate.Mask   // values that may differ from the state's, but for sources.changed
	word   [1]uint64       // memory for lacks

	// Times are Unix nanoseconds, because every change compares them.
	freeAt int64 // when the period ends in which it was brought up to date last
	dueAt  int64 // when something is to be done; 0 for never
	slot   int64 // of levels.queue; 0 for none
}

// A levelKind is what the levels of a state differ in.
type levelKind struct {
	factor  float64       // on the precision; larger is coarser
	period  time.Duration // 0: no limit
	divisor uint8         // of the priority
	asleep  bool
}

// detailed returns the kind that a level of detail asks for.
func detailed(precision, rate float64, divisor uint8) levelKind {
	k := levelKind{factor: max(precision, 1), divisor: divisor}
	if rate > 0 {
		k.period = time.Duration(float64(time.Second) / rate)
	}
	return k
}

// settle gives the levels what changed since they were looked at.
func (s *sources) settle() {
	for _, l := range s.levels {
		if !l.asleep {
			l.lacks.Or(s.changed)
		}
	}
	s.changed.Reset()
}

// copyValue brings one value up to date at once.
func (l *level) copyValue(index int) {
	if l.asleep {
		return
	}
	l.lacks.Clear(index)
	if l.values.Set(index, l.st.Values.Value(index)) {
		l.source.Changed(index)
	}
}

func (l *level) copyAll() {
	sourcesOf(l.st).settle()
	l.copyIf(func(int) bool { return true })
}

// copyIf brings the values up to date for which want holds, and reports whether there
// were any.
func (l *level) copyIf(want func(i int) bool) (any bool) {
	for i, ok := l.lacks.Next(0); ok; i, ok = l.lacks.Next(i + 1) {
		if string(l.values.Value(i)) == string(l.st.Values.Value(i)) {
			l.lacks.Clear(i)
		} else if want(i) {
			l.copyValue(i)
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

// copyDue copies the values that are due, if the level was not brought up to date in this period.
func (l *level) copyDue(now int64) {
	quiet := sourcesOf(l.st).changedAt + int64(quietAfter)
	if l.copyIf(func(i int) bool { return now >= quiet || l.far(i) }) {
		l.freeAt = l.nextPeriod(now)
		l.expect(now < quiet)
	}
	switch {
	case l.lacks.Empty():
		l.dueAt = 0
	case now < l.freeAt:
		l.dueAt = l.freeAt
	default: // all that is left is near enough
		l.dueAt = quiet
	}
}

// expect says when values that were just copied will be again. A state that goes on changing has newer ones for the next
// period, which make up for a loss; one that is quiet has not.
func (l *level) expect(changing bool) {
	if changing {
		l.source.Expect(l.period)
	} else {
		l.source.Expect(0)
	}
}

// nextPeriod returns the begin of the period after the one of now.
func (l *level) nextPeriod(now int64) int64 {
	if l.period == 0 {
		return 0
	}
	return ((now+int64(l.phase))/int64(l.period)+1)*int64(l.period) - int64(l.phase)
}

// levels are the levels of detail of a space. A level without links ends at the next
// change of its state, or with the sweep.
type levels struct {
	*base
	made        int        // ever; spreads their periods
	count       int        // at present
	changed     []*sources // of states that have levels and changed since the last advance
	queue       calendar
	sweepWanted bool // links ended since the last sweep, so a level may have lost its last one
	sweepAt     time.Time
}

// touch notes that values of a state changed that has levels.
func (v *levels) touch(s *sources, changed netstate.Mask) {
	s.changed.Or(changed)
	if !s.touched {
		s.touched = true
		v.changed = append(v.changed, s)
	}
}

// newSource makes a source that links to a state can be bound to. All sources of a state
// have its number as Ref: the links of a connection that is restored begin with
// everything, and are moved to their level like those of a client whose groups changed.
func (v *levels) newSource(st *replication.State, values *netstate.State, k levelKind) *dnp.Source {
	return v.Endpoint.NewSource(dnp.SourceConfig{
		State: values, Message: v.linkMessage(st.Desc), Farewell: st.Desc.Farewell, Ref: st.Number, Data: st,
		Priority: st.Desc.Priority, Divisor: k.divisor, Silent: k.asleep,
	})
}

// ensure returns the level of a state of this kind, and makes it if there is none.
func (v *levels) ensure(st *replication.State, k levelKind) *level {
	s := sourcesOf(st)
	for _, l := range s.levels {
		if l.levelKind == k {
			return l
		}
	}
	if len(s.changed) == 0 {
		s.changed = maskIn(&s.word, st.Values.Layout().Len())
	}
	s.settle() // the level begins with what the state has
	l := &level{levelKind: k, st: st, values: st.Values}
	if !k.asleep {
		l.values, l.lacks = netstate.NewState(st.Values.Layout()), maskIn(&l.word, st.Values.Layout().Len())
		for i := range st.Values.Layout().Len() {
			l.values.Set(i, st.Values.Value(i))
		}
	}
	const golden = 0.6180339887
	_, turn := math.Modf(float64(v.made) * golden)
	l.phase = time.Duration(turn * float64(k.period))
	l.source = v.newSource(st, l.values, k)
	s.levels = append(s.levels, l)
	v.made++
	v.count++
	v.counts.Levels++
	return l
}

// advance brings levels up to date that are due, and returns when the next one is.
func (v *levels) advance(now, next time.Time, batch bool, replica *replication.Replica) time.Time {
	at := now.UnixNano()
	for i, s := range v.changed {
		v.changed[i] = nil
		s.touched, s.changedAt = false, at
		for j := len(s.levels) - 1; j >= 0; j-- { // from the last one, because a level may end
			if l := s.levels[j]; !l.asleep && (l.dueAt == 0 || at >= l.freeAt) {
				v.advanceLevel(at, l)
			}
		}
	}
	v.changed = v.changed[:0]
	v.queue.take(at, batch, v.advanceLevel)
	v.sweepWanted = v.sweepWanted && v.count > 0
	if v.sweepWanted && !now.Before(v.sweepAt) {
		v.sweepWanted, v.sweepAt = false, now.Add(sweepInterval)
		for st := range replica.All() {
			v.end(st, func(l *level) bool { return l.source.Links() == 0 })
		}
	}
	if v.sweepWanted {
		next = earlier(next, v.sweepAt)
	}
	if at, ok := v.queue.next(); ok {
		next = earlier(next, time.Unix(0, at))
	}
	return next
}

// advanceLevel brings a level up to date. One whose period is not over waits for that, and further changes of the state cost it nothing:
// a state that changes twenty times as often as its level costs little more than the states do.
func (v *levels) advanceLevel(now int64, l *level) {
	switch {
	case now < l.freeAt:
		l.dueAt = l.freeAt
	case l.source.Links() == 0:
		v.end(l.st, func(x *level) bool { return x == l })
		return
	default:
		sourcesOf(l.st).settle()
		l.copyDue(now)
	}
	v.queue.set(l)
}

// end ends the levels of a state for which over holds.
func (v *levels) end(st *replication.State, over func(*level) bool) {
	s := sourcesOf(st)
	s.levels = slices.DeleteFunc(s.levels, func(l *level) bool {
		if !over(l) {
			return false
		}
		l.dueAt = 0
		l.source.Remove()
		v.count--
		v.counts.Levels--
		return true
	})
}

func (v *levels) remove(st *replication.State) {
	source(st).Remove()
	v.end(st, func(*level) bool { return true })
}
