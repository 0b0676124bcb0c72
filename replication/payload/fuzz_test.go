package payload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// Nothing panics; what is accepted is JSON for the standard library too; and a
// put whose values fit their types can be written and read again.
func FuzzParseJSON(f *testing.F) {
	for _, body := range examples {
		f.Add([]byte(body))
	}
	f.Add([]byte(`{"ops":[` + strings.Join(examples, ",") + `],"atomic":false}`))
	f.Add([]byte(`{"op":"put","key":"k","message":"base64:AA==","access":{"writers":["a"]},"audience":{"all":true,"except":{"groups":["g"]}},` +
		`"values":[{"type":"uint64","value":"18446744073709551615"},{"type":"float16","value":1e-3},{"type":"data","value":"AP8="},{"type":"point2s8","value":[1.0,-2e0]}]}`))
	f.Add([]byte(`{"op":"set","key":"k","values":{"a":"\ud83d\ude00\\u","0":[],"b":{"c":[true,null]}}}`))
	f.Add([]byte(`{"after":"a.b","max":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = JSON.ParseGet(body)
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
	}
	if op.Kind != replication.OpPut {
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
	text := putText(t, &before)
	p, err := JSON.Parse([]byte(text), "")
	if err != nil {
		t.Fatalf("%s\nwas refused: %v", text, err)
	}
	if again := putText(t, &p.Ops[0]); again != text {
		t.Fatalf("%s\nbecame\n%s", text, again)
	}
}
