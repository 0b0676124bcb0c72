package dnptest

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// connect is the start of every script.
const connect = `
	! connect
	< 00 0100 0000
	> 01 00 0000
`

// TestHabits plays each script to all implementations with the same behaviour. A script
// shows the effect of the field that it is named after.
func TestHabits(t *testing.T) {
	all := "cpp java python engine spec"
	for _, tt := range []struct{ name, who, script string }{
		{"a connected client ignores another ConnectionAck", all, `
			> 01 01
			> 04 0000 41
			< 06 0000 00`},
		{"an unknown ack code is heeded by the engine only", "engine", `
			! send
			< 04 0000 6869
			> 06 0000 07
			< 04 0000 6869`},
		{"an unknown ack code is ignored", "cpp java python spec", `
			! send
			< 04 0000 6869
			> 06 0000 07
			> 06 0000 00`},
		{"a repeat of a present LinkID is swallowed", all, `
			> 05 0000 0700 01 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			> 05 0100 0700 01 0100 41 0100 03 0500
			< 06 0100 00`},
		{"LinkDown counts only while the link is up, and the LinkID is burnt", "cpp java python", `
			> 05 0000 0700 01 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			> 08 0700
			> 05 0100 0700 01 0100 41 0100 03 0500
			< 06 0100 00 # read, but no LinkUp`},
		{"a LinkID can be linked again", "spec", `
			> 05 0000 0700 01 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			> 08 0700
			> 05 0100 0700 01 0100 41 0100 03 0500
			< 06 0100 00
			< 07 0700`},
		{"a link that is up cannot be taken down", "engine", `
			> 05 0000 0700 00 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			> 08 0700
			! write
			+ 20ms
			< 09 01 0700 01 0000 0900`},
		{"an offer without values is linked", all, `
			> 05 0000 0700 01 0100 41 0000
			< 06 0000 00
			< 07 0700
			> 09 0000`},
		{"a write on a read-only link is sent", "cpp java python engine", `
			> 05 0000 0700 01 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			! write
			+ 20ms
			< 09 01 0700 01 0000 0900`},
		{"a write on a read-only link is not sent", "spec", `
			> 05 0000 0700 01 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			! write
			+ 20ms`},
		{"typed updates", "spec", `
			> 05 0000 0700 00 0100 41 0100 03 0500
			< 06 0000 00
			< 07 0700
			! write
			+ 20ms
			< 09 0100 0700 0100 03 0900`},
		{"the probe is invisible", "cpp java python engine", `
			> 0a 0000 00
			< 06 0000 00
			> 04 0100 41
			< 06 0100 00`},
		{"a long message in parts", "cpp python engine", `
			> 0a 0000 01 41
			< 06 0000 00
			> 0a 0200 02 43
			< 06 0200 00
			> 0a 0100 00 42
			< 06 0100 00
			! want ABC`},
		{"a long message is acknowledged and sticks", "java", `
			> 0a 0000 01
			< 06 0000 00
			> 04 0100 41
			< 06 0100 00
			! want`},
		{"a second first part starts over", "cpp python engine", `
			> 0a 0000 01 58
			< 06 0000 00
			> 0a 0100 01 41
			< 06 0100 00
			> 0a 0200 02
			< 06 0200 00
			! want A`},
		{"a queued command that raises stays queued until its number comes again", "java", `
			> 0a 0100 01
			< 06 0100 00
			> 04 0000 41
			< 06 0000 00
			> 04 0200 43
			< 06 0200 00
			! want A
			> 04 0100 42
			< 06 0100 00
			! want ABC`},
		{"an acknowledgement of what was not sent is ignored", "cpp java spec", `
			! send12
			< 04 0000 *
			< 04 0100 *
			< 04 0200 *
			< 04 0300 *
			< 04 0400 *
			< 04 0500 *
			< 04 0600 *
			< 04 0700 *
			< 04 0800 *
			< 04 0900 *
			> 06 0a00 00
			> 06 0000 00
			< 04 0a00 *
			+ 500ms
			< 04 0100 *
			< 04 0200 *
			< 04 0300 *
			< 04 0400 *
			< 04 0500 *
			< 04 0600 *
			< 04 0700 *
			< 04 0800 *
			< 04 0900 *
			< 04 0a00 *  # so it is not taken for done
			> 02`},
		{"command 10 is unknown", "spec", `
			> 0a 0000 00`},
		{"command 11 in parts", "engine", `
			> 0b 0000 0700 03 0100 41 0100
			< 06 0000 00
			> 0b 0100 0700 04 0100 42 03 0500
			< 06 0100 00
			< 07 0700`},
		{"the first part of command 11 is taken for the last", "cpp", `
			> 0b 0000 0700 03 0100 41 0100
			< 06 0000 00
			> 04 0100 41
			< 06 0100 00
			! want # the part did not parse: stuck`},
		{"command 11 is unknown", "python spec", `
			> 0b 0000 0700 06 0200 4142 0100 03 0500`},
		{"another layout is acknowledged and sticks", "cpp java python", `
			> 05 0000 0700 01 0100 58 0100 03 0500
			< 06 0000 00
			> 04 0100 41
			< 06 0100 00
			! want`},
		{"another layout is answered with LinkDown", "engine spec", `
			> 05 0000 0700 01 0100 58 0100 03 0500
			< 06 0000 00
			< 08 0700
			> 04 0100 41
			< 06 0100 00
			! want A`},
		{"an empty message sticks", "python", `
			> 04 0000
			< 06 0000 00
			> 04 0100 41
			< 06 0100 00
			! want`},
		{"an empty message is delivered", "cpp java spec", `
			> 04 0000
			< 06 0000 00
			> 04 0100 41
			< 06 0100 00
			! want A`},
		{"vectors and text stick", "python", `
			> 05 0000 0700 01 0100 41 0100 0b 0200 c3a9
			< 06 0000 00
			> 05 0000 0700 01 0100 41 0100 21 000000000000000000000000
			< 06 0000 00
			> 05 0000 0700 01 0100 41 0100 0b 0200 4141
			< 06 0000 00
			< 07 0700`},
		{"an old number is acknowledged", "cpp java python engine spec", `
			> 04 0000 41
			< 06 0000 00
			> 04 0000 41
			< 06 0000 00
			! want A`},
		{"65535 is refused", "cpp java python engine", `
			> 04 ffff 41`},
		{"the eleventh flies", "engine", `
			! send12
			< 04 0000 *
			< 04 0100 *
			< 04 0200 *
			< 04 0300 *
			< 04 0400 *
			< 04 0500 *
			< 04 0600 *
			< 04 0700 *
			< 04 0800 *
			< 04 0900 *
			< 04 0a00 *
			> 02`},
		{"the first acknowledgement empties the queue", "python", `
			! send12
			< 04 0000 *
			< 04 0100 *
			< 04 0200 *
			< 04 0300 *
			< 04 0400 *
			< 04 0500 *
			< 04 0600 *
			< 04 0700 *
			< 04 0800 *
			< 04 0900 *
			> 06 0000 00
			! send
			< 04 0c00 6869  # 10 and 11 are never sent
			> 06 0c00 00
			+ 1s`},
		{"goodbye flushes", "java python", `
			! send
			< 04 0000 6869
			! close
			< 04 0000 6869
			< 02`},
		{"goodbye does not flush", "cpp engine spec", `
			! send
			< 04 0000 6869
			! close
			< 02`},
		{"giving up is silent", "engine", `
			! send
			< 04 0000 6869
			! sleep
			+ 5s
			! wake
			> 04 0000 41`},
		{"a sleeping client is silent and comes back", all, `
			! sleep
			> 04 0000 41
			! wake
			> 04 0000 41
			< 06 0000 00`},
		{"restart starts the numbers at 0", all, `
			! send
			< 04 0000 6869
			! restart
			< 00 0100 0000
			> 01 00 0000
			! send
			< 04 0000 6869
			> 06 0000 00`},
		{"the same object connects again with other numbers", "cpp java engine spec", `
			! send
			< 04 0000 6869
			> 06 0000 00
			> 02
			! connect
			< 00 0100 0000
			> 01 00 0000
			! send
			< 04 0000 6869
			> 06 0000 00`},
		{"the same object connects again and goes on counting", "python", `
			! send
			< 04 0000 6869
			> 06 0000 00
			> 02
			! connect
			< 00 0100 0000
			> 01 00 0000
			! send
			< 04 0100 6869
			> 06 0100 00`},
	} {
		for _, b := range Presets() {
			if !strings.Contains(" "+tt.who+" ", " "+b.Name+" ") {
				continue
			}
			t.Run(tt.name+"/"+b.Name, func(t *testing.T) { playHabit(t, b, tt.script) })
		}
	}
}

