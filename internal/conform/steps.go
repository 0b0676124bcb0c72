package conform

import (
	"bytes"
	"encoding/binary"
	"errors"
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
		{"echo", "ack-always", func(p *peer) error { return p.ask("echo hello", "hello") }, false},
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

func request(p *peer) error {
	return p.waitFor(max(p.cfg.Patience, time.Hour), "a client connects", func() bool { return p.requests > 0 })
}

// requestAgain does not answer the first request.
func requestAgain(p *peer) error {
	return p.wait("the client repeats its request", func() bool { return p.requests > 1 })
}

// accepted sends a message before the acceptance, which counts for nothing.
func accepted(p *peer) error {
	p.send(message("echo too early")(0))
	if err := p.watch(watchTime); err != nil {
		return err
	}
	p.accept()
	p.send(wire.ConnectionAck{Result: wire.Accepted}.Append(nil)) // again, as for a repeated request
	return nil
}

// watchTime is how long the edge watches for what must not happen. Arbitrary: a client that does it later
// passes.
const watchTime = 300 * time.Millisecond

func login(p *peer) error {
	if p.cfg.Token == "" {
		return nil
	}
	if err := p.wait("the login, the client's first reliable message", func() bool { return p.expect > 0 }); err != nil {
		return err
	}
	want := append([]byte("DNPA\x01"), byte(len(p.cfg.Token)), byte(len(p.cfg.Token)>>8))
	if got, _ := p.reply("the login"); got != p.cfg.Token && got != string(want)+p.cfg.Token {
		return fmt.Errorf("the login is %q, want the token, or % x, the size and the token", clip(got), "DNPA\x01")
	}
	return nil
}

func requestStops(p *peer) error {
	if err := p.ask("echo first", "first"); err != nil {
		return err
	}
	before := p.requests
	if err := p.watch(p.cfg.quiet); err != nil {
		return err
	}
	if p.requests > before {
		return errors.New("the client asks for a connection that it has")
	}
	return nil
}

// repeated sends a command again that the client has: its acknowledgement may have been lost.
func repeated(p *peer) error {
	n := p.reserve(message("echo once"))
	datagram := p.flight[n]
	p.send(datagram)
	if err := p.wait("the acknowledgement", func() bool { return p.acked(n) }); err != nil {
		return err
	}
	for range 3 {
		p.flight[n] = datagram
		p.send(datagram)
		if err := p.wait("a repeated command is acknowledged again", func() bool { return p.acked(n) }); err != nil {
			return err
		}
	}
	if err := p.ask("echo then", "once"); err != nil {
		return err
	}
	if got, err := p.reply("the next echo"); err != nil || got != "then" {
		return fmt.Errorf("after three repeats the client says %q, want %q: it takes a repeat for another command (%v)", got, "then", err)
	}
	return nil
}

func order(p *peer) error {
	var datagrams [][]byte
	texts := []string{"a", "b", "c", "d"}
	for _, text := range texts {
		datagrams = append(datagrams, p.flight[p.reserve(message("echo "+text))])
	}
	for _, i := range []int{3, 1, 2, 0} {
		p.send(datagrams[i])
	}
	for _, want := range texts {
		if got, err := p.reply("the echoes of four commands that came in another order"); err != nil || got != want {
			return fmt.Errorf("the client says %q, want %q: commands count in the order of their numbers (%v)", got, want, err)
		}
	}
	return nil
}

// probe sends parts of no long message, which ask for an acknowledgement and mean nothing.
func probe(p *peer) error {
	for range 3 {
		n := p.command(emptyPart)
		if err := p.wait("a part without first is acknowledged", func() bool { return p.acked(n) }); err != nil {
			return err
		}
	}
	return p.ask("echo quiet", "quiet")
}

func emptyPart(n wire.Seq) []byte { return wire.ReliableMessageLong{Seq: n}.Append(nil) }

func unacknowledged(p *peer) error {
	n := p.expect
	p.hold = func(got uint64) bool { return got == n && p.copies[n] < 3 }
	if err := p.ask("echo again", "again"); err != nil {
		return fmt.Errorf("the edge acknowledges the third copy of a message: %w", err)
	}
	before := p.copies[n]
	if err := p.watch(p.cfg.quiet); err != nil {
		return err
	}
	if p.copies[n] > before+1 { // one may have been under way
		return errors.New("the client repeats a message that the edge acknowledged")
	}
	return nil
}

// window has the client send more than may be in flight.
func window(p *peer) error {
	const burst = 25
	first := p.expect
	p.hold = func(uint64) bool { return true }
	p.say("burst %d", burst)
	if err := p.wait("the client repeats the first of 25 messages that the edge does not acknowledge", func() bool { return p.copies[first] > 1 }); err != nil {
		return err
	}
	if n := len(p.copies); n > 2*windowMax || n < windowMax {
		return fmt.Errorf("%d messages are in flight, want %d, or up to %d behind a repeat", n, windowMax, 2*windowMax)
	}
	p.hold = nil
	for i := range burst {
		want := fmt.Sprintf("burst %d", i)
		if got, err := p.reply(want); err != nil || got != want {
			return fmt.Errorf("message %d of %d is %q (%v)", i, burst, got, err)
		}
	}
	return nil
}

// selective acknowledges everything but the first of several messages.
func selective(p *peer) error {
	first := p.expect
	p.hold = func(n uint64) bool { return n == first && p.copies[n] < 3 }
	p.say("burst 8")
	for i := range 8 {
		want := fmt.Sprintf("burst %d", i)
		if got, err := p.reply(want); err != nil || got != want {
			return fmt.Errorf("with a first message that was acknowledged last, message %d is %q (%v)", i, got, err)
		}
	}
	for n := first + 1; n < first+8; n++ {
		if p.copies[n] > 2 { // the acknowledgement and a repeat may cross
			return fmt.Errorf("the client sent message %d %d times, although the edge acknowledged it: acknowledgements are selective", n-first, p.copies[n])
		}
	}
	return nil
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
func whole(p *peer) error {
	n := p.expect
	if err := p.ask("long 1357", pattern(1357)); err != nil {
		return err
	}
	if p.expect != n+1 {
		return fmt.Errorf("1,357 bytes took %d commands, want 1", p.expect-n)
	}
	return nil
}

func longOut(p *peer) error {
	n := p.expect
	if err := p.ask("long 5000", pattern(5000)); err != nil {
		return err
	}
	for ; n < p.expect; n++ {
		if p.wire[n] != wire.CommandReliableMessageLong {
			return fmt.Errorf("a message of 5,000 bytes is command %d, want parts (10)", p.wire[n])
		}
	}
	return p.ask("echo after", "after")
}

// longIn sends a long message whose parts come in pairs, the second first.
func longIn(p *peer) error {
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
			if err := p.wait("parts are acknowledged", func() bool { return p.acked(n) && p.acked(n-1) }); err != nil {
				return err
			}
		}
	}
	for _, d := range datagrams {
		p.send(d)
	}
	if got, err := p.reply("the size of a long message"); err != nil || got != fmt.Sprintf("count %d", size) {
		return fmt.Errorf("of a message of %d bytes the client says %q (%v)", size, got, err)
	}
	return nil
}

