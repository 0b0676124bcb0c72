package payload

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

var godotForms = []Form{{variant.Godot2}, {variant.Godot3}, {variant.Godot4}}

// fromJSON converts JSON to Variants, including repeated members.
func fromJSON(t testing.TB, f Form, text string) []byte {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	w := variant.NewWriter(f.dialect, nil)
	var value func(token json.Token)
	next := func() json.Token {
		token, err := decoder.Token()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return token
	}
	value = func(token json.Token) {
		switch x := token.(type) {
		case json.Delim:
			typ := map[json.Delim]variant.Type{'{': variant.Dictionary, '[': variant.Array}[x]
			m, n := w.Begin(typ), 0
			for ; decoder.More(); n++ {
				if typ == variant.Dictionary {
					value(next())
				}
				value(next())
			}
			next()
			w.End(m, n)
		case string:
			w.String(x)
		case bool:
			w.Bool(x)
		case nil:
			w.Nil()
		case json.Number:
			if i, err := x.Int64(); err == nil && w.FitsInt(i) {
				w.Int(i)
				return
			}
			float, err := x.Float64()
			if err != nil {
				t.Fatal(err)
			}
			w.Float(float)
		}
	}
	value(next())
	if w.Err() != nil {
		t.Fatal(w.Err())
	}
	return w.Bytes()
}

// toJSON converts the Variants of answers to JSON for comparison.
func toJSON(t testing.TB, f Form, p []byte) string {
	t.Helper()
	v, err := variant.Decode(f.dialect, p)
	if err != nil {
		t.Fatalf("%x: %v", p, err)
	}
	var b strings.Builder
	var value func(v variant.Value)
	value = func(v variant.Value) {
		switch v.Type() {
		case variant.Dictionary, variant.Array:
			open, comma := "[", ""
			if v.Type() == variant.Dictionary {
				open = "{"
			}
			b.WriteString(open)
			for c := v.Elements(); c.Next(); comma = "," {
				b.WriteString(comma)
				if open == "{" {
					value(c.Key())
					b.WriteString(":")
				}
				value(c.Value())
			}
			b.WriteString(string(open[0] + 2)) // the code of ] and } is that of [ and { plus 2
		case variant.Vector2, variant.Vector3, variant.Quaternion:
			b.WriteString("[")
			for i := range v.Components() {
				if i > 0 {
					b.WriteString(",")
				}
				b.Write(appendJSONFloat(nil, v.Real(i), 32))
			}
			b.WriteString("]")
		case variant.String:
			b.Write(appendString(nil, v.Text()))
		case variant.Nil:
			b.WriteString("null")
		case variant.Bool:
			b.WriteString(map[bool]string{true: "true", false: "false"}[v.Bool()])
		case variant.Int:
			b.WriteString(strconv.FormatInt(v.Integer(0), 10))
		case variant.Float:
			b.Write(appendJSONFloat(nil, v.Real(0), 64))
		default:
			t.Fatalf("%v in an answer", v.Type())
		}
	}
	value(v)
	return b.String()
}

// TestGodotMeansTheSame parses each example and each refused payload in every form, and wants
// the same ops or the same code.
func TestGodotMeansTheSame(t *testing.T) {
	bodies := append([]string{`{"ops":[` + strings.Join(examples, ",") + `],"atomic":false}`}, examples...)
	for _, body := range bodies {
		want := mustParse(t, body, "")
		for _, f := range godotForms {
			got, err := f.Parse(fromJSON(t, f, body), "")
			if err != nil {
				t.Errorf("%v: %s\nwas refused: %v", f, body, err)
				continue
			}
			if a, b := plain(t, &got), plain(t, &want); !reflect.DeepEqual(a, b) {
				t.Errorf("%v: %s\n got %+v\nwant %+v", f, body, a, b)
			}
		}
	}
}

