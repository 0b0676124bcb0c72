package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

const (
	profile     = wire.Denetwork
	windowMax   = 10 // commands of a client in flight; twice as many behind a repeat (rule send-10)
	resendPause = 300 * time.Millisecond
	faultsMax   = 16 // that are remembered
	earlyMax    = 64 // commands of the client that are held because one before them is missing
	queueMax    = 4096
)

// A peer is the client as the scripted edge sees it. One goroutine owns it.
type peer struct {
	cfg    Config
	ctx    context.Context
	socket *net.UDPConn
	addr   netip.AddrPort
	broken error // of the socket or of ctx

	buf [1 << 16]byte

	// Of the edge to the client.
	next   uint64            // number of the next command
	flight map[uint64][]byte // those that the client has not acknowledged
	sentAt time.Time         // when they were sent last
	links  map[wire.LinkID][]wire.ValueType

	// Of the client.
	requests   int
	connected  bool // the edge accepted it
	expect     uint64
	early      map[uint64][]byte
	copies     map[uint64]int // how often each command came
	wire       map[uint64]wire.Command
	hold       func(n uint64) bool // commands that the edge does not acknowledge; nil for none
	long       []byte
	messages   []string
	unreliable []string
	ups, downs map[wire.LinkID]int
	offers     []wire.LinkState
	writes     []write
	trailer    trailer
	closed     bool

	loss   float64 // of datagrams, both ways
	rand   *rand.Rand
	faults []string
	part   string // of the step, for errors; empty for all of it
	syncs  int
}

// A write is a value in a LinkUpdate of the client.
type write struct {
	link  wire.LinkID
	index int
	value string
}

func newPeer(ctx context.Context, socket *net.UDPConn, cfg Config) *peer {
	return &peer{
		cfg: cfg, ctx: ctx, socket: socket, rand: rand.New(rand.NewPCG(1, 2)),
		flight: map[uint64][]byte{}, links: map[wire.LinkID][]wire.ValueType{}, early: map[uint64][]byte{},
		copies: map[uint64]int{}, wire: map[uint64]wire.Command{}, ups: map[wire.LinkID]int{}, downs: map[wire.LinkID]int{},
	}
}

// begin forgets what belongs to the step before.
func (p *peer) begin() {
	p.faults, p.messages, p.unreliable, p.writes, p.hold, p.loss, p.part = nil, nil, nil, nil, nil, 0, ""
	p.trailer.numbers, p.trailer.held, p.trailer.refusing = nil, false, false
	clear(p.copies)
}

// fault notes that the client did something that no client may do.
func (p *peer) fault(format string, args ...any) {
	if len(p.faults) < faultsMax {
		p.faults = append(p.faults, fmt.Sprintf(format, args...))
	}
}

// send sends a datagram.
func (p *peer) send(b []byte) {
	if p.loss > 0 && p.rand.Float64() < p.loss {
		return
	}
	if _, err := p.socket.WriteToUDPAddrPort(b, p.addr); err != nil && p.broken == nil && !p.closed {
		p.fault("datagrams do not reach the client: %v", err)
	}
}

// command sends a reliable command and returns its number. The edge repeats it until the client
// acknowledges it.
func (p *peer) command(build func(n wire.Seq) []byte) (n uint64) {
	n = p.reserve(build)
	p.send(p.flight[n])
	return n
}

// reserve gives a command a number without sending it.
func (p *peer) reserve(build func(n wire.Seq) []byte) (n uint64) {
	n = p.next
	p.next++
	p.flight[n] = build(profile.Seq(n))
	p.sentAt = time.Now()
	return n
}

func message(text string) func(wire.Seq) []byte {
	return func(n wire.Seq) []byte { return wire.ReliableMessage{Seq: n, Data: []byte(text)}.Append(nil) }
}

// say sends a message to the program of the client.
func (p *peer) say(format string, args ...any) { p.command(message(fmt.Sprintf(format, args...))) }

// A stepError ends a step: steps are scripts, which go on only while the client keeps their rule. try recovers it.
type stepError struct{ error }

// fail ends the step.
func (p *peer) fail(format string, args ...any) { p.must(fmt.Errorf(format, args...)) }

// must ends the step if there is an error.
func (p *peer) must(err error) {
	if err != nil {
		panic(stepError{err})
	}
}

// wait reads datagrams until something has happened, or ends the step.
func (p *peer) wait(what string, happened func() bool) {
	p.must(p.waitFor(p.cfg.Patience, what, happened))
}

// waitFor reads datagrams until something has happened. The error says what did not.
func (p *peer) waitFor(patience time.Duration, what string, happened func() bool) error {
	end := time.Now().Add(patience)
	for !happened() {
		now := time.Now()
		if !now.Before(end) {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
		if len(p.flight) > 0 && now.Sub(p.sentAt) >= resendPause {
			p.resend(now)
		}
		until := end
		if at := p.sentAt.Add(resendPause); len(p.flight) > 0 && at.Before(end) {
			until = at
		}
		if err := p.read(until); err != nil {
			return err
		}
	}
	return nil
}

// watch reads datagrams for a while.
func (p *peer) watch(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.must(p.read(end))
	}
}