func unreliable(p *peer) error {
	for range convergeTries {
		p.send(wire.AppendMessage(nil, []byte("once hello")))
		if p.waitFor(p.cfg.Patience/convergeTries, "", func() bool { return slices.Contains(p.unreliable, "hello") }) == nil {
			return nil
		}
	}
	return errors.New(`the client does not answer unreliable messages "once hello" with the unreliable message "hello"`)
}

func link(p *peer) error {
	if err := p.offer(allLink, true, "all", samples(0)); err != nil {
		return err
	}
	if err := p.converge("all", func() {}, samples(0)); err != nil {
		return err
	}
	return p.offer(pairLink, false, "pair", uint16s(1, 2))
}

// linkAgain offers a link that exists, with other values and another layout.
func linkAgain(p *peer) error {
	n := p.command(linkState(pairLink, false, "pair", uint16s(7, 8, 9)))
	if err := p.wait("the client acknowledges the second offer of a LinkId", func() bool { return p.acked(n) }); err != nil {
		return err
	}
	return p.converge("pair", func() {}, uint16s(1, 2))
}

// question offers a link without values, by which edges ask whether a client is there.
func question(p *peer) error {
	n := p.command(linkState(askLink, true, "?", nil))
	if err := p.wait("the client acknowledges an offer without values", func() bool { return p.acked(n) }); err != nil {
		return err
	}
	return p.wait("LinkUp or LinkDown for an offer without values", func() bool { return p.ups[askLink]+p.downs[askLink] > 0 })
}

func update(p *peer) error {
	all := samples(1)
	return p.converge("all", func() {
		p.update(allLink, 0, all[:20])
		p.update(allLink, 20, all[20:])
	}, all)
}

