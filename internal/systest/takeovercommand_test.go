package systest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/subject"
)

// In every second seed clients send commands, too. Each must be executed once or refused, never both, and
// must get one answer, the one that belongs to that.

// commands reports whether clients send commands.
func (w *takeoverWorld) commands() bool { return w.seed%2 == 0 }

// gate is the key of the state that most commands are about.
const gate = "gate"

// gatePut makes the state that commands are about. Its access changes while the clients play.
func gatePut(access string) string {
	return fmt.Sprintf(`{"op":"put","key":"gate","access":%q,"values":[{"name":"open","type":"uint8","value":0}]}`, access)
}

// playGate changes who may write the gate, until everything heals.
func (w *takeoverWorld) playGate() {
	access := "read-write"
	w.net.Every(700*time.Millisecond, func() bool {
		if access = "read-write"; w.net.Rand().IntN(4) == 0 {
			access = "read-only"
		}
		w.fire("s", gatePut(access))
		return !w.healed
	})
}

// takeoverCommands are the commands of a player, as its application, and the game, see them.
type takeoverCommands struct {
	said, granted bool
	last          uint16            // id of the newest
	waiting       map[uint16]bool   // those without an answer
	answers       map[uint16]string // of the others: code and body
	keys          map[uint16]string // of the states that they are about
	executed      map[uint16]int    // how often the game executed them
	refused       map[uint16]bool   // those that the game got as refused
}

func newTakeoverCommands() takeoverCommands {
	return takeoverCommands{waiting: map[uint16]bool{}, answers: map[uint16]string{}, keys: map[uint16]string{}, executed: map[uint16]int{}, refused: map[uint16]bool{}}
}

// command has the client send a command, unless too many have no answer.
func (p *takeoverPlayer) command() {
	w, c := p.w, &p.commands
	if !c.said {
		c.said = p.Send(w.net.Now(), []byte(command.Hello)) == nil
		return
	}
	for id := range maps.Keys(c.waiting) {
		if len(c.waiting) >= command.OutstandingMax || c.last+1-id >= command.Window {
			return
		}
	}
	q := command.Request{ID: c.last + 1, Name: "use", Body: []byte("x")}
	key := p.target(&q)
	data, err := q.Append(nil)
	if err != nil {
		w.Fatal(err)
	}
	if p.Send(w.net.Now(), data) == nil {
		c.last++
		c.waiting[c.last], c.keys[c.last] = true, key
		w.net.Wake(p.addr)
	}
}

// target chooses the state that a command is about, names it by its key or by its link, and returns its key.
func (p *takeoverPlayer) target(q *command.Request) (key string) {
	rnd, link := p.w.net.Rand(), (*dnptest.Link)(nil)
	switch key = []string{gate, gate, gate, gate, "tower", "nothing", "", ""}[rnd.IntN(8)]; key {
	case "":
		if key, link = gate, p.LinkNamed(gate); p.own != nil && p.own.Phase == dnptest.LinkIsUp {
			key, link = p.ownKey(), p.own
		}
	case gate:
		link = p.LinkNamed(gate)
	}
	if q.ByLink = link != nil && rnd.IntN(2) == 0; q.ByLink {
		q.Link = link.ID
	} else {
		q.Key = key
	}
	return key
}

// ownKey is the key of the state that the client offers.
func (p *takeoverPlayer) ownKey() string { return fmt.Sprintf("client.%s.%d", p.name, p.own.ID) }

// longAnswer reports whether the game gives a request an answer that Java does not take.
func longAnswer(id uint16) bool { return id%16 == 7 }

