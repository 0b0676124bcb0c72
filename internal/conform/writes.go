package conform

import (
	"encoding/binary"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// hello is how a client asks for more than DNP: the capabilities follow, a uint32.
const hello = "\xC5\x00dnp.command.v1"

// capWrites is the capability of writes with numbers, acknowledgements and ordered LinkUpdates. The edge grants no other one.
const capWrites = 2

// A trailer is what the edge knows about the LinkUpdates of a client that asked for writes with numbers.
type trailer struct {
	granted  bool
	counter  uint64 // of the latest LinkUpdate of the edge
	held     bool   // the edge acknowledges no writes
	numbers  []uint64
	refusing bool // the edge refuses the writes that it acknowledges, as out of bounds
}

// receiveHello answers a hello, and reports whether a message is one.
func (p *peer) receiveHello(m []byte) bool {
	caps, ok := strings.CutPrefix(string(m), hello)
	if !ok {
		return false
	}
	if len(caps) != 4 || p.trailer.granted {
		p.fault("the client says hello with % x, want it once, with four bytes of capabilities", caps)
		return true
	}
	p.trailer.granted = caps[0]&capWrites != 0
	answer := "\xC5\x81\x00\x00\x00" + string(binary.LittleEndian.AppendUint32(nil, uint32(caps[0])&capWrites))
	p.command(message(answer))
	return true
}

// receiveNumber takes what is behind the links of a LinkUpdate that has some, and acknowledges it.
func (p *peer) receiveNumber(b []byte, first int) {
	if !p.trailer.granted {
		p.exact(b, first)
		return
	}
	number, n := binary.Uvarint(b[first:])
	if n == 0 { // sent before the client had the answer
		return
	}
	p.exact(b, first+n)
	p.trailer.numbers = push(p.trailer.numbers, number)
	if !p.trailer.held {
		p.acknowledgeWrites(number)
	}
}

// acknowledgeWrites ends the writes with a number.
func (p *peer) acknowledgeWrites(number uint64) {
	ack := append(binary.AppendUvarint(nil, number), 0)
	if p.trailer.refusing {
		ack[len(ack)-1] = 1
		ack = append(binary.LittleEndian.AppendUint16(ack, uint16(pairLink)), 1, 0, 2)
	}
	p.trailer.counter++
	p.sendUpdateAs(profile.AppendUpdateHead(nil, 0), p.trailer.counter, ack)
}

// sendUpdate sends a LinkUpdate, which is newer than all before.
func (p *peer) sendUpdate(b []byte) {
	p.trailer.counter++
	p.sendUpdateAs(b, p.trailer.counter, nil)
}

// sendUpdateAs sends a LinkUpdate of another place in the order.
func (p *peer) sendUpdateAs(b []byte, counter uint64, acks []byte) {
	if p.trailer.granted {
		size := len(b)
		b = append(binary.AppendUvarint(append(b, 1), counter), acks...)
		b = append(b, byte(len(b)-size))
	}
	p.send(b)
}

// writeRepeated loses the first LinkUpdate. A client that asked for numbers repeats it under the same one until it is acknowledged; any other
// sends the value again, or hopes.
func writeRepeated(p *peer) {
	p.trailer.held = true
	p.say("set pair 1 4243")
	p.wait("the client sends a value", func() bool { return p.wrote(pairWrite(1, 4243)) })
	p.writes = nil
	p.wait("the client sends a value again, because a LinkUpdate may get lost", func() bool { return p.wrote(pairWrite(1, 4243)) })
	if !p.trailer.granted {
		return
	}
	numbers := p.trailer.numbers
	if first, last := numbers[0], numbers[len(numbers)-1]; first != last {
		p.fail("the client repeats a value that it sent under number %d as number %d", first, last)
	}
	p.acknowledgeWrites(numbers[0])
	p.watch(watchTime) // one may have been under way
	p.writes = nil
	p.watch(p.cfg.quiet)
	if len(p.writes) > 0 {
		p.fail("the client repeats a value that the edge acknowledged")
	}
}

// writeCrossed sends a value that crosses a write, and then the acknowledgement.
func writeCrossed(p *peer) {
	p.ordered()
	p.trailer.held = true
	p.say("set pair 1 5001")
	p.wait("the client writes", func() bool { return p.wrote(pairWrite(1, 5001)) })
	p.converge("pair", func() { p.update(pairLink, 0, uint16s(14, 5002)) }, uint16s(14, 5001))
	p.acknowledgeWrites(p.trailer.numbers[0])
	p.converge("pair", func() {}, uint16s(14, 5001))
	p.trailer.held = false
	p.converge("pair", func() { p.update(pairLink, 0, uint16s(13, 5003)) }, uint16s(13, 5003))
}

// writeRefused refuses a write: the client shows what the edge has.
func writeRefused(p *peer) {
	p.ordered()
	p.trailer.held, p.trailer.refusing = true, true
	p.say("set pair 1 5004")
	p.wait("the client writes", func() bool { return p.wrote(pairWrite(1, 5004)) })
	p.converge("pair", func() { p.update(pairLink, 1, uint16s(5005)) }, uint16s(13, 5004))
	p.converge("pair", func() { p.acknowledgeWrites(p.trailer.numbers[0]) }, uint16s(13, 5005))
}

// updateOrder has an older LinkUpdate come after a newer one.
func updateOrder(p *peer) {
	p.ordered()
	old := p.trailer.counter + 1
	p.trailer.counter++
	p.converge("pair", func() { p.update(pairLink, 0, uint16s(15)) }, uint16s(15, 4243))
	stale := profile.AppendUpdateLink(profile.AppendUpdateHead(nil, 1), pairLink, 1)
	stale = profile.AppendUpdateValue(stale, 0, wire.ValueType(3), []byte{16, 0})
	for range convergeTries {
		p.sendUpdateAs(stale, old, nil)
	}
	p.converge("pair", func() {}, uint16s(15, 4243))
	p.converge("pair", func() { p.update(pairLink, 0, uint16s(13)) }, uint16s(13, 4243))
}

// ordered leaves out a step that a client need not know which did not ask for writes with numbers.
func (p *peer) ordered() {
	if !p.trailer.granted {
		p.must(errNotOffered)
	}
}
