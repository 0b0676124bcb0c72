package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
)

// A vectorState has one vector3f32 with the name pos.
type vectorState struct {
	fakeState
	x float32
}

func (s *vectorState) Type(int) wire.ValueType {
	t, _ := wire.ParseValueType("vector3f32")
	return t
}

func (s *vectorState) Append(b []byte, _ int) []byte {
	for range 3 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s.x))
	}
	return b
}

// BenchmarkUpdate measures what an update of one vector3f32 costs each client, besides its DNP client: 100 states change and are
// sent. wire-B is what the network carries of each, without headers of IP, UDP and WebSocket.
func BenchmarkUpdate(b *testing.B) {
	b.Run("websocket", func(b *testing.B) {
		s := NewStream(Config{Dialect: variant.Godot3, Client: &fakeClient{}}, start)
		benchmarkUpdate(b, s.core, func(now time.Time) (bytes int) {
			if mark := s.Advance(now, func(p []byte) { bytes += len(p) }); mark != 0 {
				s.Confirmed(now, mark)
			}
			return bytes
		})
	})
	b.Run("udp", func(b *testing.B) {
		c := NewChannel(Config{Dialect: variant.Godot3, Client: &fakeClient{}}, Cookie{}, start)
		benchmarkUpdate(b, c.core, func(now time.Time) (bytes int) {
			c.heardAt, c.out.level = now, outBurst
			c.Advance(now, func(p []byte) { bytes += len(p) })
			c.acknowledged(now, c.first+int64(c.top)-1)
			return bytes
		})
	})
}

func benchmarkUpdate(b *testing.B, core *Core, advance func(now time.Time) int) {
	const states = 100
	now := start
	core.phase = joining
	core.Welcome()
	all := make([]*vectorState, states)
	for i := range all {
		all[i] = &vectorState{fakeState: fakeState{key: fmt.Sprint("npc.", i), names: []string{"pos"}, values: []int32{0}}}
		core.Linked(now, int64(i+0x8000), all[i])
	}
	for range 50 {
		now = now.Add(50 * time.Millisecond)
		advance(now)
	}
	bytes, updates := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(25 * time.Millisecond)
		for i, s := range all {
			s.x++
			core.Changed(now, int64(i+0x8000), []int{0})
		}
		now = now.Add(25 * time.Millisecond)
		bytes += advance(now)
		updates += states
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(updates), "ns/update")
	b.ReportMetric(float64(bytes)/float64(updates), "wire-B/update")
}