// resend repeats the oldest commands that the client has not acknowledged.
func (p *peer) resend(now time.Time) {
	p.sentAt = now
	for n := p.oldest(); n < p.next && n < p.oldest()+windowMax; n++ {
		if b, ok := p.flight[n]; ok {
			p.send(b)
		}
	}
}

func (p *peer) oldest() uint64 {
	oldest := p.next
	for n := range p.flight {
		oldest = min(oldest, n)
	}
	return oldest
}

// acked reports whether the client acknowledged a command.
func (p *peer) acked(n uint64) bool {
	_, flies := p.flight[n]
	return n < p.next && !flies
}

// acknowledged waits until the client acknowledged a command.
func (p *peer) acknowledged(n uint64, what string) {
	p.wait(what, func() bool { return p.acked(n) })
}

// reply waits for the next reliable message of the client.
func (p *peer) reply(what string) (text string) {
	p.wait(what, func() bool { return len(p.messages) > 0 })
	text, p.messages = p.messages[0], p.messages[1:]
	return text
}

// says wants the next reliable message of the client to have a text.
func (p *peer) says(want, what string) {
	if got := p.reply(what); got != want {
		p.fail("%s: it is %q, want %q", what, clip(got), clip(want))
	}
}

// ask has the program do something and requires its answer.
func (p *peer) ask(instruction, want string) {
	p.say("%s", instruction)
	p.says(want, fmt.Sprintf("the answer to %q", clip(instruction)))
}

func clip(s string) string { return s[:min(len(s), 60)] }

// sync brings the edge and the client together after a step that failed.
func (p *peer) sync() error {
	p.begin()
	p.syncs++
	want := fmt.Sprintf("sync %d", p.syncs)
	p.say("echo %s", want)
	return p.waitFor(p.cfg.Patience, "the client answers", func() bool { return slices.Contains(p.messages, want) })
}