// plain returns a publish with its values encoded.
func plain(t *testing.T, p *replication.Publish) replication.Publish {
	encode := func(l replication.Literal, vt wire.ValueType) replication.Literal {
		enc, null, err := l.AppendValue(nil, vt)
		if err != nil {
			t.Fatal(err)
		}
		if null {
			return replication.Null{}
		}
		return replication.Encoded{Type: vt, Value: enc}
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		for j := range op.Values {
			v := &op.Values[j]
			v.Value = encode(v.Value, v.Type)
			v.Precision = float64(float32(v.Precision)) // the precision of Godot 2
		}
		for j := range op.Sets {
			vt := map[string]wire.ValueType{"hp": 9, "1": 33}[op.Sets[j].Name]
			op.Sets[j].Value = encode(op.Sets[j].Value, vt)
		}
	}
	return *p
}

// twin parses a payload that JSON refuses as Variants, if Variants can express it.
func twin(t *testing.T, body, code string) {
	switch {
	case !json.Valid([]byte(body)), strings.Contains(body, `\ud`), strings.Contains(body, "1e999"):
		return // Variants cannot express it
	case strings.Contains(body, "base64:"):
		return // ordinary text in Variants
	case len(body) > 1<<18:
		return // both forms share the code of bounds
	}
	for _, f := range godotForms {
		p, err := f.Parse(fromJSON(t, f, body), "")
		if err == nil {
			t.Errorf("%v: %s\nwas accepted: %+v", f, body, p)
			continue
		}
		if string(err.Code) != code {
			t.Errorf("%v: %s\n got %v\nwant %s", f, body, err, code)
		}
	}
}

// TestGodotParse has the payloads that only Variants can express.
func TestGodotParse(t *testing.T) {
	f := Form{variant.Godot4}
	w := variant.NewWriter(variant.Godot4, nil)
	op := w.Begin(variant.Dictionary)
	w.String("op")
	w.Value(raw(t, variant.Godot4, "15000000 03000000 70757400")) // a StringName
	w.String("message")
	w.Data([]byte("\xff\x00"))
	w.String("farewell")
	w.String("base64:AA==")
	w.String("values")
	list := w.Begin(variant.Array)
	value := w.Begin(variant.Dictionary)
	w.String("type")
	w.String("vector3f32")
	w.String("value")
	w.Floats(variant.Vector3, 1, 2, 3)
	w.End(value, 2)
	w.End(list, 1)
	w.End(op, 4)
	p, err := f.Parse(w.Bytes(), "tower")
	if err != nil {
		t.Fatal(err)
	}
	clear(w.Bytes()) // the ops must not share it
	got := p.Ops[0]
	enc, _, e := got.Values[0].Value.AppendValue(nil, got.Values[0].Type)
	if got.Kind != replication.OpPut || got.Key != "tower" || string(got.Message) != "\xff\x00" || string(got.Farewell) != "base64:AA==" || e != nil || enc[11] != 0x40 {
		t.Errorf("got %+v, % x, %v", got, enc, e)
	}

	w = variant.NewWriter(variant.Godot4, nil)
	op = w.Begin(variant.Dictionary)
	w.String("op")
	w.String("set")
	w.String("values")
	value = w.Begin(variant.Dictionary)
	w.Int(12)
	w.Bool(true)
	w.End(value, 1)
	w.End(op, 2)
	if p, err = f.Parse(w.Bytes(), "tower"); err != nil || p.Ops[0].Sets[0].Name != "12" {
		t.Errorf("an index as an int: got %+v, %v", p, err)
	}
}