// execute has the game take an envelope of the client, once, in its order.
func (p *takeoverPlayer) execute(m sessionlog.Message) {
	id64, err := strconv.ParseUint(m.Header[subject.HeaderRequest], 10, 16)
	id, c := uint16(id64), &p.commands
	if err != nil {
		p.w.failf("the game gets the headers %v from player %d", m.Header, p.index)
		return
	}
	if id == command.HelloID {
		return
	}
	answer := bus.Msg{
		Subject: p.w.subjects.To("s", p.name), Data: fmt.Appendf(nil, "done %d", id),
		Header: map[string]string{subject.HeaderAnswer: strconv.Itoa(int(id)), subject.HeaderSession: m.Header[subject.HeaderSession]},
	}
	if key := m.Header[subject.HeaderKey]; m.Header[subject.HeaderRefused] == "" && key != c.keys[id] {
		p.w.failf("the game gets request %d of player %d about %q, want %q", id, p.index, key, c.keys[id])
	}
	if longAnswer(id) {
		answer.Data = append(answer.Data, strings.Repeat("-", 2500)...)
	}
	if code := m.Header[subject.HeaderRefused]; code != "" {
		c.refused[id] = true
		answer.Data, answer.Header[subject.HeaderCode] = []byte(code), code
	} else {
		c.executed[id]++
	}
	p.w.net.Schedule(time.Duration(p.w.net.Rand().IntN(300))*time.Millisecond, func() { p.answer(answer) })
}

// answer has the game send an answer until an edge has it, as package publisher does.
func (p *takeoverPlayer) answer(m bus.Msg) {
	w := p.w
	if p.frozen {
		return
	}
	patience := time.Duration(50+w.net.Rand().IntN(250)) * time.Millisecond // often shorter than an answer waits
	w.game.Request(m, patience, func(reply bus.Msg, err error) {
		if err != nil || strings.Contains(string(reply.Data), "error") {
			w.net.Schedule(20*time.Millisecond, func() { p.answer(m) })
		}
	})
}

// answered takes a message to the client that may be an envelope. It reports false for another.
func (p *takeoverPlayer) answered(m dnptest.Message) bool {
	c := &p.commands
	if !c.said || !command.IsEnvelope(m.Data) {
		return false
	}
	env, err := command.Parse(m.Data)
	id := env.Answer.ID
	switch {
	case err != nil || env.Kind != command.KindAnswer:
		p.w.failf("player %d gets the envelope % x", p.index, m.Data)
	case id == command.HelloID:
		if c.granted {
			p.w.failf("player %d gets two answers to its hello", p.index)
		}
		c.granted = true
	case !c.waiting[id]:
		p.w.failf("player %d gets %v %.20q as answer to request %d, which had %.20q", p.index, env.Answer.Code, env.Answer.Body, id, c.answers[id])
	default:
		delete(c.waiting, id)
		c.answers[id] = env.Answer.Code.String() + " " + string(env.Answer.Body)
		p.w.answers++
	}
	return true
}

// judgeCommands wants each command to have its answer: that of the game if it executed the command, otherwise a
// refusal. The game does not hear of a command that a former edge refused, and this one would not. No edge may
// refuse a command about the state that the client offers all the time.
func (p *takeoverPlayer) judgeCommands() {
	w, c := p.w, &p.commands
	if c.said && !c.granted {
		w.failf("player %d gets no answer to its hello", p.index)
	}
	for id := uint16(1); id <= c.last; id++ {
		answer, ok := c.answers[id]
		code, body, _ := strings.Cut(answer, " ")
		switch {
		case !ok:
			w.failf("player %d gets no answer to request %d; executed %d times, refused %v", p.index, id, c.executed[id], c.refused[id])
		case c.executed[id] > 1 || c.executed[id] == 1 && c.refused[id]:
			w.failf("request %d of player %d is executed %d times, refused %v", id, p.index, c.executed[id], c.refused[id])
		case c.executed[id] == 0 && p.own != nil && c.keys[id] == p.ownKey():
			w.failf("player %d gets the answer %.30q to request %d about its own state", p.index, answer, id)
		case c.executed[id] == 1 && code == "too_large" && longAnswer(id) && p.Behaviour().LongMessage != dnptest.LongWorks:
		case c.executed[id] == 1 && (code != "ok" || !strings.HasPrefix(body, fmt.Sprintf("done %d", id))), c.executed[id] == 0 && body != code:
			w.failf("player %d gets the answer %.30q to request %d; executed %d times, refused %v", p.index, answer, id, c.executed[id], c.refused[id])
		}
	}
}
