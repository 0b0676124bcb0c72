package fanout

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// ownBytesMax bounds the link message and values of a state that a client offers. The
// holder refuses more, and a request must fit into a bus message. How many such states a
// client has is bounded by dnp.Config.PeerLinksMax.
const ownBytesMax = 60_000

// dropsMax bounds the drops of a session that the holder has not acknowledged. When there
// are more, the oldest is forgotten and counted; the holder ends its state when the
// session leaves.
const dropsMax = 256

// ownRef marks the Ref of a client's own state; the rest is its LinkId. Numbers of
// replicated states are far below.
const ownRef = 1 << 63

// ownStates are the states that the client of a session offers.
type ownStates struct {
	*peer
	writes *writes
	byKey  map[string]*ownState // of all sessions of the space
	lost   *lostStates          // of the space
	list   []*ownState
	drops  []*ownState // that the client took back and the holder may still have
}

// An ownState is a state that a client offers. To the rest of the world it is the state
// client.<client>.<linkid>; its own link is bound to a source of its own, because the
// client has the truth before the holder does.
type ownState struct {
	owner    *peer
	link     wire.LinkID
	key      string
	source   *dnp.Source
	message  []byte
	readOnly bool     // only the client itself may write
	number   uint64   // state number in this epoch; 0 until the holder gave one
	restored uint64   // State of the assert: the number that the replica had at a takeover, when the holder may have newer values; or AssertAnew
	repeat   repeater // of telling the holder that the state exists, or that the client took it back
}

// assertNow has the holder told that the state exists.
func (own *ownState) assertNow(now time.Time) {
	own.number = 0
	own.repeat.want(now)
}

// at returns the state that the client offers under this LinkId; nil for none.
func (o *ownStates) at(link wire.LinkID) *ownState {
	for _, own := range o.list {
		if own.link == link {
			return own
		}
	}
	return nil
}

func (o *ownStates) offered(now time.Time, ev *dnp.Event) {
	if o.ClientStates == ClientStatesOff || !o.Claims.Write || !o.accept(now, ev) {
		o.conn.Reject(ev.Link)
		o.counts.OffersRefused++
	}
}

// accept makes the state that the client offers one of its own. It reports false if the
// state is not acceptable.
func (o *ownStates) accept(now time.Time, ev *dnp.Event) bool {
	state, ok := parseOffer(ev)
	if !ok {
		return false
	}
	own := &ownState{owner: o.peer, link: ev.Link, message: bytes.Clone(ev.Data), readOnly: ev.ReadOnly, key: ownKey(o.Claims.Client, ev.Link)}
	o.newSource(own, state)
	if o.conn.Accept(ev.Link, own.source) != nil {
		own.source.Remove()
		return false
	}
	if slices.ContainsFunc(o.drops, func(d *ownState) bool { return d.link == ev.Link }) { // the holder may have the earlier one
		own.restored = replication.AssertAnew
	}
	o.add(own)
	own.assertNow(now)
	return true
}

// parseOffer copies the values that the client offers. It is not ok for a state without
// values or without a message, which no application can use, and for one that is too large.
func parseOffer(ev *dnp.Event) (state *netstate.State, ok bool) {
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
	state = netstate.NewState(layout)
	state.SetAll(ev.Values)
	return state, len(ev.Data)+state.TypedSize() <= ownBytesMax
}

// restore makes a state of the client anew, when its session is taken over, from what the
// holder has of it. It returns nil if the holder never heard of it.
func (o *ownStates) restore(link wire.LinkID) *dnp.Source {
	if own := o.at(link); own != nil {
		return own.source
	}
	key := ownKey(o.Claims.Client, link)
	from, ok := o.lost.byKey[key]
	if st := o.replica.ByKey(key); st != nil {
		from, ok = copyOf(st), true
	}
	if !ok {
		return nil
	}
	own := &ownState{owner: o.peer, link: link, key: key, message: from.message, restored: from.number}
	o.newSource(own, from.values)
	o.add(own)
	return own.source
}

// A copiedState is what is left of the state of a client.
type copiedState struct {
	number  uint64
	message []byte
	values  *netstate.State
	until   time.Time // when it is forgotten
}

func copyOf(st *replication.State) copiedState {
	layout := st.Values.Layout()
	values := netstate.NewState(layout)
	for i := range layout.Len() {
		values.Set(i, st.Values.Value(i))
	}
	return copiedState{number: st.Number, message: slices.Clone(st.Desc.Message), values: values}
}

// Bounds of what is kept of states that a new holder does not have.
const (
	lostMax   = 1024             // states of a space
	lostTime  = 30 * time.Second // longer than it takes until another edge has the sessions of one that died
	lostSince = 10 * time.Second // for which states may vanish because the holder is new
)

// lostStates are the states of clients that vanished because a new holder does not have them: the one before had not stored them. If an
// edge died with it, the next edge of the client makes the state anew from this, and without it would take the state from the client.
type lostStates struct {
	epoch time.Time // when the newest holder was noticed
	byKey map[string]copiedState
}

// ownPrefix is the beginning of the keys of states that clients offer.
const ownPrefix = "client."

