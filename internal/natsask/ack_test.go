package natsask

import "testing"

func TestParseAck(t *testing.T) {
	for _, c := range []struct {
		data string
		want Ack
		ok   bool
	}{
		{`{"stream":"S","seq":7}`, Ack{Stream: "S", Seq: 7}, true},
		{`{"stream":"S","seq":7,"duplicate":true,"domain":"d"}`, Ack{Stream: "S", Seq: 7, Duplicate: true}, true},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}`, Ack{Code: CodeStale, Text: "wrong last sequence: 5"}, true},
		{`{"error":{"code":400}}`, Ack{}, false},
		{`{"seq":7}`, Ack{Seq: 7}, false}, // of somebody who is no stream
		{`{}`, Ack{}, false},
		{``, Ack{}, false},
		{`[]`, Ack{}, false},
	} {
		if got, ok := ParseAck([]byte(c.data)); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v %v, want %+v %v", c.data, got, ok, c.want, c.ok)
		}
	}
}

func TestQueue(t *testing.T) {
	var q queue
	next, want := uint64(0), uint64(0)
	for round := range 1000 {
		for range round % 7 {
			q.push(&Request{id: next})
			next++
		}
		for range min(round%5, q.len()) {
			if got := q.first().id; got != want || q.pop().id != want {
				t.Fatalf("%d comes, want %d", got, want)
			}
			want++
		}
	}
	if uint64(q.len()) != next-want || cap(q.list) > 4*q.len()+64 {
		t.Errorf("%d wait in room for %d, want %d", q.len(), cap(q.list), next-want)
	}
}
