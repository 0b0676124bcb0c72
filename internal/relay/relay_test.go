package relay

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// TestConfig wants an error that names every problem.
func TestConfig(t *testing.T) {
	_, err := New(Config{Tick: -1, Limits: replication.Limits{Values: -1}})
	if err == nil {
		t.Fatal("New accepts an empty configuration")
	}
	for _, want := range []string{"no node name", "no bus", "neither leases nor an epoch", "negative tick", "values per state"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

// TestFinish ends a worker while a publish waits for the tick: the worker emits and answers it.
func TestFinish(t *testing.T) {
	var calls []func()
	run := func() {
		for len(calls) > 0 {
			f := calls[0]
			calls = calls[1:]
			f()
		}
	}
	var subjects subject.Names
	hub := membus.New(membus.Config{Shards: 64, Schedule: func(d time.Duration, f func()) {
		if d == 0 { // requests never time out
			calls = append(calls, f)
		}
	}})
	r, err := New(Config{Node: "r", Bus: hub.Node("r"), Epoch: 1, Workers: 1, Tick: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	game, now := hub.Node("game"), time.Unix(1, 0)
	batches, answers := 0, 0
	if _, err := game.Subscribe(subjects.Live("s"), func(bus.Msg) { batches++ }); err != nil {
		t.Fatal(err)
	}
	publish := func(body string) {
		game.Request(bus.Msg{Subject: subjects.Publish("s", ""), Data: []byte(body)}, time.Minute, func(m bus.Msg, err error) {
			if err != nil || !strings.HasPrefix(string(m.Data), `{"epoch":1`) {
				t.Errorf("answer %s, %v", m.Data, err)
			}
			answers++
		})
		run()
		r.Workers()[0].Turn(now)
		run()
	}
	publish(`{"op":"put","key":"k","values":[{"type":"uint8","value":1}]}`)
	now = now.Add(time.Minute)
	publish(`{"op":"set","key":"k","values":{"0":2}}`)
	if batches != 1 || answers != 1 {
		t.Fatalf("%d batches, %d answers within the first tick, want 1 and 1", batches, answers)
	}
	r.Workers()[0].finish(now)
	run()
	if batches != 2 || answers != 2 {
		t.Errorf("%d batches, %d answers after the end, want 2 and 2", batches, answers)
	}
}

// TestWideWriteNumbers: the holder applies what a client writes after its session has moved more
// often than the number in the request can say, because the header says it.
func TestWideWriteNumbers(t *testing.T) {
	w, shard := benchWorker(t, nil)
	now := time.Unix(1, 0)
	kind, _ := wire.ParseValueType("uint8")
	w.post(shard, (*Worker).publish, bus.Msg{Subject: "dnp.v1.shard.0.publish.s", Data: []byte(`{"op":"put","key":"k","values":[{"name":"n","type":"uint8","value":0}],"access":"read-write"}`)})
	for i, epoch := range []uint64{1, 129, 400, 399} {
		number, wide := replication.WriteNumbers(epoch, 1)
		m := bus.Msg{Data: replication.AppendWrite(nil, &replication.Write{
			Kind: replication.WriteValues, Session: "s1", Client: "c", Space: "s", State: firstNumber(1), Number: number,
			Values: []replication.WriteValue{{Type: kind, Value: []byte{byte(i)}}},
		})}
		if wide != 0 {
			m.Header = map[string]string{subject.HeaderWrite: strconv.FormatUint(wide, 10)}
		}
		w.post(shard, (*Worker).write, m)
		now = now.Add(time.Second)
		w.Turn(now)
	}
	if got := w.spaces["s"].store.Stats(); got.Writes != 4 || got.WritesStale != 1 {
		t.Errorf("of %d writes, the last of which is late, %d are taken for late; want 4 and 1", got.Writes, got.WritesStale)
	}
}
