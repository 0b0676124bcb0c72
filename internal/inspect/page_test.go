package inspect

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPages reads the names of several nodes page by page, and compares with all names sorted.
func TestPages(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		nodes := make([][]string, 1+rnd.IntN(4))
		var all []string
		for i := range 1 + rnd.IntN(60) {
			name := fmt.Sprintf("n%d-%d", rnd.IntN(1000), i)
			n := rnd.IntN(len(nodes))
			nodes[n], all = append(nodes[n], name), append(all, name)
		}
		slices.Sort(all)
		var got []string
		for q := (Query{Max: 1 + rnd.IntN(7)}); ; {
			var pages []List[string]
			for _, names := range nodes {
				p := NewPage[string](q)
				for _, name := range names {
					p.Offer(name, name)
				}
				if l := p.List(); len(l.Entries) > q.Max {
					t.Fatalf("seed %d: a page has %d entries, at most %d", seed, len(l.Entries), q.Max)
				} else {
					pages = append(pages, l)
				}
			}
			page := MergePages(pages, func(s *string) string { return *s })
			got = append(got, page.Entries...)
			if page.Next == "" {
				break
			}
			q.After = page.Next
		}
		if !slices.Equal(got, all) {
			t.Fatalf("seed %d: pages have %v, want all names once and in order: %v", seed, got, all)
		}
	}
}

// TestPageNames: sessions of one client are two entries, and what is offered again replaces the entry of its name, so
// that a page has each session once.
func TestPageNames(t *testing.T) {
	p := NewPage[Client](Query{Max: 3})
	for _, c := range []Client{{Client: "b"}, {Client: "a", Session: "1"}, {Client: "a", Session: "2"}, {Client: "a", Session: "1", Writes: 7}} {
		p.Offer(c.Name(), c)
	}
	if l := p.List(); len(l.Entries) != 3 || l.Entries[0].Writes != 7 || l.Entries[1].Session != "2" || l.Entries[2].Client != "b" || l.Next != "" {
		t.Errorf("the page is %+v", l)
	}
}

// TestCut: the next page begins behind the last entry that is left.
func TestCut(t *testing.T) {
	l := List[Space]{Entries: []Space{{Space: "a"}, {Space: "b"}, {Space: "c"}}}
	if c := Cut(l, 2, (*Space).Name); len(c.Entries) != 2 || c.Next != "b" {
		t.Errorf("two entries of three are %+v", c)
	}
	if c := Cut(l, 3, (*Space).Name); len(c.Entries) != 3 || c.Next != "" {
		t.Errorf("three entries of three are %+v", c)
	}
}

// TestMillis: a time is a number of milliseconds with three decimals at most, and comes back.
func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 1500 * time.Microsecond: "1.5", time.Second + time.Microsecond: "1000.001", time.Hour: "3600000"} {
		form, err := json.Marshal(Millis(d))
		if err != nil || string(form) != want {
			t.Errorf("%v is %s, %v, want %s", d, form, err, want)
		}
		var m Millis
		if err := json.Unmarshal(form, &m); err != nil || m != Millis(d) {
			t.Errorf("%s is read as %v, %v", form, time.Duration(m), err)
		}
	}
}

func TestParseQuery(t *testing.T) {
	for body, want := range map[string]Query{
		"":                           {Max: PageDefault},
		"{}":                         {Max: PageDefault},
		`{"max":7,"after":"x"}`:      {Max: 7, After: "x"},
		`{"max":100000}`:             {Max: PageMax},
		`{"client":"a","key":"b.c"}`: {Max: PageDefault, Client: "a", Key: "b.c"},
	} {
		if q, err := ParseQuery([]byte(body)); err != nil || q != want {
			t.Errorf("%s: %+v, %v, want %+v", body, q, err, want)
		}
	}
	for _, body := range []string{"[", `{"max":-1}`, `{"after":"` + strings.Repeat("x", QueryBytesMax) + `"}`} {
		if _, err := ParseQuery([]byte(body)); err != ErrBadRequest {
			t.Errorf("%.20s…: %v, want that it is refused", body, err)
		}
	}
	for _, body := range []string{"", `{"client":"a"}`, `{"key":"k"}`, `{"client":"a b","key":"k"}`, `{"client":"a","key":"k..l"}`} {
		if _, err := ParseWhy([]byte(body)); err != ErrBadRequest {
			t.Errorf("why %s: %v, want that it is refused", body, err)
		}
	}
}

// TestLimiter floods a node for ten seconds.
func TestLimiter(t *testing.T) {
	var l Limiter
	now := time.Unix(1000, 0)
	for range 10_000 {
		l.Take(now)
		now = now.Add(time.Millisecond)
	}
	c := l.Counts
	if got := c.Answered + c.Busy + c.Dropped; got != 10_000 {
		t.Errorf("%d requests are counted, want all 10,000", got)
	}
	if c.Answered < 590 || c.Answered > 601 || c.Busy < 100 || c.Busy > 111 {
		t.Errorf("%d answers and %d times busy in 10 s, want a burst of %d and %d a second, and %d a second", c.Answered, c.Busy, answersBurst, answersPerSecond, busyPerSecond)
	}
	now = now.Add(time.Hour)
	answered := 0
	for range 1000 {
		if l.Take(now) == Answer {
			answered++
		}
	}
	if answered != 100 {
		t.Errorf("%d of 1,000 requests at once are answered after an hour, want a burst of 100", answered)
	}
	l.Take(now.Add(-time.Hour))
	if l.Take(now.Add(time.Second-time.Hour)) != Answer {
		t.Error("a second after a step back of the clock no request is answered")
	}
}

func TestCondition(t *testing.T) {
	for want, f := range map[string]*NodeFacts{
		"not ready":                 {},
		"ready":                     {Ready: true},
		"draining":                  {Ready: true, Draining: true, Missing: []string{"redis"}},
		"ready, without log, redis": {Ready: true, Missing: []string{"log", "redis"}},
		"not ready: no shards":      {Missing: []string{"shards"}},
	} {
		if got := f.Condition(); got != want {
			t.Errorf("the condition of %+v is %q, want %q", *f, got, want)
		}
	}
	if got := (*NodeFacts)(nil).Condition(); got != "not ready" {
		t.Errorf("the condition of a node that says nothing is %q", got)
	}
}
