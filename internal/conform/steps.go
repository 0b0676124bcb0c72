package conform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// LinkIds of the states that the edge offers.
const (
	allLink   wire.LinkID = 0x8000 // a value of each type, read-only
	pairLink  wire.LinkID = 0x8001 // two uint16, read-write
	namedLink wire.LinkID = 0x8002
	wrongLink wire.LinkID = 0x9abc // of no link
	askLink   wire.LinkID = 0x1234 // of a question
)

// connectSteps is the number of steps without which no other can be tried.
const connectSteps = 4

// steps returns the script, in the order of the program.
func steps() []step {
	return []step{
		{"request", "Connection and proof", request, false},
		{"request-again", "Timers", requestAgain, false},
		{"accepted", "ack-exact", accepted, false},
		{"login", "Connection and proof", login, false},
		{"request-stops", "Connection and proof", requestStops, false},
		{"echo", "ack-always", func(p *peer) { p.ask("echo hello", "hello") }, false},
		{"repeat", "ack-always", repeated, false},
		{"order", "Windows", order, false},
		{"probe", "probe-quiet", probe, false},
		{"unacknowledged", "Timers", unacknowledged, false},
		{"window", "send-10", window, false},
		{"selective", "Windows", selective, false},
		{"whole", "no-11", whole, false},
		{"long-out", "no-11", longOut, false},
		{"long-in", "Long messages", longIn, false},
		{"unreliable", "Datagrams and commands", unreliable, false},
		{"link", "Values", link, false},
		{"link-again", "Links", linkAgain, false},
		{"question", "question", question, false},
		{"update", "Updates", update, false},
		{"update-prefix", "parse-prefix", updatePrefix, false},
		{"write", "Updates", writeOnce, false},
		{"write-repeated", "refresh", writeRepeated, false},
		{"update-order", "Writes", updateOrder, false},
		{"write-crossed", "Writes", writeCrossed, false},
		{"write-refused", "Writes", writeRefused, false},
		{"write-overtaken", "no-echo", writeOvertaken, false},
		{"names", "Links", names, false},
		{"unlink", "Links", unlink, false},
		{"own-state", "ids-high", ownState, false},
		{"own-refused", "Links", ownRefused, false},
		{"withdraw", "down-repeat", withdraw, false},
		{"unknown", "Datagrams and commands", unknown, false},
		{"truncated", "no-alloc-input", truncated, false},
		{"stranger", "Connection and proof", stranger, false},
		{"loss", "rtt-repeat", loss, true},
		{"wrap", "Numbers", wrap, true},
		{"close", "Connection and proof", closing, false},
	}
}

func request(p *peer) {
	p.must(p.waitFor(max(p.cfg.Patience, time.Hour), "a client connects", func() bool { return p.requests > 0 }))
}

// requestAgain does not answer the first request.
func requestAgain(p *peer) {
	p.wait("the client repeats its request", func() bool { return p.requests > 1 })
}

// accepted sends a message before the acceptance, which counts for nothing.
func accepted(p *peer) {
	p.send(message("echo too early")(0))
	p.watch(watchTime)
	p.accept()
	p.send(wire.ConnectionAck{Result: wire.Accepted}.Append(nil)) // again, as for a repeated request
}

// watchTime is how long the edge watches for what must not happen. Arbitrary: a client that does it later
// passes.
const watchTime = 300 * time.Millisecond

func login(p *peer) {
	if p.cfg.Token == "" {
		return
	}
	p.wait("the login, the client's first reliable message", func() bool { return p.expect > 0 })
	want := append([]byte("DNPA\x01"), byte(len(p.cfg.Token)), byte(len(p.cfg.Token)>>8))
	if got := p.reply("the login"); got != p.cfg.Token && got != string(want)+p.cfg.Token {
		p.fail("the login is %q, want the token, or % x, the size and the token", clip(got), "DNPA\x01")
	}
}

func requestStops(p *peer) {
	p.ask("echo first", "first")
	before := p.requests
	p.watch(p.cfg.quiet)
	if p.requests > before {
		p.fail("the client asks for a connection that it has")
	}
}

