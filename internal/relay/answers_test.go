package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/subject"
)

// answered is a bus that keeps the answers to publishes.
type answered struct {
	recording
	to map[string][]string
}

func (b answered) Publish(m bus.Msg) error {
	if strings.HasPrefix(m.Subject, "reply.") {
		b.to[m.Subject] = append(b.to[m.Subject], string(m.Data))
	}
	return nil
}

// TestAnswersAgain: a publisher whose answer was lost asks for it, and gets the same; one that waits for its answer gets it once, and one
// whose publish the relay never got is told to say it again. Nothing is applied twice.
func TestAnswersAgain(t *testing.T) {
	w, shard := benchWorker(t, nil)
	b := answered{to: map[string][]string{}}
	w.relay.cfg.Bus = b
	w.relay.cfg.Tick = time.Minute
	now := time.Unix(1000, 0)
	send := func(reply, body string, h map[string]string) {
		w.post(shard, (*Worker).publish, bus.Msg{Subject: "dnp.v1.shard.0.publish.s", Reply: reply, Data: []byte(body), Header: h})
		w.Turn(now)
	}
	again := map[string]string{subject.HeaderAgain: "answer"}
	send("reply.1", `{"op":"put","key":"k","values":[{"name":"n","type":"uint8","value":1}]}`, nil)
	send("reply.1", "", again)
	if got := b.to["reply.1"]; len(got) != 2 || got[0] != got[1] || !strings.HasPrefix(got[0], `{"epoch"`) {
		t.Errorf("the answer and its repetition are %q", got)
	}
	send("reply.2", `{"op":"set","key":"k","values":{"n":2}}`, nil)
	send("reply.2", "", again)
	if got := b.to["reply.2"]; len(got) != 0 {
		t.Errorf("before the batch, the answer is %q, want none", got)
	}
	now = now.Add(2 * time.Minute)
	w.Turn(now)
	if got := b.to["reply.2"]; len(got) != 1 || strings.Contains(got[0], "error") {
		t.Errorf("with the batch, the answer is %q, want one", got)
	}
	send("reply.3", "", again)
	if got := b.to["reply.3"]; len(got) != 1 || !strings.Contains(got[0], `"busy"`) {
		t.Errorf("the answer to what the relay never got is %q, want busy", got)
	}
	if got := w.spaces["s"].store.Stats().Publishes; got != 2 {
		t.Errorf("%d publishes were applied, want 2", got)
	}
}

// TestAnswersBounds: the oldest answers are forgotten first.
func TestAnswersBounds(t *testing.T) {
	a := newAnswers()
	const size, more = 1 << 20, 20
	for i := range more {
		a.keep(fmt.Sprint("reply.", i), make([]byte, size))
		a.keep("", make([]byte, size))
	}
	var kept []int
	for i := range more {
		if _, ok := a.to(fmt.Sprint("reply.", i)); ok {
			kept = append(kept, i)
		}
	}
	if want := []int{13, 14, 15, 16, 17, 18, 19}; !slices.Equal(kept, want) || a.bytes > answersBytesMax || len(a.by) != len(a.queue) {
		t.Errorf("of %d answers of a MiB, %v are kept, %d bytes, %d in the queue; want %v", more, kept, a.bytes, len(a.queue), want)
	}
}
