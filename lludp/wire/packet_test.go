package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/lludp/zerocode"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type vector struct {
	Name, Hex, Message string
	Flags              Flags
	Seq                Seq
	Acks               []Seq
}

func vectors(t testing.TB) []vector {
	t.Helper()
	p, err := os.ReadFile("testdata/lludp.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Packets []vector }
	if err := json.Unmarshal(p, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Packets) == 0 {
		t.Fatal("no vectors")
	}
	return file.Packets
}

var names = map[string]Number{
	"StartPingCheck": StartPingCheck, "CompletePingCheck": CompletePingCheck, "UseCircuitCode": UseCircuitCode,
	"PacketAck": PacketAck, "AgentUpdate": AgentUpdate, "KillObject": KillObject,
	"CoarseLocationUpdate": CoarseLocationUpdate, "CompleteAgentMovement": CompleteAgentMovement, "GenericMessage": GenericMessage,
}

func (a Acks) sorted() []Seq {
	var s []Seq
	for i := range a.Len() {
		s = append(s, a.At(i))
	}
	slices.Sort(s)
	return s
}

// TestVectors reads the packets of another implementation and writes the same bytes.
func TestVectors(t *testing.T) {
	var scratch Scratch
	for _, v := range vectors(t) {
		p := unhex(t, v.Hex)
		m, err := Parse(p, &scratch)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if m.Number != names[v.Message] || m.Flags != v.Flags || m.Seq != v.Seq || !slices.Equal(m.Acks.sorted(), v.Acks) {
			t.Errorf("%s: number %x flags %x seq %d acks %v, want %+v", v.Name, m.Number, m.Flags, m.Seq, m.Acks.sorted(), v)
		}
		if got := m.Append([]byte("x"))[1:]; !bytes.Equal(got, p) {
			t.Errorf("%s: written again\n%x, want\n%x", v.Name, got, p)
		}
		packet := Packet{Flags: m.Flags, Seq: m.Seq, Number: m.Number, Body: m.Body}.Append(nil)
		acks := make([]Seq, m.Acks.Len())
		for i := range acks {
			acks[i] = m.Acks.At(i)
		}
		if got, n := AppendAcks(packet, acks, PacketMax); n != len(acks) || !bytes.Equal(got, p) {
			t.Errorf("%s: with %d acks appended later\n%x, want\n%x", v.Name, n, got, p)
		}
	}
}

// TestBodies reads the circuit's messages in the vectors, field by field.
func TestBodies(t *testing.T) {
	bodies := map[string][]byte{}
	var scratch Scratch
	for _, v := range vectors(t) {
		m, err := Parse(unhex(t, v.Hex), &scratch)
		if err != nil {
			t.Fatal(err)
		}
		bodies[v.Name] = bytes.Clone(m.Body)
	}
	opening, err := ParseOpening(bodies["UseCircuitCode reliable seq1"])
	if err != nil || opening.Code != 0x01020304 || hex.EncodeToString(opening.Session[:]) != "aaaaaaaabbbbccccddddeeeeeeeeeeee" ||
		hex.EncodeToString(opening.Agent[:]) != "11111111222233334444555555555555" {
		t.Errorf("UseCircuitCode is %+v, %v", opening, err)
	}
	list, err := ParseAckList(bodies["PacketAck [1,2,0x00ABCDEF]"])
	if err != nil || list.Len() != 3 || list.At(0) != 1 || list.At(1) != 2 || list.At(2) != 0xABCDEF {
		t.Errorf("PacketAck is %+v, %v", list, err)
	}
	ping, err := ParseStartPing(bodies["StartPingCheck id=7 oldest=0x10"])
	if err != nil || ping != (StartPing{7, 0x10}) {
		t.Errorf("StartPingCheck is %+v, %v", ping, err)
	}
	for _, c := range []struct {
		name  string
		again []byte
		parse func([]byte) error
	}{
		{"UseCircuitCode reliable seq1", opening.Append(nil), func(p []byte) error { _, err := ParseOpening(p); return err }},
		{"PacketAck [1,2,0x00ABCDEF]", AppendAckList(nil, []Seq{1, 2, 0xABCDEF}), func(p []byte) error { _, err := ParseAckList(p); return err }},
		{"StartPingCheck id=7 oldest=0x10", ping.Append(nil), func(p []byte) error { _, err := ParseStartPing(p); return err }},
	} {
		if !bytes.Equal(c.again, bodies[c.name]) {
			t.Errorf("%s: written again %x, want %x", c.name, c.again, bodies[c.name])
		}
		for n := range c.again {
			if c.parse(c.again[:n]) == nil {
				t.Errorf("%s: %d of %d bytes were accepted", c.name, n, len(c.again))
			}
		}
		if c.parse(append(c.again, 9)) != nil {
			t.Errorf("%s: a byte behind it was refused; the reference implementations ignore it", c.name)
		}
	}
	if m, err := ParseCompletePing([]byte{7}); err != nil || m.ID != 7 || !bytes.Equal(m.Append(nil), []byte{7}) {
		t.Errorf("CompletePingCheck is %+v, %v", m, err)
	}
	if _, err := ParseCompletePing(nil); err == nil {
		t.Error("an empty CompletePingCheck was accepted")
	}
}

// TestEdges has one line per verdict; lludp/DESIGN.md has the reasons.
func TestEdges(t *testing.T) {
	for _, c := range []struct {
		why, hex string
		err      error
		number   Number
		body     string
		acks     int
	}{
		{"nothing", "", ErrTruncated, 0, "", 0},
		{"a header without a message", "40 00000001 00", ErrTruncated, 0, "", 0},
		{"the shortest packet", "40 00000001 00 01", nil, 0x01, "", 0},
		{"the low bits of the flags mean nothing", "0f 00000001 00 01", nil, 0x01, "", 0},
		{"a sequence number of 32 bits, as OpenSim counts", "00 ffffffff 00 01", nil, 0x01, "", 0},

		{"extra bytes come before the number, as the document says", "00 00000001 02 aabb 02 07", nil, 0x02, "07", 0},
		{"extra bytes up to the end leave no number", "00 00000001 01 aa", ErrTruncated, 0, "", 0},
		{"extra bytes beyond the end", "00 00000001 ff 01", ErrTruncated, 0, "", 0},
		{"extra bytes are zero-coded too", "80 00000001 03 0003 02 07", nil, 0x02, "07", 0},

		{"high number", "00 00000001 00 fe", nil, 0xFE, "", 0},
		{"an answer to a ping", "00 00000006 00 02 07", nil, CompletePingCheck, "07", 0},
		{"medium number", "00 00000001 00 ff01 aa", nil, 0xFF01, "aa", 0},
		{"medium number, half of it", "00 00000001 00 ff", ErrTruncated, 0, "", 0},
		{"low number", "00 00000001 00 ffff0001", nil, 0xFFFF0001, "", 0},
		{"low number, three bytes of it", "00 00000001 00 ffff00", ErrTruncated, 0, "", 0},
		{"fixed number", "00 00000001 00 fffffffd", nil, CloseCircuit, "", 0},
		{"high number 0 is in no template", "00 00000001 00 00", ErrNumber, 0, "", 0},
		{"medium number 0 is in no template", "00 00000001 00 ff00", ErrNumber, 0, "", 0},
		{"low number 0 is in no template", "00 00000001 00 ffff0000", ErrNumber, 0, "", 0},

		{"a low number with a zero, coded", "80 00000001 00 ffff000103 04", nil, UseCircuitCode, "04", 0},
		{"coded although it did not shrink", "80 00000001 00 01 00 01", nil, 0x01, "00", 0},
		{"a 00 at the end of the coded bytes is one zero", "80 00000001 00 61 00", nil, 0x61, "00", 0},
		{"00 00 k is 256 more zeros, as the viewer reads it", "80 00000001 00 61 000005", nil, 0x61, strings.Repeat("00", 261), 0},
		{"the count of acks is not zero-coded", "90 00000001 00 61 00 00000009 01", nil, 0x61, "00", 1},
		{"zeros in acks are not runs", "90 00000001 00 61 0002 00000000 01", nil, 0x61, "0000", 1},

		{"acks", "10 00000001 00 01 00000005 00000006 02", nil, 0x01, "", 2},
		{"the flag without acks", "10 00000001 00 01 00", nil, 0x01, "", 0},
		{"acks that leave no message", "10 00000001 00 00000005 01", ErrAcks, 0, "", 0},
		{"a count without acks", "10 00000001 00 01 02", ErrAcks, 0, "", 0},
		{"the flag in the shortest packet", "10 00000001 00 00", ErrAcks, 0, "", 0},
		{"all flags", "f0 00000001 00 04 0072 01020304 01", nil, AgentUpdate, strings.Repeat("00", 114), 1},
	} {
		var scratch Scratch
		p := unhex(t, c.hex)
		m, err := Parse(p, &scratch)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", c.why, err, c.err)
			continue
		}
		if err == nil && (m.Number != c.number || hex.EncodeToString(m.Body) != c.body || m.Acks.Len() != c.acks) {
			t.Errorf("%s: number %x body %x, %d acks; want %x %s, %d", c.why, m.Number, m.Body, m.Acks.Len(), c.number, c.body, c.acks)
		}
	}
}