// repeated sends a command again that the client has: its acknowledgement may have been lost.
func repeated(p *peer) {
	n := p.reserve(message("echo once"))
	datagram := p.flight[n]
	p.send(datagram)
	p.acknowledged(n, "the acknowledgement")
	for range 3 {
		p.flight[n] = datagram
		p.send(datagram)
		p.acknowledged(n, "a repeated command is acknowledged again")
	}
	p.ask("echo then", "once")
	p.says("then", "the next echo, unless the client takes a repeat for another command")
}

func order(p *peer) {
	var datagrams [][]byte
	texts := []string{"a", "b", "c", "d"}
	for _, text := range texts {
		datagrams = append(datagrams, p.flight[p.reserve(message("echo "+text))])
	}
	for _, i := range []int{3, 1, 2, 0} {
		p.send(datagrams[i])
	}
	for _, want := range texts {
		p.says(want, "the echoes of four commands that came in another order: they count in that of their numbers")
	}
}

// probe sends parts of no long message, which ask for an acknowledgement and mean nothing.
func probe(p *peer) {
	for range 3 {
		n := p.command(emptyPart)
		p.acknowledged(n, "a part without first is acknowledged")
	}
	p.ask("echo quiet", "quiet")
}

func emptyPart(n wire.Seq) []byte { return wire.ReliableMessageLong{Seq: n}.Append(nil) }

func unacknowledged(p *peer) {
	n := p.expect
	p.hold = func(got uint64) bool { return got == n && p.copies[n] < 3 }
	p.say("echo again")
	p.says("again", "an echo of which the edge acknowledges the third copy")
	before := p.copies[n]
	p.watch(p.cfg.quiet)
	if p.copies[n] > before+1 { // one may have been under way
		p.fail("the client repeats a message that the edge acknowledged")
	}
}

// window has the client send more than may be in flight.
func window(p *peer) {
	const burst = 25
	first := p.expect
	p.hold = func(uint64) bool { return true }
	p.say("burst %d", burst)
	p.wait("the client repeats the first of 25 messages that the edge does not acknowledge", func() bool { return p.copies[first] > 1 })
	if n := len(p.copies); n > 2*windowMax || n < windowMax {
		p.fail("%d messages are in flight, want %d, or up to %d behind a repeat", n, windowMax, 2*windowMax)
	}
	p.hold = nil
	for i := range burst {
		want := fmt.Sprintf("burst %d", i)
		p.says(want, fmt.Sprintf("message %d of %d", i, burst))
	}
}

// selective acknowledges everything but the first of several messages.
func selective(p *peer) {
	first := p.expect
	p.hold = func(n uint64) bool { return n == first && p.copies[n] < 3 }
	p.say("burst 8")
	for i := range 8 {
		want := fmt.Sprintf("burst %d", i)
		p.says(want, fmt.Sprintf("message %d, where the first one is acknowledged last", i))
	}
	for n := first + 1; n < first+8; n++ {
		if p.copies[n] > 2 { // the acknowledgement and a repeat may cross
			p.fail("the client sent message %d %d times, although the edge acknowledged it: acknowledgements are selective", n-first, p.copies[n])
		}
	}
}

// pattern is the message of the instruction "long".
func pattern(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return string(b)
}

// whole: messages up to 1,357 bytes are one command, because Java does not know parts.
func whole(p *peer) {
	n := p.expect
	p.ask("long 1357", pattern(1357))
	if p.expect != n+1 {
		p.fail("1,357 bytes took %d commands, want 1", p.expect-n)
	}
}

func longOut(p *peer) {
	n := p.expect
	p.ask("long 5000", pattern(5000))
	for ; n < p.expect; n++ {
		if p.wire[n] != wire.CommandReliableMessageLong {
			p.fail("a message of 5,000 bytes is command %d, want parts (10)", p.wire[n])
		}
	}
	p.ask("echo after", "after")
}