// removed keeps the state of a client that a new holder does not have.
func (l *lostStates) removed(now time.Time, newHolder bool, st *replication.State) bool {
	if !newHolder && now.Sub(l.epoch) >= lostSince || !strings.HasPrefix(st.Desc.Key, ownPrefix) {
		return true
	}
	maps.DeleteFunc(l.byKey, func(_ string, c copiedState) bool { return now.After(c.until) })
	if len(l.byKey) >= lostMax {
		return false
	}
	if l.byKey == nil {
		l.byKey = make(map[string]copiedState)
	}
	c := copyOf(st)
	c.until = now.Add(lostTime)
	l.byKey[st.Desc.Key] = c
	return true
}

// ownKey is the key of the state that a client offers under a LinkId.
func ownKey(client string, link wire.LinkID) string {
	return ownPrefix + client + "." + strconv.Itoa(int(link))
}

func (o *ownStates) newSource(own *ownState, state *netstate.State) {
	own.source = o.Endpoint.NewSource(dnp.SourceConfig{
		State: state, Message: own.message, Ref: ownRef | uint64(own.link), Data: own,
	})
}

// add makes the state one of the client's. It ends the drop of an earlier state under the
// same LinkId: this state takes its place at the holder, too, where a later drop would end it.
func (o *ownStates) add(own *ownState) {
	o.list = append(o.list, own)
	o.byKey[own.key] = own
	o.drops = slices.DeleteFunc(o.drops, func(d *ownState) bool { return d.link == own.link })
}

// remove ends what this edge knows of the state.
func (o *ownStates) remove(own *ownState) {
	o.writes.discard(own.source)
	o.list = slices.DeleteFunc(o.list, func(x *ownState) bool { return x == own })
	delete(o.byKey, own.key)
	own.source.Remove()
}

// removeAll ends what this edge knows of all states. The holder does the same when it
// hears that the client left.
func (o *ownStates) removeAll() {
	for len(o.list) > 0 {
		o.remove(o.list[0])
	}
}

func (o *ownStates) repeatAll(now time.Time) {
	for _, own := range o.list {
		own.repeat.renew(now)
	}
	for _, d := range o.drops {
		d.repeat.want(now)
	}
}

func (o *ownStates) advance(now, next time.Time) time.Time {
	for _, own := range o.list {
		if own.repeat.ready(now, &next) {
			own.repeat.sent(now, &next)
			o.sendAssert(own)
		}
	}
	for _, d := range o.drops {
		if d.repeat.ready(now, &next) {
			d.repeat.sent(now, &next)
			o.sendDrop(d)
		}
	}
	return next
}

func (o *ownStates) sendAssert(own *ownState) {
	w := replication.Write{
		Kind: replication.WriteAssert, Number: o.nextWrite(), State: own.restored, Link: uint16(own.link),
		ReadOnly: own.readOnly, Audience: replication.AudienceNone, Message: own.message,
	}
	if o.ClientStates == ClientStatesSpace {
		w.Audience = replication.AudienceAllBut
	}
	for i, t := range own.source.State().Layout().Types() {
		w.Values = append(w.Values, replication.WriteValue{Index: i, Type: t, Value: o.value(own, i)})
	}
	o.request(&w, func(now time.Time, r replication.WriteResult, err error) { o.asserted(now, own, &w, r, err) })
}

// value returns what the client wrote last to element i, or else its value.
func (o *ownStates) value(own *ownState, i int) []byte {
	if wr, ok := o.writes.bySource[own.source]; ok {
		if v, ok := wr.newest(i); ok {
			return v
		}
	}
	return own.source.State().Value(i)
}

// asserted handles the holder's answer. An answer of an earlier epoch means nothing.
func (o *ownStates) asserted(now time.Time, own *ownState, w *replication.Write, r replication.WriteResult, err error) {
	switch {
	case o.at(own.link) != own || w.Epoch != o.epoch || mustRepeat(r, err):
	case r.Code == replication.WriteOK:
		own.number = r.State
		own.repeat.stop()
		if wr, ok := o.writes.bySource[own.source]; ok {
			wr.repeat.want(now)
		}
	default:
		o.conn.Unlink(own.source, false)
		o.remove(own)
		o.counts.OffersRefused++
	}
}

// drop ends a state that the client took back, here and at the holder.
func (o *ownStates) drop(now time.Time, own *ownState) {
	o.remove(own)
	if len(o.drops) >= dropsMax {
		o.drops = slices.Delete(o.drops, 0, 1)
		o.counts.DropsForgotten++
	}
	d := &ownState{link: own.link} // the message and the values of own need not stay
	d.repeat.want(now)
	o.drops = append(o.drops, d)
}

func (o *ownStates) sendDrop(own *ownState) {
	w := replication.Write{Kind: replication.WriteDrop, Number: o.nextWrite(), Link: uint16(own.link)}
	o.request(&w, func(_ time.Time, r replication.WriteResult, err error) {
		if !mustRepeat(r, err) {
			o.drops = slices.DeleteFunc(o.drops, func(x *ownState) bool { return x == own })
		}
	})
}

// writeBack gives the owner of a state what game servers wrote to it, and learns that
// what the owner wrote has come around. A nil mask means all values, a nil own that the state
// is not of a client of this worker.
func (own *ownState) writeBack(st *replication.State, changed netstate.Mask) {
	if own == nil || !own.source.State().Layout().Equal(st.Values.Layout()) {
		return
	}
	for i := range st.Values.Layout().Len() {
		if (changed == nil || changed.Has(i)) && own.source.State().Set(i, st.Values.Value(i)) {
			own.source.Changed(i)
		}
	}
}
