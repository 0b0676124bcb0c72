package publisher_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
)

// TestStaleAnswer: a relay that does not know that it was replaced accepts a change.
// That is no acceptance, so the change is said again until its successor has it.
func TestStaleAnswer(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	must(err)
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect(srv.URL())
	must(err)
	defer nc.Close()
	epochs := []int{5, 4, 4, 5}
	asked := 0 // only the subscription's goroutine, and the test when all is answered
	_, err = nc.Subscribe("dnp.v1.publish.demo", func(m *nats.Msg) {
		must(m.Respond(fmt.Appendf(nil, `{"epoch":%d,"seq":%d,"results":[{"ok":true}]}`, epochs[asked], 10+asked)))
		asked++
	})
	must(err)
	must(nc.Flush())
	p, err := publisher.Connect(publisher.Config{URL: srv.URL(), Retry: time.Millisecond})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)
	for i, want := range []publisher.Position{{Epoch: 5, Seq: 10}, {Epoch: 5, Seq: 13}} {
		pos, err := space.Publish(t.Context(), tower(i))
		if err != nil || pos != want {
			t.Fatalf("%v, %v, want %v: an older epoch accepts nothing", pos, err, want)
		}
	}
}