// longIn sends a long message whose parts come in pairs, the second first.
func longIn(p *peer) {
	const size, part = 20_000, 1190
	data := []byte("count " + strings.Repeat("x", size-6))
	var datagrams [][]byte
	for at := 0; at < size; at += part {
		var flags wire.PartFlags
		if at == 0 {
			flags |= wire.PartFirst
		}
		if at+part >= size {
			flags |= wire.PartLast
		}
		n := p.reserve(func(n wire.Seq) []byte {
			return wire.ReliableMessageLong{Seq: n, Flags: flags, Data: data[at:min(at+part, size)]}.Append(nil)
		})
		datagrams = append(datagrams, p.flight[n])
		if len(datagrams) == 2 {
			p.send(datagrams[1])
			p.send(datagrams[0])
			datagrams = nil
			p.wait("parts are acknowledged", func() bool { return p.acked(n) && p.acked(n-1) })
		}
	}
	for _, d := range datagrams {
		p.send(d)
	}
	p.says(fmt.Sprintf("count %d", size), "the size of a long message")
}

func unreliable(p *peer) {
	for range convergeTries {
		p.send(wire.AppendMessage(nil, []byte("once hello")))
		if p.waitFor(p.cfg.Patience/convergeTries, "", func() bool { return slices.Contains(p.unreliable, "hello") }) == nil {
			return
		}
	}
	p.fail(`the client does not answer unreliable messages "once hello" with the unreliable message "hello"`)
}

func link(p *peer) {
	p.offer(allLink, true, "all", samples(0))
	p.converge("all", func() {}, samples(0))
	p.offer(pairLink, false, "pair", uint16s(1, 2))
}

// linkAgain offers a link that exists, with other values and another layout.
func linkAgain(p *peer) {
	n := p.command(linkState(pairLink, false, "pair", uint16s(7, 8, 9)))
	p.acknowledged(n, "the client acknowledges the second offer of a LinkId")
	p.converge("pair", func() {}, uint16s(1, 2))
}

// question offers a link without values, by which edges ask whether a client is there.
func question(p *peer) {
	n := p.command(linkState(askLink, true, "?", nil))
	p.acknowledged(n, "the client acknowledges an offer without values")
	p.wait("LinkUp or LinkDown for an offer without values", func() bool { return p.ups[askLink]+p.downs[askLink] > 0 })
}

func update(p *peer) {
	all := samples(1)
	p.converge("all", func() {
		p.update(allLink, 0, all[:20])
		p.update(allLink, 20, all[20:])
	}, all)
}

// updatePrefix sends datagrams that are right up to some place. What is before it counts.
func updatePrefix(p *peer) {
	value := func(b []byte, index int, v uint16) []byte {
		return profile.AppendUpdateValue(b, index, uint16s(v)[0].typ, uint16s(v)[0].encoded)
	}
	head := func(links int) []byte { return profile.AppendUpdateHead(nil, links) }
	unknownLink := value(profile.AppendUpdateLink(head(2), pairLink, 1), 0, 11)
	unknownLink = value(profile.AppendUpdateLink(unknownLink, wrongLink, 1), 0, 99)
	badIndex := value(profile.AppendUpdateLink(head(2), pairLink, 1), 1, 12)
	badIndex = value(profile.AppendUpdateLink(badIndex, pairLink, 1), 7, 99)
	missing := value(profile.AppendUpdateLink(head(3), pairLink, 1), 0, 13)
	bare := profile.AppendUpdateLink(head(1), pairLink, 0)
	for _, c := range []struct {
		b      []byte
		what   string
		values []sample
	}{
		{unknownLink, "a value before an unknown link", uint16s(11, 2)},
		{badIndex, "a link before one with an index that does not exist", uint16s(11, 12)},
		{missing, "one link of three that the datagram announces", uint16s(13, 12)},
		{bare, "a link without values", uint16s(13, 12)},
		{head(0), "no links", uint16s(13, 12)},
	} {
		p.part = c.what
		p.converge("pair", func() { p.sendUpdate(bytes.Clone(c.b)) }, c.values)
	}
}