func TestBounds(t *testing.T) {
	var scratch Scratch
	if _, err := Parse(make([]byte, ReceiveMax+1), &scratch); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a packet above the limit: %v", err)
	}
	if len(scratch) != 8192-6 {
		t.Errorf("%d bytes behind the header; the viewer's buffer has 8,192 with it", len(scratch))
	}
	most := Packet{Flags: FlagZeroCoded, Number: 1, Body: make([]byte, len(scratch)-1)}
	p := most.Append(nil)
	if m, err := Parse(p, &scratch); err != nil || len(m.Body)+1+HeaderSize != ExpandedMax {
		t.Errorf("%d bytes that expand to the limit: %d, %v", len(p), len(m.Body), err)
	}
	most.Body = append(most.Body, 0)
	if _, err := Parse(most.Append(nil), &scratch); !errors.Is(err, ErrExpansion) {
		t.Errorf("one byte more: %v", err)
	}
	bomb := append([]byte{0x80, 0, 0, 0, 1, 0}, make([]byte, 1194)...)
	if n, _ := zerocode.Expanded(bomb[HeaderSize:], 1<<30); n < 300_000 {
		t.Fatalf("the bomb has only %d bytes", n)
	}
	if _, err := Parse(bomb, &scratch); !errors.Is(err, ErrExpansion) {
		t.Errorf("a bomb: %v", err)
	}
}

