package relay

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestShardLog is an outage of the store, in which a relay loses three shards and holds them again in two steps, and
// what happens before and after it. Each step has the lines that it causes.
func TestShardLog(t *testing.T) {
	var l shardLog
	start := time.Unix(1e9, 0)
	serve := func(shards ...int) func(time.Time) {
		return func(now time.Time) {
			for _, n := range shards {
				l.serve(now, n)
			}
		}
	}
	silence := func(shard int) func(time.Time) {
		return func(now time.Time) {
			l.stop(now, shard)
			l.lose(now, shard, storeSilent)
		}
	}
	for _, step := range []struct {
		second    float64
		why       string
		do        func(now time.Time)
		connected bool
		want      string // parts of lines, in order; with commas
	}{
		{0, "shards arrive", serve(4, 1, 2), true, ""},
		{0.5, "another one", serve(3), true, ""},
		{1.4, "not quiet yet", nil, true, ""},
		{1.5, "quiet", nil, true, `"serving shards" count=4 shards=1-4`},
		{9, "nothing new", nil, true, ""},
		{10, "another relay is to have one", func(now time.Time) { l.stop(now, 3) }, true, ""},
		{11, "quiet", nil, true, `"serving shards" count=3 shards="1-2 4"`},
		{12, "stored states with one key", func(now time.Time) { l.replace(now, "s", 7); l.replace(now, "t", 8) }, true, ""},
		{13, "one line for all", nil, true, `"deleting stored states that later ones with the same keys replace" count=2 first=s/7`},
		{20, "the store is silent", func(now time.Time) {
			for _, n := range []int{1, 2, 4} {
				l.stop(now, n)
				l.lose(now, n, storeSilent)
			}
		}, false, ""},
		{21, "one line for all, although the bus is away", nil, false, `"shards lost" count=3 reason="store silent" shards="1-2 4"`},
		{40, "no line while there is nothing new", nil, false, ""},
		{41, "the bus is back, and no stream has a leader", nil, true, ""},
		{45, "the first stream", func(now time.Time) { serve(1, 2)(now); l.inherit(now, 5); l.inherit(now, 2) }, true, ""},
		{47, "the second stream", func(now time.Time) { serve(4)(now); l.inherit(now, 1) }, true, ""},
		{51.9, "almost", nil, true, ""},
		{52, "one line for all", nil, true, `"serving shards" count=3 shards="1-2 4" held_again=3 states_kept=8`},
		{60, "another relay took a shard", func(now time.Time) { l.stop(now, 4); l.lose(now, 4, "taken") }, true, ""},
		{61, "that is told at once", nil, true, `"shards lost" count=1, "serving shards" count=2 shards=1-2`},
		{70, "the store is silent, and other relays take the shards", func(now time.Time) {
			for _, n := range []int{1, 2} {
				l.stop(now, n)
				l.lose(now, n, storeSilent)
			}
		}, true, ""},
		{71, "they are lost", nil, true, `"shards lost" count=2`},
		{129, "they may come back", nil, true, ""},
		{130, "they do not", nil, true, `"serving shards" count=0`},
		{200, "shards arrive", serve(1, 2, 3, 4), true, ""},
		{201, "quiet", nil, true, `"serving shards" count=4`},
		{300, "the store is silent", silence(1), true, ""},
		{303, "one shard is lost, and the lease of the next has not ended", nil, true, ""},
		{304, "it ends", silence(2), true, ""},
		{308.9, "more may follow", nil, true, ""},
		{309, "one line for both", nil, true, `"shards lost" count=2 reason="store silent" shards=1-2, "serving shards" count=2 shards=3-4`},
		{400, "and another time", silence(3), false, ""},
		{401, "the last one", silence(4), false, ""},
		{402, "nothing can follow", nil, false, `"shards lost" count=2 reason="store silent" shards=3-4`},
		{450, "shards arrive", serve(1, 2, 3), true, ""},
		{460, "they are told, with a pause of five seconds", nil, true, `"serving shards" count=3`},
		{470, "the store is slow", silence(1), true, ""},
		{474, "and NATS ends", nil, false, ""},
		{475, "the other leases have not ended", nil, false, ""},
		{479, "now they have", func(now time.Time) { silence(2)(now); silence(3)(now) }, false, ""},
		{480, "one line for the outage", nil, false, `"shards lost" count=3 reason="store silent" shards=1-3`},
		{500, "a store that comes and goes", func(now time.Time) { serve(1, 2)(now); silence(1)(now) }, false, ""},
		{504, "", func(now time.Time) { serve(1)(now); silence(1)(now) }, false, ""},
		{508, "", func(now time.Time) { serve(1)(now); silence(1)(now) }, false, ""},
		{509.9, "almost", nil, false, ""},
		{510, "delays the line by ten seconds", nil, false, `"shards lost" count=1 reason="store silent" shards=1`},
	} {
		now := start.Add(time.Duration(step.second * float64(time.Second)))
		if step.do != nil {
			step.do(now)
		}
		var text strings.Builder
		l.tell(now, step.connected, slog.New(slog.NewTextHandler(&text, nil)))
		got := text.String()
		rest := got
		for part := range strings.SplitSeq(step.want, ", ") {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("second %v, %s: no %s in\n%s", step.second, step.why, part, got)
			}
			rest = after
		}
		if want := strings.Count(step.want, ", ") + 1; step.want == "" && got != "" || step.want != "" && strings.Count(got, "\n") != want {
			t.Errorf("second %v, %s: want %q, got\n%s", step.second, step.why, step.want, got)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "7": {7}, "0-3 7 9-10": {10, 3, 0, 7, 2, 1, 9}} {
		if got := ranges(numbers); got != want {
			t.Errorf("%v are %q, want %q", numbers, got, want)
		}
	}
}