func pairWrite(index int, v uint16) write {
	return write{pairLink, index, string(binary.LittleEndian.AppendUint16(nil, v))}
}

func writeOnce(p *peer) {
	p.say("set pair 1 4242")
	p.wait("a LinkUpdate with the value that the client sets", func() bool { return p.wrote(pairWrite(1, 4242)) })
	for _, w := range p.writes {
		if w != pairWrite(1, 4242) {
			p.fail("the client set value 1 of %q, and sends value %d of LinkId %04x", "pair", w.index, uint16(w.link))
		}
	}
}

// writeOvertaken has another client write the value that this one set.
func writeOvertaken(p *peer) {
	p.say("set pair 1 5000")
	p.wait("the client writes", func() bool { return p.wrote(pairWrite(1, 5000)) })
	p.watch(watchTime) // longer than a round trip, so that the value does not cross the write
	p.converge("pair", func() { p.update(pairLink, 0, uint16s(13, 6000)) }, uint16s(13, 6000))
	p.writes = nil
	p.watch(p.cfg.quiet)
	if len(p.writes) > 0 {
		p.fail("the client sends % x, after the edge sent another value: it takes the write of another client back", p.writes[0].value)
	}
}

func names(p *peer) {
	described := linkmsg.Append(nil, linkmsg.Description{Key: "named", Names: []string{"hp", ""}})
	p.offer(namedLink, true, string(described), uint16s(1, 2))
	p.say("names named")
	switch got := p.reply("the names of a state"); {
	case got == "named null":
		p.must(errNotOffered)
	case got != `named ["hp",""]`:
		p.fail("the link message is %s, and the client says %q, want %q, or null if it does not read descriptions", described, clip(got), `named ["hp",""]`)
	}
}

func unlink(p *peer) {
	p.takeDown(allLink, "all", "gone")
	p.update(allLink, 0, samples(2)) // may have been under way
	p.ask("tell all", "all null")
}

// takeDown sends LinkDown for a state, until the client has it no more.
func (p *peer) takeDown(id wire.LinkID, key, why string) {
	for range convergeTries {
		p.send(wire.LinkDown{Link: id}.Append(nil))
		p.say("tell %s", key)
		if p.reply("what the client tells of a state that is "+why) == key+" null" {
			return
		}
	}
	p.fail("the client has a state that is %s: its link is down", why)
}

// ownOffer has the client offer a state, and returns its LinkId.
func (p *peer) ownOffer(key string) wire.LinkID {
	before := len(p.offers)
	p.say("offer %s", key)
	p.wait("the client offers a state", func() bool { return len(p.offers) > before })
	m := p.offers[len(p.offers)-1]
	want := wire.AppendTypedValue(wire.AppendTypedValue(nil, 3, []byte{7, 0}), wire.TypeString, []byte{3, 0, 'A', 'd', 'a'})
	got := linkStateValues(m)
	switch {
	case m.Link >= 0x8000:
		p.fail("the client offers LinkId %04x, want less than 8000: the others are the edge's", uint16(m.Link))
	case string(m.Message) != key:
		p.fail("the link message is %q, want %q", m.Message, key)
	case !bytes.Equal(got, want):
		p.fail("the values of the offer are % x, want % x", got, want)
	}
	return m.Link
}

func linkStateValues(m wire.LinkState) (b []byte) {
	for rest := m.Values; rest.Len() > 0; {
		var t wire.ValueType
		var v []byte
		t, v, rest = rest.Next()
		b = wire.AppendTypedValue(b, t, v)
	}
	return b
}

func ownState(p *peer) {
	id := p.ownOffer("me")
	p.send(wire.LinkUp{Link: id}.Append(nil))
	p.send(wire.LinkUp{Link: id}.Append(nil)) // edges repeat it
	p.say("set me 0 99")
	p.wait("a LinkUpdate of the own state", func() bool { return p.wrote(write{id, 0, "\x63\x00"}) })
	p.watch(watchTime)
	text := sample{typ: wire.TypeString}.variable("Ada", "Ada")
	p.converge("me", func() { p.update(id, 0, uint16s(500)) }, append(uint16s(500), text))
}