// Every truncation of a vector is refused or is another packet that is not longer.
func TestTruncations(t *testing.T) {
	var scratch Scratch
	for _, v := range vectors(t) {
		p := unhex(t, v.Hex)
		for n := range p {
			m, err := Parse(p[:n:n], &scratch)
			if n < PacketMin && err == nil {
				t.Errorf("%s: %d bytes were accepted", v.Name, n)
			}
			if err == nil && m.Flags&FlagZeroCoded == 0 && len(m.Body)+4*m.Acks.Len() > n-PacketMin {
				t.Errorf("%s: %d bytes have a body of %d", v.Name, n, len(m.Body))
			}
		}
	}
}

func TestCodesOnlyWhatShrinks(t *testing.T) {
	for _, c := range []struct {
		body  string
		coded bool
	}{{"010203", false}, {"00", false}, {"0000", false}, {"000000", true}, {"00 01 000000", false}} {
		m := Packet{Flags: FlagZeroCoded | FlagReliable, Seq: 5, Number: AgentUpdate, Body: unhex(t, c.body)}
		p := m.Append([]byte("x"))[1:]
		plain := 7 + len(m.Body)
		if coded := p[0]&0x80 != 0; coded != c.coded || coded && len(p) >= plain || !coded && len(p) != plain {
			t.Errorf("%s: %x, want coded %v", c.body, p, c.coded)
		}
	}
}

