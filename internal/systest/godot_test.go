package systest

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
)

// godotContent is the content type of a dialect.
func godotContent(d variant.Dialect) string {
	return "application/x-godot-variant; version=" + d.Version()
}

// ask sends a request with headers and returns the answer.
func (s *stack) ask(subject string, header map[string]string, body []byte) []byte {
	s.Helper()
	data, _ := s.askForm(subject, header, body)
	return data
}

// askForm is ask, and returns the content type of the answer, too.
func (s *stack) askForm(subject string, header map[string]string, body []byte) (data []byte, content string) {
	s.Helper()
	type answer struct {
		m   bus.Msg
		err error
	}
	got := make(chan answer, 1)
	s.game.Request(bus.Msg{Subject: subject, Header: header, Data: body}, patience, func(m bus.Msg, err error) {
		got <- answer{m, err}
	})
	a := <-got
	if a.err != nil {
		s.Fatalf("%s: %v", subject, a.err)
	}
	return a.m.Data, a.m.Header["Content-Type"]
}

// member returns the value of a Dictionary at these keys, one inside the other.
func member(t *testing.T, d variant.Dialect, p []byte, keys ...string) variant.Value {
	t.Helper()
	v, err := variant.DecodeDictionary(d, p)
	if err != nil {
		t.Fatalf("%q: %v", p, err)
	}
next:
	for _, key := range keys {
		for c := v.Elements(); c.Next(); {
			if c.Key().Type() == variant.Nil || c.Key().Text() == key {
				v = c.Value()
				continue next
			}
		}
		t.Fatalf("no %q in %x", key, p)
	}
	return v
}

// dictionary writes a Dictionary of text keys, in order.
func dictionary(w *variant.Writer, members ...any) {
	m := w.Begin(variant.Dictionary)
	for i := 0; i < len(members); i += 2 {
		w.String(members[i].(string))
		switch x := members[i+1].(type) {
		case string:
			w.String(x)
		case func():
			x()
		}
	}
	w.End(m, len(members)/2)
}

// TestGodotPublish publishes Variants of each dialect: a client sees the state, errors are
// answered in the form of the request, and get and the events of a client's writes are Variants.
func TestGodotPublish(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	s.publish(lampPut) // the relay holds the shard
	p := s.client(0, dnptest.Cpp())
	for d := variant.Godot2; d <= variant.Godot4; d++ {
		changed := make(chan bus.Msg, 10)
		end, err := s.game.Subscribe(s.subjects.EventIn("s", d.String()), func(m bus.Msg) { changed <- m })
		if err != nil {
			t.Fatal(err)
		}
		header := map[string]string{"Content-Type": godotContent(d)}
		publish := func(value func(w *variant.Writer)) []byte {
			w := variant.NewWriter(d, nil)
			dictionary(&w, "op", "put", "message", "G"+d.Version(), "access", "read-write", "values", func() {
				m := w.Begin(variant.Array)
				dictionary(&w, "name", "pos", "type", "vector3f32", "value", func() { value(&w) })
				w.End(m, 1)
			})
			answer, content := s.askForm(s.subjects.Publish("s", "g"+d.Version()), header, w.Bytes())
			if content != godotContent(d) {
				t.Errorf("%v: the content type of an answer is %q", d, content)
			}
			return answer
		}
		answer := publish(func(w *variant.Writer) { w.Floats(variant.Vector3, 1, 2, 3) })
		if seq := member(t, d, answer, "seq"); seq.Type() != variant.Int {
			t.Errorf("%v: seq is %v", d, seq.Type())
		}
		pos := vec3(1, 2, 3)
		s.sees(p, "G"+d.Version(), pos)

		answer = publish(func(w *variant.Writer) { w.String("far") })
		if got := member(t, d, answer, "error", "message").Text(); got != `value "pos": want vector3f32, got String` {
			t.Errorf("%v: the error is %q", d, got)
		}
		answer, content := s.askForm(s.subjects.Get("s", "g"+d.Version()), map[string]string{"Accept": godotContent(d)}, nil)
		if content != godotContent(d) {
			t.Errorf("%v: the content type of a listing is %q", d, content)
		}
		v := member(t, d, answer, "states", "0", "values", "0", "value")
		if v.Type() != variant.Vector3 || v.Real(2) != 3 {
			t.Errorf("%v: get returns %v", d, v.Type())
		}

		link := "G" + d.Version()
		s.until(p, "the link is up", func(c *dnptest.Client) bool { return c.LinkNamed(link).Phase == dnptest.LinkIsUp })
		s.writes(p, link, 0, vec3(4, 5, 6))
		select {
		case event := <-changed:
			if v := member(t, d, event.Data, "values", "pos"); member(t, d, event.Data, "type").Text() != "changed" || v.Real(1) != 5 {
				t.Errorf("%v: the event is %q", d, event.Data)
			}
			if got := event.Header["Content-Type"]; got != godotContent(d) {
				t.Errorf("%v: the content type of an event is %q", d, got)
			}
		case <-time.After(patience):
			t.Errorf("%v: no event", d)
		}
		end()
	}
	for header, want := range map[string]string{
		"text/plain":                             `{"error":{"code":"bad_request","message":"content type \"text/plain\"`,
		"application/x-godot-variant; version=4": "\x1b\x00\x00\x00", // the answer, a Variant, says that JSON is none
	} {
		if got := s.ask(s.subjects.Publish("s", ""), map[string]string{"Content-Type": header}, []byte(towerPut)); !strings.HasPrefix(string(got), want) {
			t.Errorf("%s: got %q", header, got)
		}
	}
}

func vec3(c ...float32) (p []byte) {
	for _, f := range c {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(f))
	}
	return p
}

// TestGodotExample runs examples/godot with a real engine.
func TestGodotExample(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	s.publish(lampPut) // the relay holds the shard
	p := s.client(0, dnptest.Cpp())
	script := engine(t, "../../examples/godot/publish.gd", "NATS="+s.port, "SPACE=s")
	s.until(p, "the orb is there", func(c *dnptest.Client) bool { return len(c.Value("orb", 0)) == 12 })
	first := ""
	if err := p.Do(func(_ time.Time, c *dnptest.Client) { first = string(c.Value("orb", 0)) }); err != nil {
		t.Fatal(err)
	}
	if err := p.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, []byte("hello orb")) }); err != nil {
		t.Fatal(err)
	}
	s.until(p, "the script answers the message", func(c *dnptest.Client) bool {
		return slices.ContainsFunc(c.Messages, func(m dnptest.Message) bool { return string(m.Data) == "the orb hears you" })
	})
	second := s.client(0, dnptest.Cpp())
	s.until(second, "another client sees the orb", func(c *dnptest.Client) bool { return len(c.Value("orb", 0)) == 12 })
	s.until(p, "the orb moves", func(c *dnptest.Client) bool { return string(c.Value("orb", 0)) != first })
	s.writes(p, "orb", 2, []byte{0})
	s.until(p, "the script has seen it, and the orb is gone", func(c *dnptest.Client) bool {
		return c.LinkNamed("orb") == nil || c.LinkNamed("orb").Phase != dnptest.LinkIsUp
	})
	script.ends(0, "put: {epoch:1, seq:", "an error: {error:{code:out_of_range", `value "hp": 256 does not fit uint8`, "changed orb: {hp:0}", "says hello orb", " joined", "remove: {epoch:1")
	script.clean()
}