// updatePrefix sends datagrams that are right up to some place. What is before it counts.
func updatePrefix(p *peer) error {
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
		if err := p.converge("pair", func() { p.send(c.b) }, c.values); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func pairWrite(index int, v uint16) write {
	return write{pairLink, index, string(binary.LittleEndian.AppendUint16(nil, v))}
}

func writeOnce(p *peer) error {
	p.say("set pair 1 4242")
	if err := p.wait("a LinkUpdate with the value that the client sets", func() bool { return p.wrote(pairWrite(1, 4242)) }); err != nil {
		return err
	}
	for _, w := range p.writes {
		if w != pairWrite(1, 4242) {
			return fmt.Errorf("the client set value 1 of %q, and sends value %d of LinkId %04x", "pair", w.index, uint16(w.link))
		}
	}
	return nil
}

// writeRepeated loses the first LinkUpdate, which has no acknowledgement.
func writeRepeated(p *peer) error {
	p.say("set pair 1 4243")
	count := func() (n int) {
		for _, w := range p.writes {
			if w == pairWrite(1, 4243) {
				n++
			}
		}
		return n
	}
	return p.wait("the client sends a value again, because a LinkUpdate may get lost", func() bool { return count() > 1 })
}

// writeOvertaken has another client write the value that this one set.
func writeOvertaken(p *peer) error {
	p.say("set pair 1 5000")
	if err := p.wait("the client writes", func() bool { return p.wrote(pairWrite(1, 5000)) }); err != nil {
		return err
	}
	if err := p.watch(watchTime); err != nil { // longer than a round trip, so that the value does not cross the write
		return err
	}
	if err := p.converge("pair", func() { p.update(pairLink, 0, uint16s(13, 6000)) }, uint16s(13, 6000)); err != nil {
		return err
	}
	p.writes = nil
	if err := p.watch(p.cfg.quiet); err != nil {
		return err
	}
	if len(p.writes) > 0 {
		return fmt.Errorf("the client sends % x, after the edge sent another value: it takes the write of another client back", p.writes[0].value)
	}
	return nil
}

func names(p *peer) error {
	described := linkmsg.Append(nil, linkmsg.Description{Key: "named", Names: []string{"hp", ""}})
	if err := p.offer(namedLink, true, string(described), uint16s(1, 2)); err != nil {
		return err
	}
	p.say("names named")
	got, err := p.reply("the names of a state")
	switch {
	case err != nil:
		return err
	case got == "named null":
		return errNotOffered
	case got != `named ["hp",""]`:
		return fmt.Errorf("the link message is %s, and the client says %q, want %q, or null if it does not read descriptions", described, clip(got), `named ["hp",""]`)
	}
	return nil
}

func unlink(p *peer) error {
	gone := func() error {
		for range convergeTries {
			p.send(wire.LinkDown{Link: allLink}.Append(nil))
			p.say("tell all")
			if got, err := p.reply("what the client tells of a state that is gone"); err != nil || got == "all null" {
				return err
			}
		}
		return errors.New("the client has a state whose link is down")
	}
	if err := gone(); err != nil {
		return err
	}
	p.update(allLink, 0, samples(2)) // may have been under way
	return p.ask("tell all", "all null")
}

// own offers of the client.
func (p *peer) ownOffer(key string) (id wire.LinkID, err error) {
	before := len(p.offers)
	p.say("offer %s", key)
	if err := p.wait("the client offers a state", func() bool { return len(p.offers) > before }); err != nil {
		return 0, err
	}
	m := p.offers[len(p.offers)-1]
	want := wire.AppendTypedValue(wire.AppendTypedValue(nil, 3, []byte{7, 0}), wire.TypeString, []byte{3, 0, 'A', 'd', 'a'})
	got := linkStateValues(m)
	switch {
	case m.Link >= 0x8000:
		return 0, fmt.Errorf("the client offers LinkId %04x, want less than 8000: the others are the edge's", uint16(m.Link))
	case string(m.Message) != key:
		return 0, fmt.Errorf("the link message is %q, want %q", m.Message, key)
	case !bytes.Equal(got, want):
		return 0, fmt.Errorf("the values of the offer are % x, want % x", got, want)
	}
	return m.Link, nil
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

func ownState(p *peer) error {
	id, err := p.ownOffer("me")
	if err != nil {
		return err
	}
	p.send(wire.LinkUp{Link: id}.Append(nil))
	p.send(wire.LinkUp{Link: id}.Append(nil)) // edges repeat it
	p.say("set me 0 99")
	if err := p.wait("a LinkUpdate of the own state", func() bool { return p.wrote(write{id, 0, "\x63\x00"}) }); err != nil {
		return err
	}
	if err := p.watch(watchTime); err != nil {
		return err
	}
	text := sample{typ: wire.TypeString}.variable("Ada", "Ada")
	return p.converge("me", func() { p.update(id, 0, uint16s(500)) }, append(uint16s(500), text))
}

func ownRefused(p *peer) error {
	id, err := p.ownOffer("no")
	if err != nil {
		return err
	}
	for range convergeTries {
		p.send(wire.LinkDown{Link: id}.Append(nil))
		p.say("tell no")
		if got, err := p.reply("what the client tells of a state that the edge refused"); err != nil || got == "no null" {
			return err
		}
	}
	return errors.New("the client has a state that the edge refused")
}

func withdraw(p *peer) error {
	p.say("withdraw me")
	id := wire.LinkID(0)
	for _, m := range p.offers {
		if string(m.Message) == "me" {
			id = m.Link
		}
	}
	return p.wait("LinkDown for the state that the client withdraws, and again, because it may get lost", func() bool { return p.downs[id] > 1 })
}

// unknown sends commands that no client knows, which may come with a later release, and bytes behind
// commands that do not end with data.
func unknown(p *peer) error {
	for _, b := range [][]byte{{}, {0x7f}, {0xff, 1, 2, 3}, {12, 0, 0, 0}, {6}, {0, 1, 0, 0, 0}, {1, 0, 0, 0}, {1, 1}} {
		p.send(b)
	}
	p.send(append(wire.LinkUp{Link: wrongLink}.Append(nil), 9, 9, 9))
	p.send(wire.LinkDown{Link: wrongLink}.Append(nil))
	p.send(wire.ReliableAck{Seq: 60_000}.Append(nil))
	return p.ask("echo there", "there")
}

// truncated sends each beginning of an offer and of an update. None of them counts for anything.
func truncated(p *peer) error {
	offer := linkState(0x8100, true, "cut", samples(0)[:20])(profile.Seq(p.next))
	n := p.next
	p.next++ // so that an acknowledgement is known for what it is
	p.flight[n] = nil
	for cut := 1; cut < len(offer); cut++ {
		p.send(offer[:cut])
	}
	if err := p.watch(watchTime); err != nil {
		return err
	}
	if p.acked(n) {
		return errors.New("the client acknowledges an offer that ends in the middle")
	}
	p.next, p.flight = n, map[uint64][]byte{}
	b := profile.AppendUpdateLink(profile.AppendUpdateHead(nil, 1), pairLink, 1)
	b = profile.AppendUpdateValue(b, 0, uint16s(1)[0].typ, []byte{0xab, 0xcd})
	for cut := range len(b) {
		p.send(b[:cut])
	}
	return p.converge("pair", func() {}, uint16s(13, 6000))
}

// stranger sends from another address what the edge could have sent.
func stranger(p *peer) error {
	other, err := net.ListenUDP("udp", &net.UDPAddr{IP: p.socket.LocalAddr().(*net.UDPAddr).IP})
	if err != nil {
		return err
	}
	defer other.Close()
	forged := [][]byte{message("echo stranger")(profile.Seq(p.next)), wire.AppendMessage(nil, []byte("once stranger")), wire.AppendConnectionClose(nil)}
	for _, b := range forged {
		if _, err := other.WriteToUDPAddrPort(b, p.addr); err != nil {
			return err
		}
	}
	if err := p.watch(watchTime); err != nil {
		return err
	}
	if err := p.ask("echo edge", "edge"); err != nil {
		return fmt.Errorf("after datagrams of another address: %w", err)
	}
	if slices.Contains(p.unreliable, "stranger") {
		return errors.New("the client obeys datagrams of another address")
	}
	return nil
}

// loss loses 30 % of all datagrams both ways.
func loss(p *peer) error {
	p.loss = 0.3
	defer func() { p.loss = 0 }()
	const messages = 20
	for i := range messages {
		want := fmt.Sprintf("lossy %d", i)
		p.say("echo %s", want)
		if got, err := p.reply(want); err != nil || got != want {
			return fmt.Errorf("with 30 %% loss message %d is %q, want %q (%v)", i, got, want, err)
		}
	}
	p.say("set pair 0 777")
	return p.wait("with 30 % loss a value that the client sets arrives", func() bool { return p.wrote(pairWrite(0, 777)) })
}

// wrap sends commands until the numbers begin again: 65534 is followed by 0.
func wrap(p *peer) error {
	modulus := profile.Modulus()
	for end := p.next + modulus + 2*windowMax; p.next < end; {
		for range windowMax {
			p.command(emptyPart)
		}
		if err := p.wait(fmt.Sprintf("commands around number %d are acknowledged", profile.Seq(p.next)), func() bool { return len(p.flight) == 0 }); err != nil {
			return err
		}
	}
	return p.ask("echo wrapped", "wrapped")
}

func closing(p *peer) error {
	p.say("close")
	return p.wait("ConnectionClose", func() bool { return p.closed })
}