func TestGodotParseRefuses(t *testing.T) {
	f := Form{variant.Godot3}
	for _, c := range []struct {
		name    string
		write   func(w *variant.Writer)
		message string
	}{
		{"no dictionary", func(w *variant.Writer) { w.Int(1) }, "the payload is not a Variant: godot3: offset 0: want Dictionary, got int"},
		{"words of Godot", func(w *variant.Writer) { pair(w, "ops", func() { w.Int(1) }) }, `field "ops": want Array, got int`},
		{"words of Godot", func(w *variant.Writer) { pair(w, "op", func() { w.Floats(variant.Vector2, 1, 2) }) }, `field "op": want String, got Vector2`},
		{"negative index", func(w *variant.Writer) {
			m := w.Begin(variant.Dictionary)
			w.String("op")
			w.String("set")
			w.String("key")
			w.String("k")
			w.String("values")
			pairOf(w, func() { w.Int(-1) }, func() { w.Int(1) })
			w.End(m, 3)
		}, `value "-1": want a name or an index`},
		{"a key that is not a name", func(w *variant.Writer) { pairOf(w, func() { w.Float(1) }, func() { w.Nil() }) }, "a key of a Dictionary: want String, got float"},
	} {
		w := variant.NewWriter(variant.Godot3, nil)
		c.write(&w)
		_, err := f.Parse(w.Bytes(), "")
		if err == nil || err.Code != replication.CodeBadRequest || !strings.Contains(err.Message, c.message) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.message)
		}
	}
	for i, f := range godotForms {
		for j, other := range godotForms {
			_, err := other.Parse(fromJSON(t, f, tower), "")
			if (err == nil) != (i == j) {
				t.Fatalf("%v as %v: %v", f, other, err)
			}
			if want := "these bytes are a value of " + f.String() + ", not of " + other.String(); i != j && !strings.HasSuffix(err.Message, want) {
				t.Errorf("%v as %v: %v", f, other, err)
			}
		}
		if _, err := f.Parse([]byte(tower), ""); err == nil || !strings.Contains(err.Message, "is not a Variant") {
			t.Errorf("JSON as %v: %v", f, err)
		}
	}
}

func pair(w *variant.Writer, key string, value func()) { pairOf(w, func() { w.String(key) }, value) }

func pairOf(w *variant.Writer, key, value func()) {
	m := w.Begin(variant.Dictionary)
	key()
	value()
	w.End(m, 1)
}

// TestGodotAnswers writes every answer as JSON and as Variants.
func TestGodotAnswers(t *testing.T) {
	at := time.Unix(1700000000, 5e6)
	p := mustParse(t, tower, "")
	listing := &replication.Listing{Epoch: 7, Seq: 8, States: []*replication.State{listed(t, &p.Ops[0])}, After: "tower"}
	problem := &replication.Error{Code: replication.CodeBusy, Message: "later", Op: 2, RetryAfter: time.Second}
	event := &replication.Event{
		Type: replication.EventChanged, Space: "s", Time: at, Epoch: 1, Seq: 2, Client: "c", Key: "k",
		Values: []replication.EventValue{{Name: "hp", Type: 9, Value: []byte{0, 0, 0xbb, 0x42}}, {Name: "1", Type: 33, Value: make([]byte, 12)}},
	}
	for _, f := range godotForms {
		for name, write := range map[string]func(f Form) []byte{
			"answer": func(f Form) []byte { return f.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: 9, Durable: true}) },
			"results": func(f Form) []byte {
				return f.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: 9, Results: []*replication.Error{nil, problem}})
			},
			"error":   func(f Form) []byte { return f.AppendError(nil, problem) },
			"changed": func(f Form) []byte { return f.AppendEvent(nil, event) },
			"joined": func(f Form) []byte {
				return f.AppendEvent(nil, &replication.Event{Type: replication.EventJoined, Time: at})
			},
			"linked": func(f Form) []byte {
				return f.AppendEvent(nil, &replication.Event{Type: replication.EventLinked, Link: 9})
			},
			"reassert": func(f Form) []byte {
				return f.AppendEvent(nil, &replication.Event{Type: replication.EventReassert, LostAfter: at})
			},
			"uncertain": func(f Form) []byte {
				return f.AppendEvent(nil, &replication.Event{Type: replication.EventUncertain, Numbers: []uint64{5}})
			},
			"sees": func(f Form) []byte {
				return f.AppendEvent(nil, &replication.Event{Type: replication.EventSees, Keys: []string{"k"}, Anew: true})
			},
			"refused": func(f Form) []byte {
				return f.AppendEvent(nil, &replication.Event{Type: replication.EventRefused, Code: "busy"})
			},
			"states":     func(f Form) []byte { return f.AppendListing(nil, listing, 1<<20) },
			"few states": func(f Form) []byte { return f.AppendListing(nil, listing, 1) },
		} {
			want := string(write(JSON))
			got := toJSON(t, f, write(f))
			if f == godotForms[0] { // floats of 32 bits
				got = strings.NewReplacer("0.10000000149011612", "0.1", "0.009999999776482582", "0.01").Replace(got)
			}
			if got != want {
				t.Errorf("%s in %v:\n%s, want\n%s", name, f, got, want)
			}
		}
	}
	got := toJSON(t, godotForms[0], godotForms[0].AppendAnswer(nil, &replication.Answer{Epoch: 1795233146193, Seq: 1, Durable: true}))
	if got != `{"epoch":"1795233146193","seq":1}` {
		t.Errorf("an epoch beyond the ints of Godot 2: %s", got)
	}
}

