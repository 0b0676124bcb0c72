package command

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// TestVectors checks the vectors that clients in other languages check, too.
func TestVectors(t *testing.T) {
	f, err := os.Open("testdata/envelopes.hex")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := map[string]Envelope{}
	for name, q := range map[string]Request{
		"request key":  {ID: 1, Key: "door", Name: "open", Body: []byte("now")},
		"request link": {ID: 65535, ByLink: true, Link: 0x8001, Name: "hit"},
	} {
		want[name] = Envelope{Kind: KindRequest, Request: q}
	}
	want["hello"] = Envelope{Kind: KindHello}
	want["hello answer"] = Envelope{Kind: KindAnswer}
	want["answer"] = Envelope{Kind: KindAnswer, Answer: Answer{ID: 1, Body: []byte("opened")}}
	want["answer error"] = Envelope{Kind: KindAnswer, Answer: Answer{ID: 258, Code: NotAuthorised, Body: []byte("not_authorised")}}
	want["raw"] = Envelope{Kind: KindRaw, Raw: []byte("\xC5x")}
	lines := bufio.NewScanner(f)
	seen := 0
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), ":")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		seen++
		if why, bad := strings.CutPrefix(name, "malformed "); bad {
			if env, err := Parse(data); err == nil {
				t.Errorf("%s: parsed as %+v", why, env)
			}
			continue
		}
		env, err := Parse(data)
		if err != nil || !equal(env, want[name]) {
			t.Errorf("%s: got %+v, %v, want %+v", name, env, err, want[name])
		}
		if got := appendEnvelope(t, []byte("prefix"), env); !bytes.Equal(got, append([]byte("prefix"), data...)) {
			t.Errorf("%s: encoded as % x, want % x behind the prefix", name, got, data)
		}
		delete(want, name)
	}
	if len(want) > 0 || seen < 12 {
		t.Errorf("the file has %d vectors and lacks %v", seen, want)
	}
}

func equal(a, b Envelope) bool {
	return a.Kind == b.Kind && a.Request.ID == b.Request.ID && a.Request.ByLink == b.Request.ByLink && a.Request.Link == b.Request.Link &&
		a.Request.Key == b.Request.Key && a.Request.Name == b.Request.Name && bytes.Equal(a.Request.Body, b.Request.Body) &&
		a.Answer.ID == b.Answer.ID && a.Answer.Code == b.Answer.Code && bytes.Equal(a.Answer.Body, b.Answer.Body) && bytes.Equal(a.Raw, b.Raw)
}

func appendEnvelope(t testing.TB, b []byte, env Envelope) []byte {
	t.Helper()
	switch env.Kind {
	case KindHello:
		return append(b, Hello...)
	case KindRequest:
		b, err := env.Request.Append(b)
		if err != nil {
			t.Fatalf("%+v was parsed and cannot be encoded: %v", env.Request, err)
		}
		return b
	case KindAnswer:
		return env.Answer.Append(b)
	}
	return append(append(b, Mark, byte(KindRaw)), env.Raw...)
}

// TestTruncations checks that no head of a request is a request, up to its body.
func TestTruncations(t *testing.T) {
	for _, q := range []Request{{ID: 7, Key: "a.b", Name: "go"}, {ID: 7, ByLink: true, Link: 9, Name: "go"}} {
		whole, err := q.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if env, err := Parse(whole[:n]); err == nil {
				t.Errorf("%d of %d bytes parse as %+v", n, len(whole), env)
			} else if n >= 4 && env.Request.ID != 7 {
				t.Errorf("%d of %d bytes have the id %d, want 7: the edge answers the request", n, len(whole), env.Request.ID)
			}
		}
	}
}

// TestBounds checks what is too large on both sides.
func TestBounds(t *testing.T) {
	for why, q := range map[string]Request{
		"key": {ID: 1, Key: strings.Repeat("k", KeyMax+1), Name: "n"}, "name": {ID: 1, Key: "k", Name: strings.Repeat("n", NameMax+1)},
		"body": {ID: 1, Key: "k", Name: "n", Body: make([]byte, BodyMax+1)},
	} {
		if _, err := q.Append(nil); err != ErrTooLarge {
			t.Errorf("%s: %v", why, err)
		}
	}
	whole, _ := Request{ID: 3, Key: "k", Name: "n", Body: make([]byte, BodyMax)}.Append(nil)
	if _, err := Parse(whole); err != nil {
		t.Errorf("the largest body: %v", err)
	}
	if env, err := Parse(append(whole, 0)); err != ErrTooLarge || env.Request.ID != 3 {
		t.Errorf("one byte more: %v, id %d: the edge has to tell which request is too large", err, env.Request.ID)
	}
}

