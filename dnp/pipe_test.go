package dnp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

type addrPort = netip.AddrPort

// A pipe is two Endpoints and a bad network between them. step moves time from one event
// to the next.
type pipe struct {
	*testing.T
	rng    *rand.Rand
	now    time.Time
	loss   float64
	ends   [2]*pipeEnd // server, client
	flying []flight
}

type flight struct {
	at time.Time
	to int
	p  []byte
}

// A pipeEnd is one Endpoint with an application that counts.
type pipeEnd struct {
	pipe   *pipe
	i      int
	e      *Endpoint
	c      *Conn
	sent   int
	got    int
	closed string
	accept func(v Event)
}

func (p *pipe) Datagram(size int) []byte { return make([]byte, 0, size) }

func (end *pipeEnd) Datagram(size int) []byte { return make([]byte, 0, size) }

func (end *pipeEnd) Send(_ addrPort, b []byte) {
	p := end.pipe
	for range 1 + p.rng.IntN(10)/9 { // one in ten twice
		if p.rng.Float64() >= p.loss {
			delay := time.Duration(5+p.rng.IntN(55)) * time.Millisecond
			p.flying = append(p.flying, flight{p.now.Add(delay), 1 - end.i, append([]byte(nil), b...)})
		}
	}
}

var pipeAddrs = [2]addrPort{servAddr, peerAddr}