func TestUnusedFlagsAreNotWritten(t *testing.T) {
	if p := (Packet{Flags: FlagReliable | 0x0F | FlagAcks, Number: 1}).Append(nil); p[0] != 0x40 {
		t.Errorf("flags %x", p[0])
	}
}

func TestAppendAcks(t *testing.T) {
	acks := make([]Seq, 400)
	for i := range acks {
		acks[i] = Seq(i)
	}
	for _, c := range []struct {
		why                   string
		size, max, acks, want int
	}{
		{"all fit", 100, PacketMax, 5, 5},
		{"the count of acks must fit a byte", 8, 2000, 400, AppendedMax},
		{"as many as there is room for", 1190, PacketMax, 5, 2},
		{"room for one, exactly", 1195, PacketMax, 5, 1},
		{"no room", 1196, PacketMax, 5, 0},
		{"a packet above the limit", 1300, PacketMax, 5, 0},
		{"none to append", 100, PacketMax, 0, 0},
	} {
		p := Packet{Number: 1, Body: make([]byte, c.size-PacketMin)}.Append(nil)
		got, n := AppendAcks(p, acks[:c.acks], c.max)
		if n != c.want || n > 0 && len(got) != c.size+1+4*n || (got[0]&byte(FlagAcks) != 0) != (n > 0) || n == 0 && len(got) != c.size {
			t.Errorf("%s: %d of %d, %d bytes, flags %x; want %d", c.why, n, c.acks, len(got), got[0], c.want)
		}
	}
	if b := AppendAckList(nil, acks); len(b) != 1+4*AckListMax || b[0] != AckListMax {
		t.Errorf("a list of 400 has %d bytes, count %d", len(b), b[0])
	}
}

func TestSeq(t *testing.T) {
	for _, c := range []struct{ s, next Seq }{{0, 1}, {0xFFFFFE, 0xFFFFFF}, {0xFFFFFF, 0}} {
		if got := c.s.Next(); got != c.next {
			t.Errorf("after %x comes %x, want %x", c.s, got, c.next)
		}
	}
	if d := Seq(2).Since(0xFFFFFF); d != 3 {
		t.Errorf("2 is %d after ffffff, want 3", d)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		n    Number
		f    Frequency
		wire string
	}{
		{0, NoFrequency, ""}, {1, High, "01"}, {0xFE, High, "fe"}, {0xFF, NoFrequency, ""}, {0x100, NoFrequency, ""}, {0xFF00, NoFrequency, ""},
		{0xFF01, Medium, "ff01"}, {0xFFFE, Medium, "fffe"}, {0xFFFF, NoFrequency, ""}, {0xFFFF0000, NoFrequency, ""},
		{0xFFFF0001, Low, "ffff0001"}, {0xFFFFFFF9, Low, "fffffff9"}, {0xFFFFFFFA, Fixed, "fffffffa"}, {0xFFFFFFFF, Fixed, "ffffffff"},
	} {
		if got := c.n.Frequency(); got != c.f {
			t.Errorf("%x has frequency %d, want %d", c.n, got, c.f)
		}
		if c.f != NoFrequency {
			if got := hex.EncodeToString(c.n.Append(nil)); got != c.wire {
				t.Errorf("%x is written %s, want %s", c.n, got, c.wire)
			}
		}
	}
}

func TestAllocations(t *testing.T) {
	var scratch Scratch
	buf := make([]byte, 0, 4096)
	seqs := []Seq{1, 2, 3}
	bomb := append([]byte{0x80, 0, 0, 0, 1, 0}, make([]byte, 1194)...)
	packets := [][]byte{bomb}
	for _, v := range vectors(t) {
		packets = append(packets, unhex(t, v.Hex))
	}
	for _, p := range packets {
		if n := testing.AllocsPerRun(100, func() {
			if m, err := Parse(p, &scratch); err == nil {
				b := Packet{Flags: m.Flags, Number: m.Number, Body: m.Body}.Append(buf)
				AppendAcks(b, seqs, PacketMax)
			}
		}); n != 0 {
			t.Errorf("%x: %v allocations", p, n)
		}
	}
}
