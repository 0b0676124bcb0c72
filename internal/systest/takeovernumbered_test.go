package systest

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// In half of the seeds the client that writes numbers its writes. Each must have one effect, whichever edge it comes by.

// writer is the index of the client that writes to a state of its own.
const writer = 1

// numbers reports whether the writer numbers its writes in a seed.
func numbers(seed uint64) bool { return seed>>1&1 == 1 }

// lever is the key of the state of the space to which it writes.
const lever = "lever"

// number makes the client one that numbers its writes.
func (p *takeoverPlayer) number(app dnptest.App, send func([]byte)) {
	w := p.w
	cfg := numberedConfig{Net: w.net, Seed: w.seed, Server: balancerAddr, App: app, Send: send, Wake: func() { w.net.Wake(p.addr) }}
	if w.carried {
		cfg.Reliable, cfg.Up = true, func() bool { return p.wire.now != nil }
	}
	c := newNumberedClient(cfg)
	p.numbered = w.levers.play(c, lever, func(name string) bool { return p.name == name })
	p.library, p.commands.said = c, true // it says the hello as soon as it is connected
}

// playLever changes who may write the lever in seeds with commands, until everything heals.
func (w *takeoverWorld) playLever() {
	if w.levers == nil || !w.commands() {
		return
	}
	w.net.Every(1500*time.Millisecond, func() bool {
		if !w.healed && w.net.Rand().IntN(3) == 0 {
			w.fire("s", w.levers.put(lever, "read-only"))
			w.net.Schedule(time.Duration(w.net.Rand().IntN(500))*time.Millisecond, func() { w.fire("s", w.levers.put(lever, "read-write")) })
		}
		return !w.healed
	})
}

// judgeNumbered judges what became of the writes of a client that numbers them.
func (p *takeoverPlayer) judgeNumbered() {
	if p.numbered == nil {
		return
	}
	for _, problem := range slices.Concat(p.w.levers.problems, p.w.levers.judge(p.numbered, leverRule{told: p.w.holders == 0, heard: p.w.holders == 0})) {
		p.w.failf("player %d, which numbers its writes: %s", p.index, problem)
	}
}