func newPipe(t *testing.T, rng *rand.Rand, profile wire.Profile) *pipe {
	p := &pipe{T: t, rng: rng, now: epoch}
	for i := range p.ends {
		e, err := New(Config{
			Profile: profile, Listen: i == 0, Rand: rng, BytesPerSecond: []int{0, 24_000}[rng.IntN(2)],
			ReliableTimeout: time.Hour, HoleTimeout: time.Hour, ConnectTimeout: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		p.ends[i] = &pipeEnd{pipe: p, i: i, e: e}
	}
	c, err := p.ends[1].e.Connect(p.now, servAddr)
	if err != nil {
		t.Fatal(err)
	}
	p.ends[1].c = c
	return p
}

// connect proves the client's address before losses begin, because all three probes could
// get lost.
func (p *pipe) connect() {
	p.ends[1].accept = func(v Event) {
		if v.Kind == EventLinkOffered {
			v.Conn.Reject(v.Link) // the hello
		}
	}
	p.run(3 * time.Second)
	p.loss = 0.3
}

// step moves time to the next event, at most to until.
func (p *pipe) step(until time.Time) bool {
	for _, end := range p.ends {
		end.e.Flush(p.now, end)
	}
	at, next := until, -1
	for i, f := range p.flying {
		if f.at.Before(at) {
			at, next = f.at, i
		}
	}
	for _, end := range p.ends {
		if due, ok := end.e.NextTimeout(); ok && due.Before(at) {
			at, next = due, -1
		}
	}
	if !at.Before(until) {
		p.now = until
		return false
	}
	if at.After(p.now) {
		p.now = at
	}
	if next >= 0 {
		f := p.flying[next]
		p.flying[next] = p.flying[len(p.flying)-1]
		p.flying = p.flying[:len(p.flying)-1]
		end := p.ends[f.to]
		end.handle(end.e.Receive(p.now, pipeAddrs[1-f.to], f.p, end))
	}
	for _, end := range p.ends {
		end.handle(end.e.Advance(p.now, end))
		end.e.Flush(p.now, end)
	}
	return true
}

func (p *pipe) run(d time.Duration) {
	for until := p.now.Add(d); p.step(until); {
	}
}

func (end *pipeEnd) handle(events []Event) {
	for _, v := range events {
		switch v.Kind {
		case EventConnected:
			end.c = v.Conn
		case EventClosed:
			end.closed = v.Reason.String()
		case EventMessage:
			if want := messageText(end.got); string(v.Data) != want {
				end.pipe.Fatalf("end %d got %.40q, want %.40q", end.i, v.Data, want)
			}
			end.got++
		default:
			if end.accept != nil {
				end.accept(v)
			}
		}
	}
}

// messageText is the text of message n; each fiftieth is a long one.
func messageText(n int) string {
	if n%50 == 49 {
		return fmt.Sprintf("%05000d", n)
	}
	return fmt.Sprint(n)
}

// talk sends total messages each way and expects all of them.
func (p *pipe) talk(total int) {
	p.Helper()
	var goal [2]int
	for i, end := range p.ends {
		goal[i] = end.sent + total
	}
	for p.ends[0].got < goal[1] || p.ends[1].got < goal[0] {
		for i, end := range p.ends {
			for end.c != nil && end.sent < goal[i] && len(end.c.send.queue) < 20 {
				if err := end.c.Send([]byte(messageText(end.sent)), 0); err != nil {
					p.Fatal(err)
				}
				end.sent++
			}
		}
		if !p.step(p.now.Add(time.Hour)) {
			p.Fatalf("the traffic has stopped: %d of %d, %d of %d", p.ends[0].got, goal[1], p.ends[1].got, goal[0])
		}
		for _, end := range p.ends {
			if end.closed != "" {
				p.Fatalf("end %d closed: %s", end.i, end.closed)
			}
		}
	}
	p.run(30 * time.Second) // the last acknowledgements
	for range 30 {
		if len(p.ends[0].c.send.flight)+len(p.ends[1].c.send.flight) == 0 {
			return
		}
		p.run(time.Second) // there was a probe
	}
}

// jump sets the numbers of both directions. Nothing may be in flight.
func (p *pipe) jump(n uint64) {
	p.flying = nil
	for i, end := range p.ends {
		if w := &end.c.send; len(w.flight) != 0 || w.waiting() {
			p.Fatalf("end %d has %d commands in flight", i, len(w.flight))
		}
		end.c.send.next, p.ends[1-i].c.recv.next = n, n
		PeerForgets(end.c) // more than a lap may pass
	}
}

// TestPipe: with 30 % loss, repeats and reordering each way, through two wraps,
// messages arrive once and in order, and values converge.
func TestPipe(t *testing.T) {
	rng := newRand(t)
	for _, profile := range []wire.Profile{wire.Denetwork, wire.Spec} {
		t.Run(profile.String(), func(t *testing.T) {
			p := newPipe(t, rng, profile)
			p.connect()
			p.talk(100)
			for wrap := range uint64(2) {
				p.jump((wrap+1)*profile.Modulus() - 150)
				p.talk(300)
			}
			p.converge()
		})
	}
}

// converge links ten states each way, changes them, and expects both sides equal.
func (p *pipe) converge() {
	p.Helper()
	var ours, theirs [2][]*Source // by offering end
	for i, end := range p.ends {
		other := p.ends[1-i]
		other.accept = func(v Event) {
			switch v.Kind {
			case EventLinkOffered:
				src := other.e.NewSource(SourceConfig{State: newState(p, "uint32", "string"), Message: []byte{1}})
				src.State().SetAll(v.Values)
				theirs[i] = append(theirs[i], src)
				src.cfg.Ref = uint64(v.Data[0])
				if err := v.Conn.Accept(v.Link, src); err != nil {
					p.Fatal(err)
				}
			case EventUpdate:
				src, _ := v.Conn.SourceOf(v.Link)
				for j, b, ok := v.Update.Next(); ok; j, b, ok = v.Update.Next() {
					src.State().Set(j, b)
				}
			}
		}
		for n := range 10 {
			src := end.e.NewSource(SourceConfig{State: newState(p, "uint32", "string"), Message: []byte{byte(n)}, Ref: uint64(n)})
			ours[i] = append(ours[i], src)
			if err := end.c.Link(src, true); err != nil {
				p.Fatal(err)
			}
		}
	}
	p.run(20 * time.Second)
	for range 200 {
		for i := range ours {
			src := ours[i][p.rng.IntN(10)]
			src.State().Set(0, []byte{byte(p.rng.Uint32()), byte(p.rng.Uint32()), 0, 0})
			src.Changed(0)
		}
		p.run(10 * time.Millisecond)
	}
	p.run(time.Second)
	if wrong := p.different(ours, theirs); wrong > 1 {
		p.Fatalf("%d of 20 links differ one second after the last change", wrong)
	}
	p.run(5 * time.Second)
	if wrong := p.different(ours, theirs); wrong > 0 {
		p.Fatalf("%d links differ 6 s after the last change", wrong)
	}
}

func (p *pipe) different(ours, theirs [2][]*Source) (n int) {
	p.Helper()
	for i := range ours {
		if len(theirs[i]) != 10 {
			p.Fatalf("end %d accepted %d links, want 10", 1-i, len(theirs[i]))
		}
		for _, src := range theirs[i] {
			want := ours[i][src.cfg.Ref].State()
			if string(src.State().Value(0)) != string(want.Value(0)) {
				n++
			}
		}
	}
	return n
}

// TestPipeMoves moves the server's connection to another Endpoint by snapshot in the
// middle of traffic, again and again.
func TestPipeMoves(t *testing.T) {
	p := newPipe(t, newRand(t), wire.Denetwork)
	p.connect()
	p.talk(20)
	server := p.ends[0]
	src := map[uint64]*Source{}
	resolve := func(ref uint64) *Source { return src[ref] }
	makeSources := func() {
		for ref := range uint64(5) {
			state := newState(t, "uint32")
			if old := src[ref]; old != nil {
				state = old.State()
			}
			src[ref] = server.e.NewSource(SourceConfig{State: state, Message: []byte{byte(ref)}, Ref: ref})
		}
	}
	makeSources()
	for ref := range uint64(5) {
		server.c.Link(src[ref], true)
	}
	copies := map[wire.LinkID]*Source{}
	p.ends[1].accept = func(v Event) {
		switch v.Kind {
		case EventLinkOffered:
			if v.Values.Len() == 0 { // a question, which a peer that was silent for long is asked
				v.Conn.Reject(v.Link)
				return
			}
			c := p.ends[1].e.NewSource(SourceConfig{State: newState(t, "uint32"), Message: []byte{1}, Ref: uint64(v.Data[0])})
			c.State().SetAll(v.Values)
			copies[v.Link] = c
			v.Conn.Accept(v.Link, c)
		case EventUpdate:
			for j, b, ok := v.Update.Next(); ok; j, b, ok = v.Update.Next() {
				copies[v.Link].State().Set(j, b)
			}
		}
	}
	for move := range 40 {
		for n := range 10 {
			for _, end := range p.ends {
				if err := end.c.Send([]byte(messageText(end.sent)), 0); err != nil {
					t.Fatal(err)
				}
				end.sent++
			}
			s := src[uint64(n%5)]
			s.State().Set(0, []byte{byte(move), byte(n), 0, 0})
			s.Changed(0)
			p.run(time.Duration(p.rng.IntN(200)) * time.Millisecond)
		}
		snapshot := server.c.AppendSnapshot(nil)
		e, err := New(Config{Listen: true, Rand: p.rng, ReliableTimeout: time.Hour, HoleTimeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		server.e = e
		makeSources()
		if server.c, err = e.Restore(p.now, peerAddr, snapshot, resolve); err != nil {
			t.Fatal(err)
		}
		for n := range snapshot {
			if _, err := e.Restore(p.now, servAddr, snapshot[:n], resolve); err != ErrSnapshot {
				t.Fatalf("%d of %d bytes of a snapshot: %v, want ErrSnapshot", n, len(snapshot), err)
			}
		}
	}
	p.run(60 * time.Second)
	if p.ends[0].got != p.ends[1].sent || p.ends[1].got != p.ends[0].sent {
		t.Fatalf("got %d of %d and %d of %d messages", p.ends[0].got, p.ends[1].sent, p.ends[1].got, p.ends[0].sent)
	}
	if len(copies) != 5 {
		t.Fatalf("%d links, want 5", len(copies))
	}
	for id, c := range copies {
		if got, want := c.State().Value(0), src[c.cfg.Ref].State().Value(0); string(got) != string(want) {
			t.Errorf("link %04x has %x, want %x", id, got, want)
		}
	}
}
