package viewer

import (
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Bounds of packets.
const (
	bodyMax  = wire.PacketMax - wire.HeaderSize - 4
	tersesIn = 25 // moves in a packet: 11 + 25 * 47 bytes
	killsIn  = 250
)

// flush sends what the viewer lacks and the pace allows: messages, the ids of objects that are gone, new objects and moves in turn.
func (v *Viewer) flush(now time.Time, out lludp.Sender) {
	if v.circuit == nil || v.circuit.Closed() {
		return
	}
	v.pace.advance(now)
	v.tellGone()
	v.outbox.send(now, v.stage == shown, v.circuit, &v.pace, out)
	if v.stage != shown || v.circuit.Blocked() {
		return
	}
	if v.scene.due(now) {
		v.pace.late()
	}
	if !now.Before(v.scrubAt) {
		v.scrubAt = now.Add(max(scrubLeast, scrubPause/time.Duration(1+len(v.scene.all)/tersesIn)))
		v.scene.scrub(tersesIn)
	}
	v.sendGone(now, out)
	v.town.send(now, v, out)
	if now.Before(v.flushAt) || v.scene.idle() {
		return
	}
	v.flushAt = now.Add(flushPause)
	for more := true; more; {
		more = v.pace.ready() && v.sendFull(now, out)
		more = v.pace.ready() && v.sendMoves(now, out) || more
	}
}

// roomy reports whether packets that ask for an acknowledgement may leave.
func (v *Viewer) roomy() bool {
	n, bytes := v.circuit.InFlight()
	return n < window-spare && bytes < windowSize-spare*wire.PacketMax
}

// sendGone tells which objects are gone.
func (v *Viewer) sendGone(now time.Time, out lludp.Sender) {
	for s := &v.scene; len(s.killed) > 0 && v.roomy() && v.pace.ready(); {
		n := min(len(s.killed), killsIn)
		k := kill{token: v.nextToken(), due: now.Add(v.pace.repeat()), ids: append([]uint32(nil), s.killed[:n]...)}
		if !v.transmit(now, wire.KillObject, appendKill(v.bodyBuf[:0], k.ids), lludp.Message{Reliable: true, Once: true, Token: k.token}, out) {
			return
		}
		s.killing = append(s.killing, k)
		v.stats.Kills += uint64(n)
		s.killed = s.killed[:copy(s.killed, s.killed[n:])]
	}
}

// tellGone tells which states without a place are gone.
func (v *Viewer) tellGone() {
	for s := &v.scene; len(s.told) > 0 && len(v.outbox.l) < outboxMax/2; {
		id := strconv.AppendUint(nil, uint64(s.told[0]), 10)
		v.post(wire.GenericMessage, appendGeneric(nil, v.cfg.Opening.Agent, v.cfg.Opening.Session, methodGone, [][]byte{id}), true)
		s.told = s.told[:copy(s.told, s.told[1:])]
	}
}

// transmit sends a message, and reports whether the circuit took it.
func (v *Viewer) transmit(now time.Time, n wire.Number, body []byte, m lludp.Message, out lludp.Sender) bool {
	m.Number, m.Body, m.ZeroCode = n, body, n.ZeroCoded()
	v.bodyBuf = body[:0]
	before := v.circuit.Stats().BytesOut
	if v.circuit.Send(now, m, out) != nil {
		return false
	}
	v.pace.sent(int(v.circuit.Stats().BytesOut - before))
	return true
}

// sendFull sends new objects, as many as a packet takes, and reports whether there were any.
func (v *Viewer) sendFull(now time.Time, out lludp.Sender) bool {
	s := &v.scene
	first := s.full.peek()
	if first == nil || !v.roomy() {
		return false
	}
	if !first.placed() {
		return v.sendText(now, s.full.pop(), out)
	}
	p := s.parcel()
	p.full = true
	body := objectHeader(v.bodyBuf[:0])
	for o := first; o != nil && o.placed(); o = s.full.peek() {
		text := label(o)
		if len(body)+objectSize+len(text) > bodyMax {
			break
		}
		s.full.pop()
		body = v.appendFull(body, o, text)
		p.items = append(p.items, item{o: o, version: o.version})
	}
	body[objectCount] = uint8(len(p.items))
	return v.leave(now, wire.ObjectUpdate, body, p, &s.full, out)
}

func (v *Viewer) appendFull(body []byte, o *Object, text string) []byte {
	if o.sentFull > 0 && o.sentFull == o.version {
		v.stats.Repeats++
	}
	v.stats.Objects++
	o.queued &^= inMoved | inQuiet // it is as new as can be
	flags := uint32(0)
	if !o.state.ReadOnly() {
		flags = movable
	}
	return appendObject(body, o.id, o.full, uint32(o.version), o.place(), o.turn(), flags, text)
}

// place returns where the object is, turn how it is rotated. They are read when they are sent, and kept until they change.
func (o *Object) place() [3]float32 {
	if o.moved {
		o.at, o.moved = toRegion(o.state.Floats(o.position)), false
	}
	return o.at
}

func (o *Object) turn() [4]float32 {
	if o.turns {
		o.turned, o.turns = [4]float32{3: 1}, false
		if o.rotation >= 0 {
			o.turned = toRotation(o.state.Floats(o.rotation))
		}
	}
	return o.turned
}

// sendMoves sends a packet of moves, and reports whether there were any.
func (v *Viewer) sendMoves(now time.Time, out lludp.Sender) bool {
	s := &v.scene
	roomy := v.roomy()
	if s.moved.empty() && (s.quiet.empty() || !roomy) {
		return false
	}
	p := s.parcel()
	v.packets++
	body := objectHeader(v.bodyBuf[:0])
	if roomy && v.packets%4 == 0 { // those that move must not keep the others waiting for ever
		body = v.appendMoves(body, p, &s.quiet)
	}
	asks := roomy && (len(p.items) > 0 || v.packets%probeEvery == 0 || !now.Before(v.probeAt))
	body = v.appendMoves(body, p, &s.moved)
	if n := len(p.items); roomy && n < tersesIn {
		body = v.appendMoves(body, p, &s.quiet)
		asks = asks || len(p.items) > n
	}
	body[objectCount] = uint8(len(p.items))
	if asks {
		v.probeAt = now.Add(probePause)
		return v.leave(now, wire.ImprovedTerseObjectUpdate, body, p, &s.quiet, out)
	}
	v.transmit(now, wire.ImprovedTerseObjectUpdate, body, lludp.Message{}, out)
	p.at, p.due = now, now.Add(settle)
	s.leave(p)
	return true
}

func (v *Viewer) appendMoves(body []byte, p *parcel, q *queue) []byte {
	for len(p.items) < tersesIn {
		o := q.pop()
		if o == nil {
			break
		}
		body = appendTerse(body, o.id, o.place(), o.turn())
		p.items = append(p.items, item{o: o, version: o.version, blind: o.described < o.textAt})
		o.queued &^= inMoved | inQuiet
		v.stats.Moves++
		if q.mark == inQuiet {
			v.stats.Repeats++
		}
	}
	return body
}

// leave sends a packet that asks for an acknowledgement. If the circuit does not take it, its objects wait in q again.
func (v *Viewer) leave(now time.Time, n wire.Number, body []byte, p *parcel, q *queue, out lludp.Sender) bool {
	p.token, p.at, p.due = v.nextToken(), now, now.Add(v.pace.repeat())
	if !v.transmit(now, n, body, lludp.Message{Reliable: true, Once: true, Token: p.token}, out) {
		for _, it := range p.items {
			q.push(it.o)
		}
		p.open = 1
		v.scene.release(p)
		return false
	}
	v.scene.leave(p)
	return true
}

// sendText tells a state without a place.
func (v *Viewer) sendText(now time.Time, o *Object, out lludp.Sender) bool {
	p := v.scene.parcel()
	p.full = true
	p.items = append(p.items, item{o: o, version: o.version})
	body := appendGeneric(v.bodyBuf[:0], v.cfg.Opening.Agent, v.cfg.Opening.Session, methodState, describe(o))
	v.stats.Objects++
	return v.leave(now, wire.GenericMessage, body, p, &v.scene.full, out)
}

// A town is the players on the map, and their places in CoarseLocationUpdate.
type town struct {
	players []*Object
	left    int       // times that the map is sent: it is not acknowledged
	at      time.Time // when it may be sent again
}

const (
	townMax   = 60 // players in a packet
	townTimes = 4
	townPause = time.Second
)

func (t *town) linked(o *Object) {
	if o.player {
		t.players, t.left = append(t.players, o), townTimes
	}
}

func (t *town) unlinked(o *Object) {
	if i := slices.Index(t.players, o); i >= 0 {
		t.players, t.left = slices.Delete(t.players, i, i+1), townTimes
	}
}

func (t *town) changed(o *Object) {
	if o.player {
		t.left = townTimes
	}
}

func (t *town) next() (time.Time, bool) { return t.at, t.left > 0 }

func (t *town) send(now time.Time, v *Viewer, out lludp.Sender) {
	if t.left == 0 || now.Before(t.at) || !v.pace.ready() {
		return
	}
	var list []player
	for _, o := range t.players[:min(len(t.players), townMax)] {
		list = append(list, player{o.full, coarse(o.place())})
	}
	v.transmit(now, wire.CoarseLocationUpdate, appendCoarse(v.bodyBuf[:0], list, -1), lludp.Message{}, out)
	t.left, t.at = t.left-1, now.Add(townPause)
}