func playHabit(t *testing.T, b Behaviour, script string) {
	tr, c := scripted(t, b, App{Offered: func(o Offer) Answer {
		if string(o.Message) == "X" {
			return Mismatch
		}
		return Accept
	}})
	tr.Do["write"] = func() { c.Set(c.Link(7), 0, []byte{9, 0}) }
	tr.Do["send12"] = func() {
		for i := range 12 {
			_ = c.Send(tr.Now, []byte{byte(i), 1})
		}
	}
	want := func(text string) func() {
		return func() {
			got := ""
			for _, m := range c.Messages {
				got += string(m.Data)
			}
			if got != text {
				t.Errorf("the application got %q, want %q", got, text)
			}
		}
	}
	tr.Do["want"], tr.Do["want A"], tr.Do["want ABC"] = want(""), want("A"), want("ABC")
	tr.Run(connect + script)
}

// TestConnecting: while a client connects, implementations differ only as listed here.
func TestConnecting(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want map[string]Phase // of implementations that stop connecting
	}{
		{"01 05", map[string]Phase{"cpp": Closed, "engine": Closed, "spec": Closed}},
		{"01 01", map[string]Phase{"cpp": Closed, "engine": Closed, "spec": Closed, "java": Closed, "python": Closed}},
		{"01 00 0100", map[string]Phase{"cpp": Connected, "engine": Connected, "spec": Connected, "java": Connected}},
		{"02", map[string]Phase{"cpp": Closed}},
		{"04 0000 41", nil},
		{"01 00", map[string]Phase{"engine": Crashed}},
	} {
		for _, b := range Presets() {
			tr, c := scripted(t, b, App{})
			tr.Run("! connect\n< 00 0100 0000\n> " + tt.in)
			want, ok := tt.want[b.Name]
			if !ok {
				want = Connecting
			}
			if c.Phase() != want {
				t.Errorf("%s: after %s %v, want %v", b.Name, tt.in, c.Phase(), want)
			}
		}
	}
}

