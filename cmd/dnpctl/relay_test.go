package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A testRelay simulates a cluster behind NATS. It holds the space demo: it parses a publish
// like a relay, and answers with a position that counts up; it answers a get of the space in
// two pages, and a get of a key with the last publish. Two edges answer who; client c1 is
// connected to one of them. The testRelay publishes an event of demo all the time.
type testRelay struct {
	nc   *nats.Conn
	subj subject.Names
	seq  uint64
	last []byte
}

func startRelay(t testing.TB) (url string) {
	t.Helper()
	r := &testRelay{}
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", Folder: natstest.Dir(t), Mappings: r.subj.Mappings(64)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	if r.nc, err = nats.Connect(srv.URL()); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); r.nc.Close() })
	for subject, handle := range map[string]nats.MsgHandler{
		"dnp.v1.shard.*.publish.demo.>": r.publish,
		"dnp.v1.shard.*.publish.demo":   r.publish,
		"dnp.v1.shard.*.get.demo":       r.page,
		"dnp.v1.shard.*.get.demo.>":     r.get,
		r.subj.Who("demo"):              r.who,
		r.subj.To("demo", "c1"):         r.to,
		r.subj.ToAll("demo"):            func(*nats.Msg) {},
	} {
		if _, err := r.nc.Subscribe(subject, handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { r.events(stop) })
	return srv.URL()
}

func (r *testRelay) publish(m *nats.Msg) {
	a, ok := r.subj.ParsePublish(m.Subject)
	p, problem := payload.JSON.Parse(m.Data, a.Key)
	if problem == nil && !ok {
		problem = replication.Errorf(replication.CodeBadRequest, "subject %s", m.Subject)
	}
	r.seq++
	r.last = m.Data
	_ = p
	_ = m.Respond(payload.JSON.AppendAnswer(nil, &replication.Answer{Epoch: 7, Seq: r.seq, Durable: true, Err: problem}))
}

func (r *testRelay) page(m *nats.Msg) {
	if len(m.Data) == 0 {
		_ = m.Respond([]byte(`{"epoch":7,"seq":1,"states":[{"key":"a"}],"after":"a"}`))
		return
	}
	_ = m.Respond([]byte(`{"epoch":7,"seq":1,"states":[{"key":"b"}]}`))
}

func (r *testRelay) get(m *nats.Msg) {
	if r.last == nil {
		_ = m.Respond([]byte(`{"error":{"code":"unknown_state","message":"there is no state"}}`))
		return
	}
	_ = m.Respond(r.last)
}

func (r *testRelay) who(m *nats.Msg) {
	for _, edge := range []string{"edge-1", "edge-2"} {
		b, _ := json.Marshal(map[string]string{"edge": edge})
		_ = m.Respond(b)
	}
}

func (r *testRelay) to(m *nats.Msg) {
	_ = m.Respond(fmt.Appendf(nil, `{"number":%d}`, len(m.Data)))
}

func (r *testRelay) events(stop chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			_ = r.nc.Publish(r.subj.Event("demo"), []byte(`{"v":1,"type":"joined","space":"demo","client":"c1"}`))
		}
	}
}
