package jetstream

import "testing"

func TestParseAck(t *testing.T) {
	for _, c := range []struct {
		data string
		want Ack
		ok   bool
	}{
		{`{"stream":"S","seq":7}`, Ack{Stream: "S", Seq: 7}, true},
		{`{"stream":"S","seq":7,"duplicate":true,"domain":"d"}`, Ack{Stream: "S", Seq: 7, Duplicate: true}, true},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}`, Ack{Code: 10071, Text: "wrong last sequence: 5"}, true},
		{`{"error":{"code":400}}`, Ack{}, false},
		{`{"seq":7}`, Ack{Seq: 7}, false}, // not from a stream
		{`{}`, Ack{}, false},
		{``, Ack{}, false},
		{`[]`, Ack{}, false},
	} {
		if got, ok := ParseAck([]byte(c.data)); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v %v, want %+v %v", c.data, got, ok, c.want, c.ok)
		}
	}
}