// TestSignedCounts: Java reads counts of 128 and more as negative.
func TestSignedCounts(t *testing.T) {
	for _, b := range []Behaviour{Java(), Cpp()} {
		for _, values := range []int{127, 128} {
			p := wire.Denetwork.AppendUpdateHead(nil, 1)
			p = wire.Denetwork.AppendUpdateLink(p, 7, values)
			for i := range values {
				p = wire.Denetwork.AppendUpdateValue(p, i, 1, []byte{9})
			}
			offer := wire.AppendLinkStateHead(nil, wire.LinkState{Link: 7, Message: []byte("A")}, 200)
			offer = state(t, makeTypes(200, 1)...).AppendTyped(offer)
			tr, c := scripted(t, b, App{})
			tr.Run(connect)
			c.Receive(tr.Now, tr.From, offer)
			c.Receive(tr.Now, tr.From, p)
			want := values
			if b.SignedCounts && values > 127 {
				want = 0
			}
			if c.Stats.Updates != want {
				t.Errorf("%s: %d values applied of %d, want %d", b.Name, c.Stats.Updates, values, want)
			}
		}
	}
}

func makeTypes(n int, v wire.ValueType) []wire.ValueType {
	types := make([]wire.ValueType, n)
	for i := range types {
		types[i] = v
	}
	return types
}

// TestManyValues: of 300 changed values the first 255 are sent, and then the link is
// never sent again.
func TestManyValues(t *testing.T) {
	tr, c := scripted(t, Cpp(), App{})
	tr.Do["offer"] = func() { _, _ = c.Offer(tr.Now, state(t, makeTypes(300, 1)...), []byte("M"), false) }
	tr.Do["write"] = func() {
		for i := range 300 {
			c.Set(c.Link(0), i, []byte{c.Link(0).State.Value(i)[0] + 1})
		}
	}
	tr.Run(connect + `
	! offer
	< 05 0000 0000 *
	> 06 0000 00
	> 07 0000
	! write
	+ 20ms
	< 09 01 0000 ff *
	! write
	+ 20ms`)
}

// TestUnknownLink: a LinkUpdate ends at a link that is not up.
func TestUnknownLink(t *testing.T) {
	for _, b := range []Behaviour{Cpp(), Java(), Python(), Engine()} {
		c := play(t, b, App{}, connect+`
		> 05 0000 0700 01 0100 41 0100 03 0500
		< 06 0000 00
		< 07 0700
		> 05 0100 0800 01 0100 42 0100 03 0500
		< 06 0100 00
		< 07 0800
		> 09 03 0700 01 0000 0900 3300 01 0000 0900 0800 01 0000 0900`)
		if a, b := c.Value("A", 0), c.Value("B", 0); a[0] != 9 || b[0] != 5 || c.Stats.Unknown != 1 {
			t.Errorf("%s: values %x and %x; the link before the unknown one counts, the one after does not", c.b.Name, a, b)
		}
	}
}

// TestAsksAgain: Java and Python ask the application about every offer, C and the engine
// only about those that they might link.
func TestAsksAgain(t *testing.T) {
	for _, b := range Presets() {
		asked := 0
		play(t, b, App{Offered: func(Offer) Answer { asked++; return Accept }}, connect+`
		> 05 0000 0700 01 0100 41 0100 03 0500
		< 06 0000 00
		< 07 0700
		> 05 0100 0700 01 0100 41 0100 03 0500
		< 06 0100 00`)
		want := 1
		if b.Name == "java" || b.Name == "python" {
			want = 2
		}
		if asked != want {
			t.Errorf("%s: asked %d times, want %d", b.Name, asked, want)
		}
	}
}