// TestRaw checks that each message of an application survives the envelope.
func TestRaw(t *testing.T) {
	for _, m := range []string{"", "x", "\xC5", "\xC5\x02x", Hello, "\xC4\xC5"} {
		b := AppendRaw(nil, []byte(m))
		if !IsEnvelope(b) {
			if string(b) != m {
				t.Errorf("%q becomes %q", m, b)
			}
			continue
		}
		if env, err := Parse(b); err != nil || env.Kind != KindRaw || string(env.Raw) != m {
			t.Errorf("%q becomes %q, which parses as %+v, %v", m, b, env, err)
		}
	}
}

// TestCodes checks that each code has a name of its own.
func TestCodes(t *testing.T) {
	for c := OK; c <= Failed; c++ {
		if ParseCode(c.String()) != c {
			t.Errorf("code %d is %q, which is code %d", c, c, ParseCode(c.String()))
		}
	}
	if ParseCode("of another release") != Failed || Code(200).String() != "failed" {
		t.Error("a code that is not known is a failure")
	}
}

// TestParseAllocates checks that hostile input costs no allocation.
func TestParseAllocates(t *testing.T) {
	bad := []byte("\xC5\x01\x01\x00\x00\xff\xffabc")
	if n := testing.AllocsPerRun(100, func() { _, _ = Parse(bad) }); n != 0 {
		t.Errorf("%v allocations for a malformed request", n)
	}
}

// TestProgressTwin compares a Progress with a set of ids, which is right for ids within the window of the
// highest one.
func TestProgressTwin(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var p Progress
		twin := map[int]bool{}
		highest := -1
		next := 1
		for range 3000 {
			id := next
			if rng.IntN(3) > 0 && highest > 0 {
				id = max(1, highest-rng.IntN(Window))
			} else {
				next += 1 + rng.IntN(40)
			}
			p.Note(uint16(id))
			twin[id] = true
			highest = max(highest, id)
			if rng.IntN(10) == 0 {
				p.Forget(uint16(highest - 1))
				delete(twin, highest-1)
			}
			p = Restore(p.Words())
			for i := max(0, highest-Window+1); i < highest+100; i++ {
				if p.Answered(uint16(i)) != twin[i] {
					t.Fatalf("seed %d: id %d of highest %d: answered %v, want %v", seed, i, highest, !twin[i], twin[i])
				}
			}
			if highest > Window && !p.Answered(uint16(highest-Window)) {
				t.Fatalf("seed %d: an id below the window must count as answered", seed)
			}
		}
	}
}

// TestTokens checks that the tokens of answers are no others.
func TestTokens(t *testing.T) {
	for _, id := range []uint16{0, 1, 65535} {
		if got, ok := TokenID(Token(id)); !ok || got != id {
			t.Errorf("id %d has the token %#x, which is of %d, %v", id, Token(id), got, ok)
		}
	}
	for _, token := range []uint64{0, 1, 1<<19 - 1, 1 << 20, 1<<20 | 1<<19, 1<<44 | 1<<19 | 5, 1<<19 | 1<<16} {
		if id, ok := TokenID(token); ok {
			t.Errorf("token %#x of a message is taken for the answer to %d", token, id)
		}
	}
}

// FuzzParse checks that what parses is encoded to the same bytes.
func FuzzParse(f *testing.F) {
	seed, _ := Request{ID: 1, Key: "door", Name: "open", Body: []byte("now")}.Append(nil)
	f.Add(seed)
	f.Add([]byte(Hello))
	f.Add(Answer{ID: 1, Code: Busy}.Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		env, err := Parse(data)
		if err != nil {
			return
		}
		if got := appendEnvelope(t, nil, env); !bytes.Equal(got, data) {
			t.Errorf("% x parses as %+v, which is encoded as % x", data, env, got)
		}
	})
}
