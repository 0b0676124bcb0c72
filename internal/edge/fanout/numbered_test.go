package fanout

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// An ackRecorder is a dnp.Sender that records which writes LinkUpdates acknowledge.
type ackRecorder struct {
	discard
	last wire.Order
	acks []string
}

func (r *ackRecorder) Send(_ netip.AddrPort, b []byte) {
	if b[0] != byte(wire.CommandLinkUpdate) {
		return
	}
	_, trailer, ok := wire.ParseTrailer(b[1:])
	if !ok || trailer.Order <= r.last { // a copy, because the path may lose datagrams
		return
	}
	r.last = trailer.Order
	for a, ok := trailer.Next(); ok; a, ok = trailer.Next() {
		r.acks = append(r.acks, fmt.Sprint(a.Number, " ", a.Refused))
	}
}

// TestNumberedWrites plays a client that numbers its writes against a holder whose answers the test makes.
func TestNumberedWrites(t *testing.T) {
	s := newSessionTest(t)
	var levers []replication.Op
	for _, key := range []string{"left", "right"} {
		levers = append(levers, replication.Op{Kind: replication.OpPut, Key: key, HasAccess: true, Access: replication.Access{Kind: replication.AccessReadWrite},
			Values: []replication.PutValue{{ValueDef: replication.ValueDef{Name: "open", Type: 1}, Value: replication.Encoded{Type: 1, Value: []byte{0}}}}})
	}
	s.store.Publish(start, replication.Publish{Ops: levers, Atomic: true})
	s.replicate()
	s.begin()
	s.session.Claims.Write = true
	addr, out := s.conn.Addr(), &ackRecorder{}
	handle := func(events []dnp.Event) {
		for i := range events {
			s.session.Handle(start, &events[i])
		}
	}
	handle(s.spaces.Endpoint.Advance(start, out))
	var links []wire.LinkID
	for st := range s.spaces.Replica("arena").All() {
		if link, ok := s.conn.LinkOf(source(st)); ok {
			links = append(links, link.ID)
		}
	}
	if len(links) != 2 {
		t.Fatalf("%d links are offered, want 2", len(links))
	}
	hear := func(p []byte) { handle(s.spaces.Endpoint.Receive(start, addr, p, out)) }
	for _, link := range links {
		hear(wire.LinkUp{Link: link}.Append(nil))
	}
	hear(append([]byte{byte(wire.CommandReliableMessage), 1, 0}, command.AppendHello(nil, command.Writes)...))
	// write returns a LinkUpdate that sets the first value of these links to v, as write number.
	write := func(number uint32, v byte, links ...wire.LinkID) []byte {
		b := wire.Denetwork.AppendUpdateHead(nil, len(links))
		for _, link := range links {
			b = append(wire.Denetwork.AppendUpdateLink(b, link, 1), 0, 0, v)
		}
		return wire.AppendWriteNumber(b, number)
	}
	// asked returns the values of the requests to the holder since the last time, which it answers with code.
	asked := func(code replication.WriteCode) (text string) {
		s.spaces.Advance(start)
		epoch, seq := s.spaces.Replica("arena").Position()
		for _, r := range s.host.take() {
			w, err := replication.ParseWrite(r.Data)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range w.Values {
				text += fmt.Sprintf("%d=%x (%d) ", w.State, v.Value, v.Number)
			}
			r.done(start, replication.AppendWriteResult(nil, replication.WriteResult{Code: code, Epoch: epoch, Seq: seq, State: w.State}), nil)
		}
		s.spaces.Advance(start)
		s.spaces.Endpoint.Flush(start, out)
		return text
	}
	want := func(why, requests string, acks ...string) {
		t.Helper()
		if got := asked(replication.WriteOK); got != requests || fmt.Sprint(out.acks) != fmt.Sprint(acks) {
			t.Errorf("%s: the holder was asked for %q and the client told %q, want %q and %q", why, got, out.acks, requests, acks)
		}
		out.acks = nil
	}
	hear(write(7, 1, links[0]))
	hear(write(6, 9, links[0]))
	want("a datagram that a later one overtook changes nothing", "1=01 (7) ", "7 []")
	hear(write(7, 1, links[0]))
	want("a repeat, because the acknowledgement was lost: the holder knows that it applied it", "1=01 (7) ", "7 []")
	hear(write(9, 3, links[0]))
	hear(write(8, 2, links...))
	if got := s.session.writes.open[8]; got == nil || got.values != 1 {
		t.Errorf("the part of write 8 that was not overtaken is %+v, want one value", got)
	}
	s.session.writes.acknowledge()
	s.spaces.Endpoint.Flush(start, out)
	if len(out.acks) > 0 {
		t.Errorf("%q is acknowledged, although the holder has not answered", out.acks)
	}
	want("a write of which a part was overtaken", "1=03 (9) 2=02 (8) ", "9 []", "8 []")
	s.session.Claims.Write = false
	hear(write(10, 4, links...))
	want("a client that may not write", "", fmt.Sprintf("10 [{%d 0 not_authorised} {%d 0 not_authorised}]", links[0], links[1]))

	s.session.Claims.Write = true
	hear(write(11, 5, links...))
	s.store.Publish(start, replication.Publish{Ops: []replication.Op{
		{Kind: replication.OpPut, Key: "left", HasAccess: true, Access: replication.Access{Kind: replication.AccessReadOnly}, Values: levers[0].Values},
		{Kind: replication.OpRemove, Key: "right"},
	}, Atomic: true})
	s.replicate()
	if link, ok := s.conn.LinkOf(source(s.spaces.Replica("arena").ByKey("left"))); !ok || link.ID == links[0] {
		t.Fatalf("the read-only state has the link %+v (%t), want another one", link, ok)
	}
	asked(replication.WriteRefused)
	if got, want := fmt.Sprint(out.acks), fmt.Sprintf("[11 [{%d 0 no_state} {%d 0 refused}]]", links[1], links[0]); got != want {
		t.Errorf("the links of a write end before its answer: the client is told %s, want %s, by the links that it knows", got, want)
	}
}