// read reads a datagram, unless there is none before the deadline.
func (p *peer) read(until time.Time) error {
	_ = p.socket.SetReadDeadline(until) // fails with the socket, as the read does
	if err := p.ctx.Err(); err != nil { // behind SetReadDeadline, so that the end of ctx is not undone
		p.broken = context.Cause(p.ctx)
		return p.broken
	}
	n, from, err := p.socket.ReadFromUDPAddrPort(p.buf[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil && !p.addr.IsValid() || errors.Is(err, net.ErrClosed):
		p.broken = err
		return err
	case err != nil:
		return nil // an ICMP error of an earlier datagram: the client is gone, and does not answer
	}
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if !p.addr.IsValid() {
		p.addr = from
	}
	if from == p.addr && (p.loss == 0 || p.rand.Float64() >= p.loss) {
		p.receive(bytes.Clone(p.buf[:n]))
	}
	return nil
}

// receive handles a datagram of the client. A client sends no datagram that is not exact (rule reframe).
func (p *peer) receive(b []byte) {
	if len(b) == 0 {
		p.fault("the client sent an empty datagram")
		return
	}
	command, body := wire.Command(b[0]), b[1:]
	switch command {
	case wire.CommandConnectionRequest:
		p.receiveRequest(b)
	case wire.CommandConnectionClose:
		p.closed = true
		if len(b) != 3 || b[1] != 0 || b[2] != 0 { // which asks for an answer (dnp/PROTOCOL.md, rule close-repeat)
			p.exact(b, 1)
		}
	case wire.CommandMessage:
		p.unreliable = push(p.unreliable, string(body))
	case wire.CommandReliableAck:
		p.receiveAck(b)
	case wire.CommandLinkUp:
		m, err := wire.ParseLinkUp(body)
		p.parsed(b, 3, err)
		p.ups[m.Link]++
	case wire.CommandLinkDown:
		m, err := wire.ParseLinkDown(body)
		p.parsed(b, 3, err)
		p.downs[m.Link]++
	case wire.CommandLinkUpdate:
		p.receiveUpdate(b)
	case wire.CommandReliableMessage, wire.CommandReliableLinkState, wire.CommandReliableMessageLong:
		p.receiveReliable(b)
	default:
		p.fault("the client sent command %d: % .16x", command, b)
	}
}

// push appends to a list that a client fills, whose oldest entries make room.
func push[T any](list []T, v T) []T {
	if len(list) >= queueMax {
		list = slices.Delete(list, 0, queueMax/2)
	}
	return append(list, v)
}

func (p *peer) parsed(b []byte, size int, err error) {
	if err != nil {
		p.fault("a datagram of the client does not parse: % .16x", b)
		return
	}
	p.exact(b, size)
}

func (p *peer) exact(b []byte, size int) {
	if len(b) != size {
		p.fault("command %d of the client has %d bytes, want %d: % .16x", b[0], len(b), size, b)
	}
}

func (p *peer) receiveRequest(b []byte) {
	p.requests++
	if want := wire.AppendConnectionRequest(nil); !bytes.Equal(b, want) {
		p.fault("the request is % x, want % x", b, want)
	}
	if p.connected {
		p.accept() // rule ack-again
	}
}

// accept sends ConnectionAck.
func (p *peer) accept() {
	p.connected = true
	p.send(wire.ConnectionAck{Result: wire.Accepted}.Append(nil))
}

func (p *peer) receiveAck(b []byte) {
	m, err := wire.ParseReliableAck(b[1:])
	p.parsed(b, 4, err)
	n, ok := profile.Unwrap(m.Seq, p.next)
	switch {
	case err != nil:
	case !ok || n >= p.next:
		p.fault("the client acknowledges number %d, which was not sent", m.Seq)
	case m.Code != 0:
		p.fault("the client acknowledges number %d with code %d, want 0", m.Seq, m.Code)
	default:
		delete(p.flight, n)
	}
}

// receiveReliable takes a reliable command, in order.
func (p *peer) receiveReliable(b []byte) {
	_, seq, ok := wire.Numbered(b)
	n, valid := profile.Unwrap(seq, p.expect)
	switch {
	case !ok:
		p.fault("a reliable command of the client has no number: % .16x", b)
		return
	case !valid:
		p.fault("the client sent number %d: numbers are modulo 65535", seq)
		return
	case n >= p.expect+2*windowMax:
		p.fault("the client sent number %d while %d is missing: at most %d are in flight", n, p.expect, windowMax)
		return
	}
	p.copies[n]++
	if p.hold != nil && p.hold(n) {
		return
	}
	p.send(wire.ReliableAck{Seq: seq}.Append(nil))
	if n >= p.expect && len(p.early) < earlyMax {
		p.early[n] = b
	}
	for {
		b, ok := p.early[p.expect]
		if !ok {
			return
		}
		delete(p.early, p.expect)
		p.wire[p.expect] = wire.Command(b[0])
		delete(p.wire, p.expect-queueMax)
		p.expect++
		p.deliver(b)
	}
}

// deliver handles a command in its turn.
func (p *peer) deliver(b []byte) {
	switch wire.Command(b[0]) {
	case wire.CommandReliableMessage:
		m, err := wire.ParseReliableMessage(b[1:])
		if err != nil || len(m.Data) == 0 {
			p.fault("a message of the client is empty")
		}
		if p.receiveHello(m.Data) {
			return
		}
		p.messages = push(p.messages, string(m.Data))
	case wire.CommandReliableMessageLong:
		p.receivePart(b)
	case wire.CommandReliableLinkState:
		m, err := wire.ParseLinkState(b[1:])
		if err != nil {
			p.fault("an offer of the client does not parse: % .32x", b)
			return
		}
		p.offers = push(p.offers, m)
		var types []wire.ValueType
		for rest := m.Values; rest.Len() > 0; {
			var t wire.ValueType
			t, _, rest = rest.Next()
			types = append(types, t)
		}
		if _, known := p.links[m.Link]; known {
			p.fault("the client offers LinkId %04x, which is in use", uint16(m.Link))
			return
		}
		p.links[m.Link] = types
	}
}

func (p *peer) receivePart(b []byte) {
	m, err := wire.ParseReliableMessageLong(b[1:])
	switch {
	case err != nil:
		p.fault("a part of a long message does not parse: % .16x", b)
	case m.Flags&wire.PartFirst != 0:
		p.long = bytes.Clone(m.Data)
	case p.long == nil:
		return // a probe, which means nothing
	default:
		p.long = append(p.long, m.Data...)
	}
	if len(p.long) > 2<<20 {
		p.fault("a long message of the client has more than 1 MiB")
		p.long = nil
	}
	if m.Flags&wire.PartLast != 0 {
		p.messages, p.long = push(p.messages, string(p.long)), nil
	}
}

// receiveUpdate takes the values that the client writes.
func (p *peer) receiveUpdate(b []byte) {
	r := profile.UpdateReader(b[1:])
	links := profile.UpdateHeadSize() // where they end
	for {
		id, ok := r.NextLink()
		if !ok {
			break
		}
		links += profile.UpdateLinkSize()
		types := p.links[id]
		if types == nil {
			p.fault("the client writes to LinkId %04x, which does not exist", uint16(id))
			return
		}
		for {
			index, value, ok := r.NextValue(types)
			if !ok {
				break
			}
			links += profile.UpdateValueSize(len(value))
			p.writes = push(p.writes, write{id, index, string(value)})
		}
	}
	if err := r.Err(); err != nil {
		p.fault("a LinkUpdate of the client does not parse: %v: % .32x", err, b)
		return
	}
	p.receiveNumber(b, links)
}

// wrote reports whether the client wrote a value in this step.
func (p *peer) wrote(w write) bool { return slices.Contains(p.writes, w) }
