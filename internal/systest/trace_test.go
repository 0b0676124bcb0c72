package systest

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/telemetry/otlptest"
	"github.com/dnprelay/dnprelay/replication/view"
)

// newTracedStack starts everything with spans going to the collector, and a client that is
// linked to one state.
func newTracedStack(t *testing.T, c *otlptest.Collector, tick, flush time.Duration) (*stack, *dnptest.Peer) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint())
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	open := func(service string) *telemetry.Telemetry {
		tel, err := telemetry.Open(service, service+"-0", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tel.Close)
		return tel
	}
	s := newStackWith(t, func(r *relay.Config, e *edge.Config) {
		t.Cleanup(c.Disconnect)
		r.Telemetry, r.Tick = open("relay"), tick
		e.Telemetry, e.Flush = open("edge"), flush
	}, local(wire.Denetwork))
	p := s.client(0, dnptest.Cpp())
	s.publish(towerPut)
	s.sees(p, "T", f32(93.5))
	return s, p
}

// traceparent returns the header of trace n.
func traceparent(n int, sampled bool) string {
	flags := "00"
	if sampled {
		flags = "01"
	}
	return fmt.Sprintf("00-%032x-%016x-%s", n, 0xbeef, flags)
}

// set publishes a value as a traced game server does, without waiting for an answer.
func (s *stack) set(hp int, parent string) {
	s.Helper()
	m := bus.Msg{Subject: s.subjects.Publish("s", "tower"), Data: fmt.Appendf(nil, `{"op":"set","values":{"hp":%d}}`, hp)}
	if parent != "" {
		m.Header = map[string]string{"traceparent": parent}
	}
	if err := s.game.Publish(m); err != nil {
		s.Fatal(err)
	}
}

// chain returns the spans of a trace by name.
func chain(c *otlptest.Collector, trace string) map[string]otlptest.Span {
	all := map[string]otlptest.Span{}
	for _, s := range c.Spans() {
		if s.Trace == trace {
			all[s.Name] = s
		}
	}
	return all
}

