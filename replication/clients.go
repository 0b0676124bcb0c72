package replication

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/subject"
)

// A presence is a client with a session in the space.
type presence struct {
	sessions int
	owned    []*stored // states of the client; may contain dead ones
	refused  refusedEvents
}

// Join notes that a session of the client is in the space.
func (s *Store) Join(client, session string) {
	if !subject.ValidToken(client) || session == "" || s.sessions[session] == client {
		return
	}
	if s.sessions[session] != "" {
		s.Leave(s.sessions[session], session)
	}
	if len(s.sessions) >= s.limits.Sessions {
		s.stats.SessionsRefused++
		return
	}
	s.sessions[session] = client
	if s.clients[client] == nil {
		s.clients[client] = &presence{}
	}
	s.clients[client].sessions++
	s.records.everyEye()
}

// Leave notes that a session left the space. The Store removes the states that the session
// made, and with the last session of a client its groups and eyes.
func (s *Store) Leave(client, session string) {
	if s.sessions[session] != client || client == "" {
		return
	}
	delete(s.sessions, session)
	delete(s.kicks.sessions, session)
	p := s.clients[client]
	for _, st := range p.owned {
		if !st.dead && st.owned.session == session {
			s.detach(st)
		}
	}
	p.forget()
	if p.sessions--; p.sessions > 0 {
		return
	}
	delete(s.clients, client)
	for _, key := range [...]string{groupsKey(client), eyesKey(client)} {
		if st := s.states.byKey[key]; st != nil {
			s.detach(st)
		}
	}
	s.records.everyEye()
}

// Look returns whether the space has a state with a key, and how many sessions of a client.
func (s *Store) Look(key, client string) (state bool, sessions int) {
	if p := s.clients[client]; p != nil {
		sessions = p.sessions
	}
	st := s.states.byKey[key]
	return st != nil && !st.dead && !st.hidden, sessions
}

// ForgetAbsent removes the groups and eyes of clients without a session. A holder that restored the
// space calls it once all edges have reported their sessions, because clients may have left
// while the shard had no holder.
func (s *Store) ForgetAbsent() {
	for _, st := range s.states.all {
		if client, ok := recordClient(st.Desc.Key); ok && !st.dead && s.clients[client] == nil {
			s.detach(st)
		}
	}
	s.records.everyEye()
}

// forget drops dead states from the list.
func (p *presence) forget() {
	p.owned = slices.DeleteFunc(p.owned, func(st *stored) bool { return st.dead })
}

func (s *Store) knowsClient(client string) *Error {
	if !subject.ValidToken(client) {
		return Errorf(CodeBadRequest, "%q is not the name of a client", client)
	}
	if s.clients[client] == nil {
		return Errorf(CodeUnknownClient, "no client %q is in the space", client)
	}
	return nil
}

// checkReason returns what is wrong with the reason of a kick.
func checkReason(reason string) *Error {
	if len(reason) > KickReasonMax || !utf8.ValidString(reason) {
		return Errorf(CodeBadRequest, "reason: want UTF-8 of at most %d bytes, got %d", KickReasonMax, len(reason))
	}
	return nil
}

// kickPause is how long a session that was kicked may take to leave before its edge is told again.
const kickPause = time.Second

// kicks are the sessions that were kicked and have not left. An edge whose connection to the bus ended at that moment did
// not hear the kick, although the answer says that it was done.
type kicks struct {
	sessions map[string]Output // by session, what tells its edge
	due      time.Time         // when they are told again
}

// tell ends the sessions of a client.
func (k *kicks) tell(now time.Time, s *Store, op *Op) {
	out := Output{Kind: OutputKick, Client: op.Client, Data: []byte(op.Reason)}
	s.batch.send(out)
	if len(k.sessions) == 0 {
		*k = kicks{map[string]Output{}, now.Add(kickPause)}
	}
	for session, client := range s.sessions {
		if client == op.Client {
			out.Session = session
			k.sessions[session] = out
		}
	}
}

