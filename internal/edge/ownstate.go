package edge

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// ownBytesMax bounds the link message and values of a state that a client offers.
// The holder refuses more, and a request must fit into a bus message. How many
// such states a client has is bounded by dnp.Config.PeerLinksMax.
const ownBytesMax = 60_000

// An ownState is a state that a client offers. To the rest of the world it is
// the state client.<client>.<linkid>; its own link is bound to a source of its
// own, because the client has the truth before the holder does.
type ownState struct {
	session  *session
	link     wire.LinkID
	key      string
	source   *dnp.Source
	message  []byte
	readOnly bool     // nobody but the client may write
	number   uint64   // state number in this epoch; 0 until the holder gave one
	repeat   repeater // of the assert
}

// ownAt returns the state that the client offers under this LinkId.
func (s *session) ownAt(link wire.LinkID) (*ownState, bool) {
	i := slices.IndexFunc(s.own, func(own *ownState) bool { return own.link == link })
	if i < 0 {
		return nil, false
	}
	return s.own[i], true
}

// offered answers a link that the client offers.
func (s *session) offered(now time.Time, ev *dnp.Event) {
	policy := s.edge().cfg.ClientStates
	own, ok := s.newOwnState(ev)
	if policy == ClientStatesOff || s.may.readOnly || !ok || s.conn.Accept(ev.Link, own.source) != nil {
		s.conn.Reject(ev.Link)
		s.space.w.counts.OffersRefused++
		return
	}
	own.keep()
	own.assert(now)
}

// newOwnState copies what the client offers. It is not ok for a state without
// values or without a message, which no application can use, and for one that is
// too large.
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
	state := netstate.NewState(layout)
	state.SetAll(ev.Values)
	if len(ev.Data)+state.TypedSize() > ownBytesMax {
		return nil, false
	}
	own = &ownState{
		session: s, link: ev.Link, message: bytes.Clone(ev.Data), readOnly: ev.ReadOnly, key: ownKey(s.client, ev.Link),
	}
	own.newSource(state)
	return own, true
}

// ownKey is the key of the state that a client offers under a LinkId.
func ownKey(client string, link wire.LinkID) string {
	return "client." + client + "." + strconv.Itoa(int(link))
}

// ownRef marks the Ref of such a state; the rest is its LinkId. Numbers of replicated
// states are far below.
const ownRef = 1 << 63

func (own *ownState) newSource(state *netstate.State) {
	own.source = own.session.space.w.ep.NewSource(dnp.SourceConfig{
		State: state, Message: own.message, Ref: ownRef | uint64(own.link), Data: own,
	})
}

// keep makes the state one of its session's.
func (own *ownState) keep() {
	s := own.session
	s.own = append(s.own, own)
	s.space.own[own.key] = own
	s.forgetDrop(own.link)
}

// assert tells the holder that the state exists, again and again until it knows.
func (own *ownState) assert(now time.Time) {
	own.number = 0
	own.repeat.want(now)
}

// advanceOwn makes the requests about states of clients that are due and returns
// when the next one is.
func (s *session) advanceOwn(now, next time.Time) time.Time {
	for _, own := range s.own {
		if own.repeat.ready(now, &next) {
			own.send(now)
			own.repeat.ready(now, &next)
		}
	}
	for _, d := range s.drops {
		if d.repeat.ready(now, &next) {
			d.send(now, s)
			d.repeat.ready(now, &next)
		}
	}
	return next
}

func (own *ownState) send(now time.Time) {
	s := own.session
	w := replication.Write{
		Kind: replication.WriteAssert, Number: s.nextWrite(), Link: uint16(own.link),
		ReadOnly: own.readOnly, Audience: replication.AudienceNobody, Message: own.message,
	}
	if s.edge().cfg.ClientStates == ClientStatesSpace {
		w.Audience = replication.AudienceAllBut
	}
	for i, t := range own.source.State().Layout().Types() {
		w.Values = append(w.Values, replication.WriteValue{Index: i, Type: t, Value: own.value(i)})
	}
	own.repeat.sent(now)
	s.request(&w, func(now time.Time, r replication.WriteResult, err error) { own.asserted(now, &w, r, err) })
}

// value returns what the client wrote last to element i, or else its value.
func (own *ownState) value(i int) []byte {
	if wr, ok := own.session.writers[own.source]; ok {
		for _, v := range wr.values {
			if v.index == i {
				return v.value
			}
		}
	}
	return own.source.State().Value(i)
}

// asserted takes the holder's answer. That of an earlier holder means nothing.
func (own *ownState) asserted(now time.Time, w *replication.Write, r replication.WriteResult, err error) {
	s := own.session
	switch current, ok := s.ownAt(own.link); {
	case !ok || current != own || w.Epoch != s.space.epoch || tryAgain(r, err):
	case r.Code == replication.WriteOK:
		own.number = r.State
		own.repeat.done()
		if wr, ok := s.writers[own.source]; ok {
			wr.repeat.want(now)
		}
	default:
		s.conn.Unlink(own.source, false)
		own.forget()
		s.space.w.counts.OffersRefused++
	}
}

// forget ends what this edge knows of the state.
func (own *ownState) forget() {
	s := own.session
	s.forgetWriter(own.source)
	s.own = slices.DeleteFunc(s.own, func(x *ownState) bool { return x == own })
	delete(s.space.own, own.key)
	own.source.Remove()
}

// writeBack gives the owner of a state what game servers wrote to it, and learns
// that what the owner wrote has come around. A nil mask means all values.
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