// TestGodotTexts writes texts that a String cannot hold.
func TestGodotTexts(t *testing.T) {
	const given, want = "\ufeffa\x00b\xffc\ufeff", "a\ufffdb\ufffdc\ufeff"
	for _, f := range godotForms {
		p := f.AppendError(nil, &replication.Error{Code: "busy", Message: given})
		if got := toJSON(t, f, p); !strings.Contains(got, `"message":"`+want+`"`) {
			t.Errorf("a message in %v: %s", f, got)
		}
		v := write(t, f.dialect, func(w *variant.Writer) {
			WriteVariant(w, wire.TypeString, append([]byte{byte(len(given)), 0}, given...))
		})
		if v.Text() != want {
			t.Errorf("a value in %v: %q, want %q", f, v.Text(), want)
		}
		e := newEmitter(f, nil)
		if e.message([]byte(given)); e.done()[0] != map[Form]byte{godotForms[0]: 22, godotForms[1]: 20, godotForms[2]: 29}[f] {
			t.Errorf("a link message in %v: % x, want a PackedByteArray", f, e.done())
		}
	}
}

// TestGodotListingRoundTrip publishes the answer to a get, and gets the same answer.
func TestGodotListingRoundTrip(t *testing.T) {
	rnd := newRand(t)
	for range 200 {
		op := randomPut(rnd)
		for _, f := range godotForms[1:] { // Godot 2 cannot read some of the numbers that it gets
			before := putIn(t, f, &op)
			p, err := f.Parse(before, "")
			if err != nil {
				t.Fatalf("%v: %x: %v", f, before, err)
			}
			if after := putIn(t, f, &p.Ops[0]); string(after) != string(before) {
				t.Fatalf("%v:\n%x became\n%x", f, before, after)
			}
			nul := strings.NewReplacer(`\u0000`, "\ufffd") // texts lose it, messages keep it as bytes
			if f.dialect == variant.Godot4 && nul.Replace(putText(t, &p.Ops[0])) != nul.Replace(putText(t, &op)) {
				t.Fatalf("%s\nbecame\n%s", putText(t, &op), putText(t, &p.Ops[0]))
			}
		}
	}
}

func TestParseForm(t *testing.T) {
	for text, want := range map[string]Form{
		"application/json": JSON, "application/json; charset=utf-8": JSON, "Application/JSON": JSON,
		"application/x-godot-variant; version=2": godotForms[0], "application/x-godot-variant;version=3": godotForms[1],
		`application/x-godot-variant; version="4"`: godotForms[2],
	} {
		if got, err := ParseForm(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for text, message := range map[string]string{
		"":                                       "want application/json, or application/x-godot-variant with a version",
		"text/plain":                             `content type "text/plain": want application/json`,
		"application/jsonp":                      "want application/json",
		"application/x-godot-variant":            "want version=2, 3 or 4, for godot2, godot3 or godot4",
		"application/x-godot-variant; version=5": "want version=2, 3 or 4",
		"application/x-godot-variant; v":         "with a version",
	} {
		if got, err := ParseForm(text); err == nil || err.Code != replication.CodeBadRequest || !strings.Contains(err.Message, message) {
			t.Errorf("%q: got %v, %v, want …%s…", text, got, err, message)
		}
	}
}
