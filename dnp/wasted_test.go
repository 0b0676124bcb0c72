package dnp

import (
	"testing"
	"time"
)

// TestNoWastedWork: states without links are not touched, and all changes between two
// flushes cost one update per link.
func TestNoWastedWork(t *testing.T) {
	c := newCrowd(t, 10, 20, posRot...)
	lonely := c.e.NewSource(SourceConfig{State: newState(t, posRot...), Message: []byte("M")})
	for n := range 1000 {
		lonely.State().Set(0, []byte{byte(n), byte(n >> 8), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		lonely.Changed(0)
	}
	if c.e.Pending() || lonely.version != 1 || lonely.encoded != nil {
		t.Errorf("a state without links: pending %v, version %d, %d bytes encoded, want nothing done", c.e.Pending(), lonely.version, len(lonely.encoded))
	}
	before, datagrams := c.e.stats.UpdatesOut, c.out.datagrams
	for n := range 10 {
		c.move(n)
	}
	c.now = c.now.Add(5 * time.Millisecond)
	c.e.Flush(c.now, &c.out)
	if got := c.e.stats.UpdatesOut - before; got != 200 {
		t.Errorf("ten changes of ten states were %d updates to twenty peers, want 200", got)
	}
	if got := c.out.datagrams - datagrams; got != 20 {
		t.Errorf("in %d datagrams, want one for each peer", got)
	}
}