// TestTrace follows one update from the game server to the flush that sends it. Earlier updates,
// without a trace and with one that is not sampled, leave nothing: no span, and no byte in the
// batches.
func TestTrace(t *testing.T) {
	c := otlptest.Start(t)
	s, p := newTracedStack(t, c, time.Millisecond, time.Millisecond)
	var traced, batches atomic.Int64
	if _, err := s.game.Subscribe(s.subjects.Live("s"), func(m bus.Msg) {
		if batches.Add(1); view.Trace(m.Data) != nil {
			traced.Add(1)
		}
		if len(m.Header) > 0 {
			t.Errorf("a batch has headers: %v", m.Header)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.game.Flush(patience); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		parent := ""
		if i%2 == 0 {
			parent = traceparent(1+i, false)
		}
		s.set(i, parent)
		s.sees(p, "T", f32(float32(i)))
	}
	if batches.Load() == 0 || traced.Load() != 0 {
		t.Errorf("%d of %d batches have a trace, want none", traced.Load(), batches.Load())
	}
	s.set(100, traceparent(99, true))
	s.sees(p, "T", f32(100))

	const trace = "00000000000000000000000000000063"
	c.Until("the flush arrives", func() bool { return len(chain(c, trace)) == 5 })
	all := chain(c, trace)
	parent := "000000000000beef"
	for i, name := range []string{"publish", "apply", "batch", "replicate", "flush"} {
		span := all[name]
		service := "relay"
		if i > 2 {
			service = "edge"
		}
		if span.Parent != parent || span.Service != service || len(span.Links) != 0 || span.Failed || span.End < span.Begin {
			t.Errorf("%s is %+v, want a child of %s by %s", name, span, parent, service)
		}
		parent = span.ID
	}
	if n := all["flush"].Attributes["dnp.updates"]; n != "1" {
		t.Errorf("the flush sent %s updates, want that of one client", n)
	}

	// Later updates have nothing to do with that trace.
	s.set(101, "")
	s.sees(p, "T", f32(101))
	s.set(102, traceparent(100, true))
	s.sees(p, "T", f32(102))
	const next = "00000000000000000000000000000064"
	c.Until("the next flush arrives", func() bool { return len(chain(c, next)) == 5 })
	if n := len(c.Spans()); n != 10 {
		t.Errorf("%d spans, want five for each of the two sampled updates: %+v", n, c.Spans())
	}
	if n := traced.Load(); n != 2 {
		t.Errorf("%d batches have a trace, want two", n)
	}
}

// TestTraceRefused shows why a sampled publish was not applied.
func TestTraceRefused(t *testing.T) {
	c := otlptest.Start(t)
	s, _ := newTracedStack(t, c, time.Millisecond, time.Millisecond)
	for i, body := range []string{`{"op":"set","values":{"hp":"x"}}`, `{"op":`} {
		m := bus.Msg{Subject: s.subjects.Publish("s", "tower"), Data: []byte(body), Header: map[string]string{"traceparent": traceparent(7+i, true)}}
		if err := s.game.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	c.Until("both publishes arrive", func() bool {
		return len(chain(c, fmt.Sprintf("%032x", 7))) == 2 && len(chain(c, fmt.Sprintf("%032x", 8))) == 1
	})
	for _, name := range []string{"apply", "publish"} {
		if span := chain(c, fmt.Sprintf("%032x", 7))[name]; !span.Failed || span.Attributes["error.type"] != "type_mismatch" {
			t.Errorf("the span %s of a text that the store refuses is %+v", name, span)
		}
	}
	if span := chain(c, fmt.Sprintf("%032x", 8))["publish"]; !span.Failed || span.Attributes["error.type"] != "bad_request" {
		t.Errorf("the span of a publish that is no JSON is %+v", span)
	}
}

// TestTraceLinks lets several sampled updates share a batch, and several batches a flush. The
// first update of a round leaves at once; the others wait together until the tick or the flush
// interval is over. Only a machine that stands still for that long can separate them; then the
// next round tries again.
func TestTraceLinks(t *testing.T) {
	const wait = 300 * time.Millisecond
	for name, times := range map[string][2]time.Duration{"batch": {wait, 0}, "flush": {0, wait}} {
		t.Run(name, func(t *testing.T) {
			c := otlptest.Start(t)
			s, p := newTracedStack(t, c, times[0], times[1])
			batches := make(chan struct{}, 1000)
			if _, err := s.game.Subscribe(s.subjects.Live("s"), func(bus.Msg) { batches <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
			if err := s.game.Flush(patience); err != nil {
				t.Fatal(err)
			}
			linked := func() (found otlptest.Span, ok bool) {
				for _, span := range c.Spans() {
					if span.Name == name && len(span.Links) > 0 {
						return span, true
					}
				}
				return found, false
			}
			end := time.Now().Add(patience)
			for n := 1; ; n += 3 {
				for i := range 3 {
					s.set(n+i, traceparent(n+i, true))
					if name == "flush" {
						select {
						case <-batches: // otherwise the relay puts the next update into the same batch
						case <-time.After(patience):
							t.Fatal("the update leaves in no batch")
						}
					}
				}
				s.sees(p, "T", f32(float32(n+2)))
				if _, ok := linked(); ok {
					break
				}
				if time.Now().After(end) {
					count := map[string]int{}
					for _, span := range c.Spans() {
						count[span.Name]++
					}
					t.Fatalf("no %s has links, though its updates waited for each other; spans by name: %v", name, count)
				}
			}
			span, _ := linked()
			before := map[string]string{"batch": "apply", "flush": "replicate"}[name]
			c.Until("the linked spans arrive", func() bool {
				return !slices.ContainsFunc(append(span.Links, span.Parent), func(id string) bool {
					return !slices.ContainsFunc(c.Spans(), func(x otlptest.Span) bool {
						return x.ID == id && x.Name == before && (x.Trace == span.Trace) == (id == span.Parent)
					})
				})
			})
			if want := fmt.Sprint(1 + len(span.Links)); span.Attributes["messaging.batch.message_count"] != want {
				t.Errorf("%+v does not count %s updates", span, want)
			}
		})
	}
}

// TestTraceHungCollector publishes sampled updates while the collector does not answer.
func TestTraceHungCollector(t *testing.T) {
	c := otlptest.Start(t)
	resume := c.Hang()
	defer resume()
	s, p := newTracedStack(t, c, time.Millisecond, time.Millisecond)
	for i := range 40 {
		s.set(i, traceparent(1+i, true))
	}
	s.sees(p, "T", f32(39))
	c.Until("the collector was asked", func() bool { return c.Requests() > 0 })
	s.set(50, traceparent(50, true))
	s.sees(p, "T", f32(50))
	if len(c.Spans()) > 0 {
		t.Error("the collector answered")
	}
}
