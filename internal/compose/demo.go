package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/subject"
)

// demoInterval is how often the demo publishes: the rate of a typical game server.
const demoInterval = 50 * time.Millisecond

// demoPut makes the states of the demo. Clients may write the lamp.
const demoPut = `{"ops":[
 {"op":"put","key":"ball","message":"ball","farewell":"the ball is gone","values":[
  {"name":"pos","type":"vector3f32","value":[0,0,0],"precision":0.001}]},
 {"op":"put","key":"platform","message":"platform","values":[
  {"name":"pos","type":"vector3f32","value":[0,0,0],"precision":0.001},
  {"name":"rot","type":"quaternionf16","value":[0,0,0,1]}]},
 {"op":"put","key":"clock","message":"clock","values":[
  {"name":"seconds","type":"uint32","value":0},
  {"name":"text","type":"string","value":"00:00:00"}]},
 {"op":"put","key":"lamp","message":"lamp","access":"read-write","values":[
  {"name":"on","type":"uint8","value":0},
  {"name":"colour","type":"vector3f32","value":[1,0.8,0.6]}]}
]}`

// A demo is a small game server that publishes JSON, like any program with a NATS client.
type demo struct {
	bus      bus.Bus
	subjects subject.Names
	space    string
}

// run publishes until ctx ends. It makes the states when the relay does not have them
// because it has just started.
func (d *demo) run(ctx context.Context) error {
	ticker := time.NewTicker(demoInterval)
	defer ticker.Stop()
	start, body := time.Now(), demoPut
	for {
		if d.publish(body) {
			body = demoSet(time.Since(start))
		} else {
			body = demoPut
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// publish sends one payload and reports whether the relay applied it.
func (d *demo) publish(body string) bool {
	answered := make(chan bool, 1)
	m := bus.Msg{Subject: d.subjects.Publish(d.space, ""), Data: []byte(body)}
	d.bus.Request(m, time.Second, func(answer bus.Msg, err error) {
		var a struct{ Error *json.RawMessage }
		answered <- err == nil && json.Unmarshal(answer.Data, &a) == nil && a.Error == nil
	})
	return <-answered
}

// demoSet returns the values at time t after the start.
func demoSet(t time.Duration) string {
	s := t.Seconds()
	height := math.Abs(math.Sin(2 * s))
	angle := s / 2
	return fmt.Sprintf(`{"ops":[
 {"op":"set","key":"ball","values":{"pos":[%.4f,%.4f,%.4f]}},
 {"op":"set","key":"platform","values":{"pos":[0,%.4f,0],"rot":[0,%.5f,0,%.5f]}},
 {"op":"set","key":"clock","values":{"seconds":%d,"text":%q}}
]}`, 3*math.Cos(s), height, 3*math.Sin(s), math.Sin(s/3), math.Sin(angle/2), math.Cos(angle/2),
		int(s), time.Now().Format(time.TimeOnly))
}
