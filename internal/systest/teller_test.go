package systest

import (
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
)

// A teller is a game server that sends a client messages, one after the other, and repeats each with its token until it is answered.
type teller struct {
	w       *world
	name    func() string      // of the client
	payload func(i int) []byte // of message i
	refused func(i int) bool   // the client does not take message i; nil if it takes all
	over    func() bool        // the client has gone
	told    int                // messages that an edge promised to send, or refused
	telling bool               // a message waits for that promise
}

// tell sends the next message, if none waits.
func (t *teller) tell() {
	if !t.telling {
		t.telling = true
		t.send()
	}
}

func (t *teller) send() {
	if t.over() {
		return
	}
	m := bus.Msg{
		Subject: t.w.subjects.To("s", t.name()), Data: t.payload(t.told), Header: map[string]string{"Dnp-Token": strconv.Itoa(t.told + 1)},
	}
	patience := time.Duration(50+t.w.net.Rand().IntN(250)) * time.Millisecond // often shorter than a message waits
	t.w.game.Request(m, patience, func(answer bus.Msg, err error) {
		refused := err == nil && t.refused != nil && t.refused(t.told) && strings.Contains(string(answer.Data), `"too_large"`)
		if err == nil && !strings.Contains(string(answer.Data), "error") || refused {
			t.told++
			t.telling = false
			return
		}
		t.w.net.Schedule(20*time.Millisecond, t.send)
	})
}
