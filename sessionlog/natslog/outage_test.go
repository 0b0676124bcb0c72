package natslog

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestOutage checks that the log reports the beginning and the end of each outage once, also
// when a store that is nearly full takes a write now and then.
func TestOutage(t *testing.T) {
	var text strings.Builder
	l := &Log{cfg: Config{Log: slog.New(slog.NewTextHandler(&text, nil))}}
	const stored, stale = `{"stream":"S","seq":5}`, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"}}`
	full := func(why string) string {
		return `{"error":{"code":503,"err_code":10077,"description":"` + why + `"}}`
	}
	start := time.Unix(1e9, 0)
	for _, step := range []struct {
		why    string
		at     time.Duration
		answer string
		want   string // of the log
	}{
		{"nothing is wrong", 0, stored, ""},
		{"the first refusal is logged with its reason", time.Second, full("maximum bytes exceeded"), "maximum bytes exceeded"},
		{"the second refusal is not logged", 2 * time.Second, full("other"), ""},
		{"one stored write does not end the outage", 3 * time.Second, stored, ""},
		{"this refusal belongs to the same outage", 4 * time.Second, full("other"), ""},
		{"the refusal was less than 10 s ago", 14*time.Second - 1, stored, ""},
		{"a stale write shows no room in the store", 14 * time.Second, stale, ""},
		{"the outage is over", 14 * time.Second, stored, "takes writes again"},
		{"the end is logged once", 15 * time.Second, stored, ""},
		{"the next outage is logged, too", time.Hour, full("no space left on device"), "no space left on device"},
		{"the end of the next outage is logged", 2 * time.Hour, stored, "takes writes again"},
	} {
		text.Reset()
		l.judge(start.Add(step.at), &nats.Msg{Data: []byte(step.answer)}, nil)
		if got := text.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("at %v the log says %q, want %q: %s", step.at, got, step.want, step.why)
		}
	}
}

// TestFull checks that a store without room is unreachable, which asks for a repetition, and
// not busy.
func TestFull(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	l := open(t, Config{Conn: nc, Shards: 1, Log: slog.New(slog.DiscardHandler)})
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes int64) {
		cfg := stream.CachedInfo().Config
		cfg.MaxBytes, cfg.Discard = bytes, natsjs.DiscardNew
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan sessionlog.Answer, 1)
	want := func(v fence.Verdict, why string) {
		t.Helper()
		l.Append(sessionlog.Write{Log: "x", Data: make([]byte, 1000), Rollup: true}, func(a sessionlog.Answer) { done <- a })
		if a := <-done; a.Verdict != v {
			t.Fatalf("a write is answered %v, want %v: %s", a.Verdict, v, why)
		}
	}
	limit(500)
	want(fence.Unreachable, "there is no room")
	limit(-1)
	want(fence.OK, "there is room")
}
