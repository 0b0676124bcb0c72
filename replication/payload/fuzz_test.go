package payload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/replication"
)

// Parsing never panics; a Parser finds the same; accepted payloads are JSON for the standard library; and a put whose
// values fit their types can be written and read again.
func FuzzParseJSON(f *testing.F) {
	for _, body := range examples {
		f.Add([]byte(body))
	}
	f.Add([]byte(`{"ops":[` + strings.Join(examples, ",") + `],"atomic":false}`))
	f.Add([]byte(`{"op":"put","key":"k","message":"base64:AA==","access":{"writers":["a"]},"audience":{"all":true,"except":{"groups":["g"]}},` +
		`"values":[{"type":"uint64","value":"18446744073709551615"},{"type":"float16","value":1e-3},{"type":"data","value":"AP8="},{"type":"point2s8","value":[1.0,-2e0]}]}`))
	f.Add([]byte(`{"op":"set","key":"k","values":{"a":"\ud83d\ude00\\u","0":[],"b":{"c":[true,null]}}}`))
	f.Add([]byte(`{"after":"a.b","max":1}`))
	f.Add([]byte(structPut))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = JSON.ParseGet(body)
		sameParse(t, new(Parser), string(body), "")
		p, err := JSON.Parse(body, "")
		if err != nil {
			if p.Ops != nil || !json.Valid(JSON.AppendError(nil, err)) {
				t.Fatalf("refused with %v and %d ops", err, len(p.Ops))
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("accepted %q", body)
		}
		for i := range p.Ops {
			fuzzOp(t, &p.Ops[i])
		}
	})
}

func fuzzOp(t *testing.T, op *replication.Op) {
	for _, v := range op.Sets {
		for vt := range wire.ValueType(wire.ValueTypes) {
			_, _, _ = v.Value.AppendValue(nil, vt)
		}
		fields := replication.ValueDef{Type: wire.TypeData, Struct: []replication.StructField{{Name: "a", Type: typeUint8}, {Name: "b", Type: typeFloat64}}}
		if enc, null, err := fields.Append(nil, v.Value); err == nil && !null && len(enc) != 2+1+8 {
			t.Fatalf("%d bytes for components of 9", len(enc)-2)
		}
	}
	if op.Kind != replication.OpPut {
		return
	}
	for _, v := range op.Values {
		if v.Value == nil {
			continue
		}
		if _, null, err := v.Append(nil, v.Value); err != nil || null && !v.Nullable {
			return
		}
	}
	before := *op
	before.HasMessage, before.Message = true, append([]byte("m"), op.Message...)
	text := putText(t, &before)
	p, err := JSON.Parse([]byte(text), "")
	if err != nil {
		t.Fatalf("%s\nwas refused: %v", text, err)
	}
	if again := putText(t, &p.Ops[0]); again != text {
		t.Fatalf("%s\nbecame\n%s", text, again)
	}
}

// FuzzParseGodot: parsing never panics, and a put whose values fit their types can be written
// and read again.
func FuzzParseGodot(f *testing.F) {
	for i, form := range godotForms {
		for _, body := range examples {
			f.Add(byte(i), fromJSON(f, form, body))
		}
		f.Add(byte(i), fromJSON(f, form, `{"ops":[`+strings.Join(examples, ",")+`],"atomic":false}`))
		f.Add(byte(i), fromJSON(f, form, `{"after":"a.b","max":1}`))
		f.Add(byte(i), fromJSON(f, form, `{"op":"put","key":"k","access":{"writers":["a"]},"audience":{"all":true,"except":{"groups":["g"]}},`+
			`"values":[{"type":"uint64","value":"18446744073709551615"},{"type":"data","value":[1,{}]},{"type":"point2s8","value":[1,-2]}]}`))
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		form := godotForms[int(which)%len(godotForms)]
		_, _ = form.ParseGet(body)
		p, err := form.Parse(body, "")
		if err != nil {
			if _, bad := variant.Decode(form.dialect, form.AppendError(nil, err)); p.Ops != nil || bad != nil {
				t.Fatalf("refused with %v and %d ops", err, len(p.Ops))
			}
			return
		}
		for i := range p.Ops {
			fuzzGodotOp(t, form, &p.Ops[i])
		}
	})
}

func fuzzGodotOp(t *testing.T, form Form, op *replication.Op) {
	for _, v := range op.Sets {
		for vt := range wire.ValueType(wire.ValueTypes) {
			enc, null, err := v.Value.AppendValue(nil, vt)
			if err == nil && !null && !wire.CheckValue(vt, enc) {
				t.Fatalf("% x for %v", enc, vt)
			}
		}
	}
	if op.Kind != replication.OpPut || form.dialect == variant.Godot2 {
		return
	}
	for _, v := range op.Values {
		if v.Value == nil {
			continue
		}
		if _, null, err := v.Value.AppendValue(nil, v.Type); err != nil || null && !v.Nullable {
			return
		}
	}
	before := *op
	before.HasMessage, before.Message = true, append([]byte("m"), op.Message...)
	first := putIn(t, form, &before)
	p, err := form.Parse(first, "")
	if err != nil {
		t.Fatalf("%x\nwas refused: %v", first, err)
	}
	if again := putIn(t, form, &p.Ops[0]); string(again) != string(first) {
		t.Fatalf("%x\nbecame\n%x", first, again)
	}
}