func ownRefused(p *peer) { p.takeDown(p.ownOffer("no"), "no", "refused") }

func withdraw(p *peer) {
	p.say("withdraw me")
	id := wire.LinkID(0)
	for _, m := range p.offers {
		if string(m.Message) == "me" {
			id = m.Link
		}
	}
	p.wait("LinkDown for the state that the client withdraws, and again, because it may get lost", func() bool { return p.downs[id] > 1 })
}

// unknown sends commands that no client knows, which may come with a later release, and bytes behind
// commands that do not end with data.
func unknown(p *peer) {
	for _, b := range [][]byte{{}, {0x7f}, {0xff, 1, 2, 3}, {12, 0, 0, 0}, {6}, {0, 1, 0, 0, 0}, {1, 0, 0, 0}, {1, 1}} {
		p.send(b)
	}
	p.send(append(wire.LinkUp{Link: wrongLink}.Append(nil), 9, 9, 9))
	p.send(wire.LinkDown{Link: wrongLink}.Append(nil))
	p.send(wire.ReliableAck{Seq: 60_000}.Append(nil))
	p.ask("echo there", "there")
}

// truncated sends each beginning of an offer and of an update. None of them counts for anything.
func truncated(p *peer) {
	offer := linkState(0x8100, true, "cut", samples(0)[:20])(profile.Seq(p.next))
	n := p.next
	p.next++ // so that an acknowledgement is known for what it is
	p.flight[n] = nil
	for cut := 1; cut < len(offer); cut++ {
		p.send(offer[:cut])
	}
	p.watch(watchTime)
	if p.acked(n) {
		p.fail("the client acknowledges an offer that ends in the middle")
	}
	p.next, p.flight = n, map[uint64][]byte{}
	b := profile.AppendUpdateLink(profile.AppendUpdateHead(nil, 1), pairLink, 1)
	b = profile.AppendUpdateValue(b, 0, uint16s(1)[0].typ, []byte{0xab, 0xcd})
	for cut := range len(b) {
		p.send(b[:cut])
	}
	p.converge("pair", func() {}, uint16s(13, 6000))
}

// stranger sends from another address what the edge could have sent.
func stranger(p *peer) {
	other, err := net.ListenUDP("udp", &net.UDPAddr{IP: p.socket.LocalAddr().(*net.UDPAddr).IP})
	p.must(err)
	defer other.Close()
	forged := [][]byte{message("echo stranger")(profile.Seq(p.next)), wire.AppendMessage(nil, []byte("once stranger")), wire.AppendConnectionClose(nil)}
	for _, b := range forged {
		_, err := other.WriteToUDPAddrPort(b, p.addr)
		p.must(err)
	}
	p.watch(watchTime)
	p.say("echo edge")
	p.says("edge", "the echo after datagrams of another address")
	if slices.Contains(p.unreliable, "stranger") {
		p.fail("the client obeys datagrams of another address")
	}
}

// loss loses 30 % of all datagrams both ways.
func loss(p *peer) {
	p.loss = 0.3
	const messages = 20
	for i := range messages {
		want := fmt.Sprintf("lossy %d", i)
		p.say("echo %s", want)
		p.says(want, fmt.Sprintf("with 30 %% loss message %d", i))
	}
	p.say("set pair 0 777")
	p.wait("with 30 % loss a value that the client sets arrives", func() bool { return p.wrote(pairWrite(0, 777)) })
}

// wrap sends commands until the numbers begin again: 65534 is followed by 0.
func wrap(p *peer) {
	modulus := profile.Modulus()
	for end := p.next + modulus + 2*windowMax; p.next < end; {
		for range windowMax {
			p.command(emptyPart)
		}
		p.wait(fmt.Sprintf("commands around number %d are acknowledged", profile.Seq(p.next)), func() bool { return len(p.flight) == 0 })
	}
	p.ask("echo wrapped", "wrapped")
}

func closing(p *peer) {
	p.say("close")
	p.wait("ConnectionClose", func() bool { return p.closed })
}
