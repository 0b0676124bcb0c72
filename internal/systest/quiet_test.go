package systest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// After the storm it is quiet, but for a bus that is so slow that every write is
// repeated before it can be answered, and loses some of that; answers come before or
// after the batch. Then it can be told what must become of each write.

// A wrote is what a client wrote to a link when it was quiet.
type wrote struct {
	value uint16
	at    time.Time
}

// crossing is within which a value from before a write may arrive, because it was
// under way: two ways of 10 ms and two ticks of a client.
const crossing = 60 * time.Millisecond

// writeQuietly lets each state be written by one client. Some of the writes are
// answered by the game server, as soon as it hears of them, with another value, which
// must stay. The others must stay themselves, and whoever wrote them must not see
// anything else meanwhile. And one client writes what the holder refuses.
func (s *stormy) writeQuietly() {
	known := make(map[*player]bool)
	for _, p := range s.players {
		known[p] = s.known(p)
	}
	s.hub.Delay, s.hub.Jitter, s.hub.Duplicate, s.hub.Loss = 60*time.Millisecond, 50*time.Millisecond, 0.05, 0.3
	s.on(s.subjects.Event("s"), s.reply)
	s.refuse()
	written := make(map[string]bool)
	for _, p := range s.players {
		for _, l := range p.Links() {
			key := string(l.Message)
			mayWrite := (l.Own || !l.ReadOnly) && key != "text"
			if !known[p] || l.State == nil || l.Phase != dnptest.LinkIsUp || !mayWrite || written[key] || s.rng.IntN(2) == 0 {
				continue
			}
			written[key] = true
			if !l.Own && s.rng.IntN(3) > 0 {
				s.dialogues[key] = &dialogue{key: key, p: p, l: l, left: 5}
				s.dialogues[key].write(s)
				continue
			}
			for i := range 3 {
				s.net.Schedule(time.Duration(i*(150+s.rng.IntN(200)))*time.Millisecond, func() {
					s.next++
					s.wrote[l] = wrote{s.next, s.net.Now()}
					p.write(l, s.next)
				})
			}
		}
	}
}

// A dialogue is a client that writes a state and a game server that answers each
// write with another value.
type dialogue struct {
	key     string
	p       *player
	l       *dnptest.Link
	answer  uint16 // to the write under way, which is one less
	setting bool   // the game server has heard of it
	left    int    // writes to come
}

// write begins with the next write.
func (d *dialogue) write(s *stormy) {
	s.next += 2
	d.answer, d.setting = s.next, false
	d.left--
	d.p.write(d.l, s.next-1)
}

// reply lets the game server answer what a client wrote.
func (s *stormy) reply(m bus.Msg) {
	var e event
	if json.Unmarshal(m.Data, &e) != nil || e.Type != "changed" || s.dialogues[e.Key] == nil {
		return
	}
	d := s.dialogues[e.Key]
	var written uint16
	if json.Unmarshal(e.Values["0"], &written) == nil && written == d.answer-1 && !d.setting {
		d.setting = true
		s.insist(d)
	}
}

// insist sets the answer until that is acknowledged, which may be long after it was
// done. Then no repetition of the write that was answered may undo it.
func (s *stormy) insist(d *dialogue) {
	body := fmt.Sprintf(`{"op":"set","key":%q,"values":{"0":%d}}`, d.key, d.answer)
	s.game.Request(bus.Msg{Subject: s.subjects.Publish("s", ""), Data: []byte(body)}, time.Second, func(_ bus.Msg, err error) {
		if err != nil {
			s.insist(d)
			return
		}
		s.net.Schedule(500*time.Millisecond, func() { s.stays(d) })
	})
}

// stays wants the authority to have the answer, and goes on.
func (s *stormy) stays(d *dialogue) {
	list, err := s.relay.store("s").Get(d.key)
	if err != nil || !bytes.Equal(list.States[0].Values.Value(0), u16(d.answer)) {
		s.Errorf("the game server set %s to %d because a client had written %d, the authority has %d",
			d.key, d.answer, d.answer-1, binary.LittleEndian.Uint16(list.States[0].Values.Value(0)))
		return
	}
	if d.left > 0 {
		d.write(s)
	}
}

// flicker wants whoever writes alone to see nothing but what it wrote.
func (s *stormy) flicker(l *dnptest.Link, i int) {
	w, ok := s.wrote[l]
	if ok && i == 0 && s.net.Now().Sub(w.at) > crossing && !bytes.Equal(l.State.Value(0), u16(w.value)) {
		s.Errorf("%v after a client wrote %d to %s, which no other client does, it is sent %d",
			s.net.Now().Sub(w.at), w.value, l.Message, binary.LittleEndian.Uint16(l.State.Value(0)))
	}
}

// refuse lets a client write a longer text than the holder takes.
func (s *stormy) refuse() {
	for _, p := range s.players {
		if l := p.LinkNamed("text"); s.alive(p) && l != nil && l.State != nil && l.Phase == dnptest.LinkIsUp {
			long := append(binary.LittleEndian.AppendUint16(nil, 1100), strings.Repeat("x", 1100)...)
			p.do(func(time.Time) { p.Set(l, 0, long) })
			return
		}
	}
}

// compareWritten wants the last word about every state to be what it must be.
func (s *stormy) compareWritten() {
	truth := s.truth()
	for l, w := range s.wrote {
		for _, st := range truth {
			if st.Message == string(l.Message) && st.number() != w.value {
				s.Errorf("a client wrote %d to %s, where no other client writes, the authority has %d", w.value, l.Message, st.number())
			}
		}
	}
}