// TestUpdateIndex: the first index beyond the layout raises, and the values before it
// are applied.
func TestUpdateIndex(t *testing.T) {
	c := play(t, Cpp(), App{}, connect+`
	> 05 0000 0700 01 0100 41 0200 03 0500 03 0500
	< 06 0000 00
	< 07 0700
	> 09 01 0700 02 0100 0900 0200 0900`)
	if c.Stats.Updates != 1 || c.Stats.Exceptions != 1 {
		t.Errorf("%+v", c.Stats)
	}
}

// TestOwnIDs: Java and Python skip only one used LinkID.
func TestOwnIDs(t *testing.T) {
	for _, b := range Presets() {
		tr, c := scripted(t, b, App{})
		var own *Link
		tr.Do["offer"] = func() { own, _ = c.Offer(tr.Now, state(t, 1), []byte("M"), false) }
		tr.Run(connect + `
		> 05 0000 0000 01 0100 41 0100 03 0500
		< 06 0000 00
		< 07 0000
		> 05 0100 0100 01 0100 42 0100 03 0500
		< 06 0100 00
		< 07 0100
		! offer
		< 05 *`)
		want := wire.LinkID(2)
		if b.SkipsOneID {
			want = 1
		}
		if own.ID != want {
			t.Errorf("%s: own LinkID %d, want %d", b.Name, own.ID, want)
		}
	}
}

// TestFrame: C and the engine read and write once per frame.
func TestFrame(t *testing.T) {
	tr := NewTranscript(t)
	c := NewClient(Config{Behaviour: Cpp(), Server: tr.From, Send: func(p []byte) { tr.Send(tr.From, p) }})
	tr.Subject = Subject{Receive: c.Receive, Advance: c.Advance, NextTimeout: c.NextTimeout}
	tr.Do["connect"] = func() { c.Connect(tr.Now) }
	tr.Run(`
	! connect
	< 00 0100 0000
	> 01 00 0000
	+ 17ms
	> 04 0000 41
	+ 14ms
	+ 1ms
	< 06 0000 00   # the second frame, 32 ms after the first request
	>
	> 04 0100 41
	+ 16ms         # an empty datagram ends the frame's reading
	+ 16ms
	< 06 0100 00`)
}

func TestCrash(t *testing.T) {
	c := play(t, Engine(), App{}, connect+`
	> 05 0000 07
	< 06 0000 00`)
	if c.Phase() != Crashed {
		t.Errorf("%v: a truncated LinkState ends the engine's game", c.Phase())
	}
	if _, busy := c.NextTimeout(); busy {
		t.Error("a crashed client has a deadline")
	}
}

func TestSource(t *testing.T) {
	other := server
	for _, b := range Presets() {
		tr, c := scripted(t, b, App{})
		tr.Run(connect)
		c.Receive(tr.Now, other, []byte{2})
		if (c.Phase() == Connected) != b.ChecksSource {
			t.Errorf("%s: %v after a Close of another address", b.Name, c.Phase())
		}
	}
}

func TestHalf(t *testing.T) {
	for h, want := range map[uint16]float64{0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24), 0x7bff: 65504, 0x3555: 0.333251953125} {
		if got := component(binary.LittleEndian.AppendUint16(nil, h)); got != want {
			t.Errorf("component(%#x) = %v, want %v", h, got, want)
		}
	}
	if near(netstate.Value{Type: 8, Precision: 1}, []byte{0, 0x7e}, []byte{0, 0x3c}) {
		t.Error("near accepts a NaN")
	}
}

func TestPresetsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range Presets() {
		if b.Name == "" || seen[b.Name] || b.Tick <= 0 || b.Tick > 100*time.Millisecond {
			t.Errorf("preset %+v", b)
		}
		seen[b.Name] = true
	}
}

// TestSameObject: a Python object that connects again acknowledges as many messages as it had before, and passes on
// none of them.
func TestSameObject(t *testing.T) {
	script := `
		! connect
		< 00 0100 0000
		> 01 00 0000
		> 04 0000 41
		< 06 0000 00
		> 02
		! connect
		< 00 0100 0000
		> 01 00 0000
		> 04 0000 42
		< 06 0000 00
		> 04 0100 43
		< 06 0100 00`
	for _, b := range Presets() {
		c := play(t, b, App{}, script)
		var got strings.Builder
		for _, m := range c.Messages {
			got.Write(m.Data)
		}
		if want := map[bool]string{false: "ABC", true: "AC"}[b.Name == "python"]; got.String() != want {
			t.Errorf("%s got %s, want %s", b.Name, got.String(), want)
		}
	}
}
