package edge

import (
	"bytes"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// An ownState is a state that a client offers. To the rest of the world it is
// the state client.<client>.<linkid>; its own link is bound to a source of its
// own, because the client has the truth before the holder does.
type ownState struct {
	session  *session
	link     wire.LinkID
	key      string
	source   *dnp.Source
	message  []byte
	readOnly bool   // nobody but the client may write
	number   uint64 // state number; 0 until the holder gave one
	again    time.Time
}

// offered answers a link that the client offers.
func (s *session) offered(now time.Time, ev *dnp.Event) {
	policy := s.edge().cfg.ClientStates
	own, ok := s.newOwnState(ev)
	if policy == ClientStatesOff || !ok || s.conn.Accept(ev.Link, own.source) != nil {
		s.conn.Reject(ev.Link)
		s.space.w.counts.OffersRefused++
		return
	}
	s.own[ev.Link] = own
	s.space.own[own.key] = own
	own.assert(now)
}

// newOwnState copies what the client offers. It is not ok for a state without
// values or without a message, which no application can use.
func (s *session) newOwnState(ev *dnp.Event) (own *ownState, ok bool) {
	if ev.Values.Len() == 0 || len(ev.Data) == 0 {
		return nil, false
	}
	var values []netstate.Value
	for rest := ev.Values; rest.Len() > 0; {
		var t wire.ValueType
		t, _, rest = rest.Next()
		values = append(values, netstate.Value{Type: t})
	}
	layout, err := netstate.NewLayout(values)
	if err != nil {
		return nil, false
	}
	own = &ownState{
		session: s, link: ev.Link, message: bytes.Clone(ev.Data), readOnly: ev.ReadOnly,
		key: "client." + s.client + "." + strconv.Itoa(int(ev.Link)),
	}
	state := netstate.NewState(layout)
	state.SetAll(ev.Values)
	own.source = s.space.w.ep.NewSource(dnp.SourceConfig{State: state, Message: own.message, Data: own})
	return own, true
}

// assert tells the holder that the state exists, and its values.
func (own *ownState) assert(now time.Time) {
	s := own.session
	w := replication.Write{
		Kind: replication.WriteAssert, Number: s.space.w.nextWrite(), Link: uint16(own.link),
		ReadOnly: own.readOnly, Audience: replication.AudienceNobody, Message: own.message,
	}
	if s.edge().cfg.ClientStates == ClientStatesSpace {
		w.Audience = replication.AudienceAllBut
	}
	for i, t := range own.source.State().Layout().Types() {
		w.Values = append(w.Values, replication.WriteValue{Index: i, Type: t, Value: own.value(i)})
	}
	s.request(&w, own.asserted)
}

// value returns what the client wrote last to element i, or else its value.
func (own *ownState) value(i int) []byte {
	if wr, ok := own.session.writers[own.link]; ok {
		for _, v := range wr.values {
			if v.index == i {
				return v.value
			}
		}
	}
	return own.source.State().Value(i)
}

// asserted takes the holder's answer.
func (own *ownState) asserted(now time.Time, r replication.WriteResult, err error) {
	s := own.session
	if s.own[own.link] != own {
		return // taken back meanwhile
	}
	switch {
	case err != nil || r.Code == replication.WriteBusy || r.Code == replication.WriteWrongEpoch:
		own.again = now.Add(writeRepeat)
	case r.Code == replication.WriteOK:
		own.number = r.State
		if wr, ok := s.writers[own.link]; ok && !wr.waiting {
			wr.due = now
		}
	default:
		s.conn.Unlink(own.source, false)
		own.forget()
		s.space.w.counts.OffersRefused++
	}
}

// updated takes what the client wrote to its own state.
func (own *ownState) updated(now time.Time, ev *dnp.Event) {
	own.session.writer(own.link, own.source).take(now, ev)
}

// drop tells the holder that the client took its state back.
func (own *ownState) drop() {
	own.session.request(&replication.Write{
		Kind: replication.WriteDrop, Number: own.session.space.w.nextWrite(), Link: uint16(own.link),
	}, func(time.Time, replication.WriteResult, error) {}) // if it is lost, the event "left" does the same
	own.forget()
}

func (own *ownState) forget() {
	own.session.forgetWriter(own.link)
	delete(own.session.own, own.link)
	delete(own.session.space.own, own.key)
	own.source.Remove()
}

// writeBack gives the owner of a state what game servers wrote to it. A nil mask
// means all values.
func (s *space) writeBack(st *replication.State, changed netstate.Mask) {
	own, ok := s.own[st.Desc.Key]
	if !ok || !own.source.State().Layout().Equal(st.Values.Layout()) {
		return
	}
	for i := range st.Values.Layout().Len() {
		if (changed == nil || changed.Has(i)) && own.source.State().Set(i, st.Values.Value(i)) {
			own.source.Changed(i)
		}
	}
}