// next returns when sessions are told again.
func (k *kicks) next() (at time.Time, ok bool) { return k.due, len(k.sessions) > 0 }

// repeat tells the edges of the sessions that have not left. It names them, because the client may have come again.
func (k *kicks) repeat(now time.Time, s *Store) {
	if len(k.sessions) == 0 || now.Before(k.due) {
		return
	}
	k.due = now.Add(kickPause)
	for _, session := range slices.Sorted(maps.Keys(k.sessions)) {
		s.batch.sendNow(k.sessions[session])
	}
}

// group changes the groups of a client. A state of their own holds them, so that keyframes,
// checksums and repair carry them to every edge.
func (s *Store) group(op *Op) *Error {
	if err := s.knowsClient(op.Client); err != nil {
		return err
	}
	for _, names := range [][]string{op.Join, op.Leave} {
		if err := checkTokens("group", names); err != nil {
			return err
		}
	}
	groups := s.Groups(op.Client)
	for _, g := range op.Join {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	groups = slices.DeleteFunc(groups, func(g string) bool { return slices.Contains(op.Leave, g) })
	if len(groups) > s.limits.Groups {
		return Errorf(CodeTooLarge, "client %q would be in %d groups, at most %d are allowed", op.Client, len(groups), s.limits.Groups)
	}
	if len(groups) == 0 {
		return s.records.set(groupsKey(op.Client), nil)
	}
	return s.records.set(groupsKey(op.Client), appendNames(nil, groups))
}

// Groups returns the groups of a client.
func (s *Store) Groups(client string) []string { return s.states.groups(client) }

// parseGroups returns the groups in a record, or none if it is malformed:
//
//	count uint8, count × {length uint8, bytes}
func parseGroups(record []byte) []string {
	r := wire.NewReader(record)
	groups := readNames(&r)
	if _, err := finish(0, &r); err != nil {
		return nil
	}
	return groups
}

// writersMax is the number of sessions whose last write number a state remembers. Beyond it the
// oldest is forgotten, and a write of that session that a later one overtook would be applied.
const writersMax = 64

// A writeMark is the latest write of one session.
type writeMark struct {
	session string
	last    writeNumber
	refused bool          // a value of that write was refused
	rates   []ratedValue  // at most one for each value with a rate
	values  []valueNumber // ascending by index, of a client that numbers its writes
}

// A valueNumber is the latest write of a session to one value.
type valueNumber struct {
	index   uint16
	refused bool
	code    wire.RefusalCode // if refused
	number  uint32
}

// number returns the latest write to value i, or where it is to be inserted.
func (m *writeMark) number(i int) (at int, ok bool) {
	return slices.BinarySearchFunc(m.values, uint16(i), func(v valueNumber, i uint16) int { return int(v.index) - int(i) })
}

// strip takes those values out of a write with numbers that were applied or overtaken, and answers for them.
func (m *writeMark) strip(w *Write, result *WriteResult) {
	var left []WriteValue
	for _, v := range w.Values {
		at, ok := m.number(v.Index)
		switch {
		case !ok || m.values[at].number < v.Number:
			left = append(left, v)
		case m.values[at].number == v.Number && m.values[at].refused:
			result.Refused = append(result.Refused, RefusedIndex{uint16(v.Index), m.values[at].code})
		}
	}
	w.Values = left
}

// note remembers the numbers of a write.
func (m *writeMark) note(w *Write, refused []RefusedIndex) {
	for _, v := range w.Values {
		n := valueNumber{index: uint16(v.Index), number: v.Number}
		for _, r := range refused {
			if r.Index == n.index {
				n.refused, n.code = true, r.Code
			}
		}
		if at, ok := m.number(v.Index); ok {
			m.values[at] = n
		} else {
			m.values = slices.Insert(m.values, at, n)
		}
	}
}

// An ownership says who made a state. Only states of clients have one.
type ownership struct {
	session  string
	readOnly bool // game servers may not write it either
}

// Write applies the request of an edge. Advance returns the result behind the batch with the
// change: an edge that got the result earlier would send its client the previous value. The
// Store keeps nothing of w.
func (s *Store) Write(now time.Time, w Write) {
	s.stats.Writes++
	result := WriteResult{Token: w.Token, State: w.State}
	if s.full() {
		s.stats.Busy++
		result.Code = WriteBusy
	} else {
		result.Code = s.write(now, &w, &result)
	}
	if result.Code == WriteRefused || result.Code == WritePartly {
		s.stats.WritesRefused++
	}
	out := Output{Kind: OutputWrite, Write: result}
	if w.Kind == WriteJoin && len(w.Join)+len(w.Leave) == 0 {
		s.batch.sendNow(out) // nothing that is pending belongs to it
		return
	}
	s.batch.send(out)
}

func (s *Store) write(now time.Time, w *Write, result *WriteResult) WriteCode {
	if w.Epoch != 0 && w.Epoch != s.batch.epoch {
		return WriteWrongEpoch
	}
	switch w.Kind {
	case WriteValues:
		return s.writeValues(now, w, result)
	case WriteAssert:
		return s.assert(now, w, result)
	case WriteDrop:
		return s.drop(w)
	case WriteJoin:
		return s.writeJoin(w)
	case WriteLeave:
		s.Leave(w.Client, w.Session)
		return WriteOK
	}
	return WriteRefused
}

func (s *Store) writeValues(now time.Time, w *Write, result *WriteResult) WriteCode {
	st := s.states.byNumber[w.State]
	if st == nil {
		return WriteNoState
	}
	if code, overtaken := st.overtaken(w, result); overtaken {
		s.stats.WritesStale++
		return code
	}
	if err := st.checkWrite(&s.edit, w); err != nil {
		s.sendRefused(now, st.refusedEvent(w, err.Code))
		if !w.numbered() {
			return WriteRefused
		}
		return st.remember(w).ended(w, w.refuseAll(err.Code), result)
	}
	m := st.remember(w)
	refused := s.enforceBounds(now, st, w, m)
	if changed := s.changedEvent(now, st, w); s.applyEdit(st, &s.edit) > 0 {
		s.batch.send(changed)
	}
	return m.ended(w, refused, result)
}

// overtaken reports whether a write, or all values of a write with numbers, were applied or overtaken, and returns
// the answer. It takes such values out of the write.
func (st *stored) overtaken(w *Write, result *WriteResult) (code WriteCode, all bool) {
	m := st.writeMark(w.Session)
	switch number := (writeNumber{w.Number, w.Wide}); {
	case m == nil:
		return 0, false
	case w.numbered():
		m.strip(w, result)
		return result.verdict(), len(w.Values) == 0
	case !number.after(m.last):
		return m.again(number), true
	}
	return 0, false
}

// refuseAll refuses all values of a write.
func (w *Write) refuseAll(why Code) (refused []RefusedIndex) {
	code := wire.RefusedWrite
	if why == CodeNotAuthorised {
		code = wire.RefusedRights
	}
	for _, v := range w.Values {
		refused = append(refused, RefusedIndex{uint16(v.Index), code})
	}
	return refused
}

// ended notes how a write ended, and returns the answer.
func (m *writeMark) ended(w *Write, refused []RefusedIndex, result *WriteResult) WriteCode {
	if w.numbered() {
		m.note(w, refused)
		result.Refused = append(result.Refused, refused...)
		return result.verdict()
	}
	m.refused = len(refused) > 0
	if len(refused) == len(w.Values) {
		return WriteRefused
	}
	for i := range refused {
		refused[i].Code = 0 // which is for clients that number their writes
	}
	result.Refused = refused
	return result.verdict()
}

func (r *WriteResult) verdict() WriteCode {
	if len(r.Refused) > 0 {
		return WritePartly
	}
	return WriteOK
}

// checkWrite reports why the client may not write these values. Without an error the edit is
// ready to be applied.
func (st *stored) checkWrite(e *edit, w *Write) *Error {
	if !st.Desc.Access.MayWrite(w.Client) {
		return Errorf(CodeNotAuthorised, "%q may not write %q", w.Client, st.Desc.Key)
	}
	e.reset(len(st.schema.defs))
	for _, v := range w.Values {
		if v.Index < 0 || v.Index >= len(st.schema.defs) {
			return Errorf(CodeBadRequest, "no value has index %d", v.Index)
		}
		if err := e.add(st.schema, v.Index, Encoded{v.Type, v.Value}); err != nil {
			return err
		}
	}
	return st.fits(e, st.Desc.Message)
}

// refusedEvent returns the event for a write that is refused as a whole.
func (st *stored) refusedEvent(w *Write, code Code) *Event {
	e := &Event{Client: w.Client, Session: w.Session, Key: st.Desc.Key, Code: code}
	for _, v := range w.Values {
		e.Values = append(e.Values, EventValue{Name: st.schema.name(v.Index), Type: v.Type, Value: bytes.Clone(v.Value), Struct: st.schema.structOf(v.Index)})
	}
	return e
}

// changedEvent returns the event with the values of the edit, which a client wrote.
func (s *Store) changedEvent(now time.Time, st *stored, w *Write) Output {
	e := &Event{Type: EventChanged, Space: s.cfg.Space, Time: now, Client: w.Client, Session: w.Session, Key: st.Desc.Key}
	for _, v := range s.edit.values {
		e.Values = append(e.Values, st.eventValue(v.index, s.edit.bytes[v.off:v.off+v.n]))
	}
	return Output{Kind: OutputEvent, Event: e}
}

// eventValue returns value i for an event, with bytes of its own.
func (st *stored) eventValue(i int, enc []byte) EventValue {
	return EventValue{Name: st.schema.name(i), Type: st.schema.fields[i].Type, Value: bytes.Clone(enc), Struct: st.schema.structOf(i)}
}

// writeMark returns the write mark of a session, or nil.
func (st *stored) writeMark(session string) *writeMark {
	i := slices.IndexFunc(st.marks, func(m writeMark) bool { return m.session == session })
	if i < 0 {
		return nil
	}
	return &st.marks[i]
}

// again answers a write that was applied or overtaken. If a value of that very write was
// refused, the answer is that all were: the edge did not learn which. It then gives its client the authoritative values, which include those
// that were applied.
func (m *writeMark) again(number writeNumber) WriteCode {
	if m.refused && m.last == number {
		return WriteRefused
	}
	return WriteOK
}

func (st *stored) remember(w *Write) *writeMark {
	m := st.writeMark(w.Session)
	if m == nil {
		if len(st.marks) == writersMax {
			st.marks = slices.Delete(st.marks, 0, 1)
		}
		st.marks = append(st.marks, writeMark{session: w.Session})
		m = &st.marks[len(st.marks)-1]
	}
	m.last = writeNumber{w.Number, w.Wide}
	return m
}

// AssertAnew is the State of an assert that brings the values of another state: the client took the one before back, under
// the same LinkId, and the holder may not have heard of that.
const AssertAnew = math.MaxUint64

// assert makes the state that a client offered, or confirms it. It waits for the Join of the
// session, because a late repetition of an assert must not bring back a state that ended with
// its session.
func (s *Store) assert(now time.Time, w *Write, result *WriteResult) WriteCode {
	if s.sessions[w.Session] != w.Client || w.Client == "" {
		return WriteBusy
	}
	key := clientKey(w.Client, w.Link)
	defs := make([]ValueDef, len(w.Values))
	for i, v := range w.Values {
		defs[i].Type = v.Type
		if !v.Type.Valid() {
			return WriteRefused
		}
	}
	if n := len(defs); n == 0 || n > s.limits.Values || len(w.Message) > s.limits.Message {
		return WriteRefused
	}
	c := s.schemas.acquire(defs, uint16(s.limits.ValueBytes))
	defer s.schemas.release(c)
	s.edit.reset(len(defs))
	for i, v := range w.Values {
		if s.edit.add(c, i, Encoded{v.Type, v.Value}) != nil {
			return WriteRefused
		}
	}
	refused := s.dropInfinite(c)
	if err := s.assertState(key, c, w); err != nil {
		return WriteRefused
	}
	st := s.states.byKey[key]
	if len(refused) > 0 {
		s.sendRefused(now, &Event{Client: w.Client, Session: w.Session, Key: key, Values: refused, Code: RefusedFinite.Code(), Reason: RefusedFinite.String()})
	}
	result.State = st.Number
	return WriteOK
}

// dropInfinite removes the values that are not finite from the edit. The state keeps its values
// there, or zero, and the client gets those.
func (s *Store) dropInfinite(c *schema) (refused []EventValue) {
	s.edit.values = slices.DeleteFunc(s.edit.values, func(v edited) bool {
		t, enc := c.fields[v.index].Type, s.edit.bytes[v.off:v.off+v.n]
		if (*Bounds)(nil).refuses(t, enc) == refusedNot {
			return false
		}
		s.stats.ValuesNotFinite++
		refused = append(refused, EventValue{Name: c.name(v.index), Type: t, Value: bytes.Clone(enc)})
		return true
	})
	return refused
}

func (s *Store) assertState(key string, c *schema, w *Write) *Error {
	st := s.states.byKey[key]
	owned := &ownership{session: w.Session, readOnly: w.ReadOnly}
	if st != nil && st.schema.sameLayout(c) && bytes.Equal(st.Desc.Message, w.Message) {
		same := w.State == st.Number || w.State != AssertAnew && st.owned != nil && st.owned.session == w.Session
		if st.owned = owned; same {
			return nil
		}
		return s.update(st, *st.Desc, c)
	}
	p := s.clients[w.Client]
	p.forget()
	if st == nil && len(p.owned) >= s.limits.ClientStates {
		return Errorf(CodeTooLarge, "client %q made %d states", w.Client, len(p.owned))
	}
	desc := Description{
		Key:     key,
		Message: w.Message,
		Access:  Access{Kind: AccessWriters, Writers: []string{w.Client}},
	}
	if w.Audience == AudienceAllBut {
		desc.Audience = Audience{Kind: AudienceAllBut, Clients: []string{w.Client}}
	}
	if err := s.replace(st, desc, c, owned, Condition{}); err != nil {
		return err
	}
	p.owned = append(p.owned, s.states.byKey[key])
	return nil
}

// drop removes a state that a client made.
func (s *Store) drop(w *Write) WriteCode {
	st := s.states.byKey[clientKey(w.Client, w.Link)]
	if st != nil && st.owned != nil && st.owned.session == w.Session {
		s.detach(st)
	}
	return WriteOK
}

// writeJoin brings a session into the space, and changes the groups of its client. A session does not change its client.
func (s *Store) writeJoin(w *Write) WriteCode {
	if s.sessions[w.Session] == "" {
		s.Join(w.Client, w.Session)
	}
	if s.sessions[w.Session] != w.Client || w.Client == "" {
		return WriteBusy
	}
	if len(w.Join)+len(w.Leave) > 0 && s.group(&Op{Client: w.Client, Join: w.Join, Leave: w.Leave}) != nil {
		return WriteRefused
	}
	return WriteOK
}

// clientKey is the key of the state that a client made with this LinkId.
func clientKey(client string, link uint16) string {
	return clientToken + "." + client + "." + strconv.Itoa(int(link))
}

// A client causes at most refusedAtOnce refused events at once, and then one each
// refusedPause. The Store counts the events beyond that, and the next event has their number.
// A client that floods its edge with writes must not flood the game servers.
const (
	refusedAtOnce = 10
	refusedPause  = 200 * time.Millisecond
)

// A pace allows an action once each step, and several times at once after a rest. The zero
// value is at rest.
type pace struct {
	full time.Duration // time from which on the pace is at rest
}

// allow reports whether the action is allowed at now, and if so counts it.
func (p *pace) allow(now, step time.Duration, atOnce int) bool {
	if p.full-now > step*time.Duration(atOnce-1) {
		return false
	}
	p.full = max(p.full, now) + step
	return true
}

// paceOf returns the pace of a rate: as many at once as a second allows, and at least one.
func paceOf(rate float64) (step time.Duration, atOnce int) {
	return time.Duration(float64(time.Second) / rate), max(1, int(rate))
}

// A ratedValue paces the writes of one session to a value with a rate.
type ratedValue struct {
	index int
	pace  pace
}

// rated reports whether the session may write value i now, and if so counts the write.
func (m *writeMark) rated(now time.Duration, i int, rate float64) bool {
	at := slices.IndexFunc(m.rates, func(v ratedValue) bool { return v.index == i })
	if at < 0 {
		at = len(m.rates)
		m.rates = append(m.rates, ratedValue{index: i})
	}
	step, atOnce := paceOf(rate)
	return m.rates[at].pace.allow(now, step, atOnce)
}

// A writeClock counts from the first write of a client, so that a change of the wall clock
// does not move it.
type writeClock struct{ began time.Time }

// age returns the time since the first call.
func (c *writeClock) age(now time.Time) time.Duration {
	if c.began.IsZero() {
		c.began = now
	}
	return now.Sub(c.began)
}

// enforceBounds removes the values from the edit that the client may not write, and tells game servers.
// A value that the state already has is not a write: repeated requests contain values that were
// applied, and the value of a game server is never refused.
func (s *Store) enforceBounds(now time.Time, st *stored, w *Write, m *writeMark) (refused []RefusedIndex) {
	var why [refusals][]EventValue
	allowed := s.edit.values[:0]
	for _, v := range s.edit.values {
		r := s.refusal(now, st, v, m)
		if r == refusedNot {
			allowed = append(allowed, v)
			continue
		}
		s.stats.refused(r)
		refused = append(refused, RefusedIndex{uint16(v.index), refusalTexts[r].client})
		why[r] = append(why[r], st.eventValue(v.index, s.edit.bytes[v.off:v.off+v.n]))
	}
	s.edit.values = allowed
	for r, values := range why {
		if len(values) > 0 {
			r := Refusal(r)
			s.sendRefused(now, &Event{Client: w.Client, Session: w.Session, Key: st.Desc.Key, Values: values, Code: r.Code(), Reason: r.String()})
		}
	}
	return refused
}

// refusal reports why one edited value may not be written. Only a write that would change the
// value counts for its rate.
func (s *Store) refusal(now time.Time, st *stored, v edited, m *writeMark) Refusal {
	d, enc := &st.schema.defs[v.index], s.edit.bytes[v.off:v.off+v.n]
	if !st.IsNull(v.index) && string(st.Values.Value(v.index)) == string(enc) {
		return refusedNot
	}
	if r := d.Bounds.refuses(d.Type, enc); r != refusedNot {
		return r
	}
	if d.Bounds == nil || d.Bounds.Rate == 0 || !st.IsNull(v.index) && st.filtered(v.index, enc) || m.rated(s.clock.age(now), v.index, d.Bounds.Rate) {
		return refusedNot
	}
	return RefusedRate
}

// sendRefused sends a refused event to game servers, within the pace of the client.
func (s *Store) sendRefused(now time.Time, e *Event) {
	r := &s.absent
	if p := s.clients[e.Client]; p != nil {
		r = &p.refused
	}
	if !r.pace.allow(s.clock.age(now), refusedPause, refusedAtOnce) {
		r.missed++
		s.stats.RefusedUntold++
		return
	}
	e.Type, e.Space, e.Time, e.Missed = EventRefused, s.cfg.Space, now, r.missed
	r.missed = 0
	s.batch.send(Output{Kind: OutputEvent, Event: e})
}

// refusedEvents paces the refused events of a client.
type refusedEvents struct {
	pace   pace
	missed uint64 // events left out since the last one
}
