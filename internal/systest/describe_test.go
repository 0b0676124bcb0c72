package systest

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
)

// TestDescribingEdge shows the same states through an edge that describes them and one that does not. A
// message of the publisher, and a description that the publisher asked for, look the same through both.
func TestDescribingEdge(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	usual := w.join(w.startEdge(wire.Denetwork, nil), dnptest.Cpp(), dnptest.App{})
	told := w.join(w.startEdge(wire.Denetwork, func(c *edge.Config) { c.Describe = true }), dnptest.Cpp(), dnptest.App{})
	w.mustPublish("s", `{"ops":[
	 {"op":"put","key":"lamp","values":[{"name":"level","type":"uint16","value":1}],"lod":[{"groups":["far"],"precision":8}]},
	 {"op":"put","key":"wall","message":"W","values":[{"name":"level","type":"uint16","value":2}]},
	 {"op":"put","key":"door","describe":true,"values":[{"name":"angle","type":"uint16","value":3}]},
	 {"op":"put","key":"well","values":[{"type":"uint16","value":4}]}]}`)
	const door = `{"v":1,"key":"door","names":["angle"]}`
	w.within(5*time.Second, "keys without the flag", func() bool {
		return usual.has("lamp", 0, u16(1)) && usual.has("W", 0, u16(2)) && usual.has(door, 0, u16(3)) && usual.has("well", 0, u16(4))
	})
	w.within(5*time.Second, "descriptions with it", func() bool {
		return told.has(`{"v":1,"key":"lamp","names":["level"]}`, 0, u16(1)) && told.has("W", 0, u16(2)) && told.has(door, 0, u16(3)) && told.has(`{"v":1,"key":"well"}`, 0, u16(4))
	})
	w.group(told, "join", "far") // another source of the same state
	w.net.Run(time.Second)
	w.mustPublish("s", `{"op":"put","key":"lamp","values":[{"name":"glow","type":"uint16","value":5}]}`)
	w.within(5*time.Second, "a new name is a new link where clients are told names", func() bool {
		return told.has(`{"v":1,"key":"lamp","names":["glow"]}`, 0, u16(5)) && told.LinkNamed(`{"v":1,"key":"lamp","names":["level"]}`) == nil
	})
	w.within(5*time.Second, "and a change elsewhere", func() bool { return usual.has("lamp", 0, u16(5)) })
}
