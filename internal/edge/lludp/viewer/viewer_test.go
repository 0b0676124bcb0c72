package viewer

import (
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

func TestObjects(t *testing.T) {
	v := newViewerTest(t)
	tower := newThing("tower", "hp:float32", "pos:vector3f32", "rot:quaternionf32")
	tower.floats[0], tower.floats[1], tower.floats[2] = [4]float64{7}, [4]float64{1, 2, 3}, [4]float64{0, -.6, 0, -.8}
	o := v.Link(tower)
	v.arrives()
	v.want("what is linked is shown when the viewer confirms the region", `ObjectUpdate 1@[129 125 27]/[-0 0 0.6]* "tower\nhp=[7]"`)
	v.waits("the viewer confirmed it, so it is not sent again before the scrub", 9*time.Second)

	tower.floats[1] = [4]float64{2, 2, 3}
	v.Changed(o, []int{1})
	v.waits("a move is sent soon", flushPause, "ImprovedTerseObjectUpdate 1@[130 125 27]")
	tower.floats[1] = [4]float64{3, 2, 3}
	v.Changed(o, []int{1})
	tower.floats[1] = [4]float64{4, 2, 3}
	v.Changed(o, []int{1})
	v.waits("of two moves the newest is sent", flushPause, "ImprovedTerseObjectUpdate 1@[132 125 27]")
	v.waits("and again when the object is at rest, until it is confirmed", settle+flushPause, "ImprovedTerseObjectUpdate 1@[132 125 27]")
	tower.texts[0] = "8"
	v.Changed(o, []int{0})
	v.waits("another text needs the whole object", flushPause, `ObjectUpdate 1@[132 125 27]/[-0 0 0.6]* "tower\nhp=8"`)
	v.Unlink(o)
	v.Changed(o, []int{0})
	v.waits("the object ends", flushPause, "KillObject 1")
	v.waits("once", 30*time.Second)
	v.Unlink(v.Link(tower))
	v.waits("what the viewer never saw does not end", 3*time.Second)
	v.dropped("nothing is wrong", nil)
}

// TestLongLabel: the text over an object has at most 254 bytes, as INTERFACES.md says, because viewers take a length of one
// byte and a zero at the end.
func TestLongLabel(t *testing.T) {
	s := newThing(strings.Repeat("k", 100), "pos:vector3f32", "title:string")
	s.texts[1] = strings.Repeat("t", 300)
	got := label(&Object{state: s, position: 0, rotation: -1})
	if want := s.key + "\ntitle=" + strings.Repeat("t", 254-len("\ntitle=")-100); got != want {
		t.Errorf("the label has %d bytes: %q", len(got), got)
	}
	b := put(nil, text1(strings.Repeat("x", 300)))
	if len(b) != 256 || b[0] != 255 || b[254] != 'x' || b[255] != 0 {
		t.Errorf("a long text is %d bytes: %x", len(b), b)
	}
}

// TestUnconfirmed has a viewer that confirms nothing: values are repeated, and the newest at that.
func TestUnconfirmed(t *testing.T) {
	v := newViewerTest(t)
	v.arrives()
	v.want("an empty region")
	crate := newThing("crate", ":vector3f32")
	crate.readOnly = true
	o := v.Link(crate)
	v.deaf = true
	v.pass(flushPause)
	if n := v.Stats().Objects; n != 1 {
		t.Fatalf("%d objects were sent, want one", n)
	}
	crate.floats[0] = [4]float64{1, 0, 0}
	v.Changed(o, []int{0})
	v.deaf = false
	v.waits("the move is sent, and the object again when it is not confirmed in time, with its new place", 600*time.Millisecond,
		"ImprovedTerseObjectUpdate 1@[129 128 25]", `ObjectUpdate 1@[129 128 25] "crate"`)
	v.deaf = true
	v.Unlink(o)
	v.pass(100 * time.Millisecond)
	v.deaf = false
	v.waits("KillObject is repeated, and once more because the object may have come after the first", 2*time.Second, "KillObject 1", "KillObject 1")
}

func TestMessages(t *testing.T) {
	v := newViewerTest(t)
	v.Say([]byte("early"))
	bodies := golden(t)
	v.arrives()
	v.want("what was said before waits", "ChatFromSimulator early")
	v.Say([]byte("hello"))
	v.Say([]byte{0, 1, 2})
	v.Say([]byte(strings.Repeat("a", 1000)))
	v.Say([]byte(strings.Repeat("b", textMax+1)))
	v.Say(make([]byte, messageMax+1))
	v.waits("texts are chat, others are in parts", time.Second, "ChatFromSimulator hello", `GenericMessage dnp.message "5 0 1" "\x00\x01\x02"`,
		"ChatFromSimulator "+strings.Repeat("a", 1000),
		`GenericMessage dnp.message "8 0 2" "bbbbbbbbbbbbbbbbbbbb" "bbbbbbbbbbbbbbbbbbbb" "bbbbbbbbbbbbbbbbbbbb" "bbbbbbbbbbbbbbbbbbbb"`,
		`GenericMessage dnp.message "8 1 2" "bbbbbbbbbbbbbbbbbbbb"`)
	v.says("chat is a message", chatFromViewer, bodies["ChatFromViewer"], "send hällo")
	typing := append([]byte(nil), bodies["ChatFromViewer"]...)
	typing[len(typing)-5] = 4
	v.says("typing is none", chatFromViewer, typing)
	v.says("a message in parts", wire.GenericMessage, appendGeneric(nil, ada, session, methodMessage, [][]byte{{1, 0}, {2}}), "send \x01\x00\x02")
	v.says("the region", requestRegionInfo, v.identified(), "RegionInfo")
	v.says("the map", mapNameRequest, bodies["MapNameRequest"], "MapBlockReply")
	v.says("clothes", agentWearablesRequest, v.identified(), "AgentWearablesUpdate")
	v.says("the agent", agentDataRequest, v.identified(), "AgentDataUpdate")
	v.says("names", uuidNameRequest, bodies["UUIDNameRequest"], "UUIDNameReply")
	v.says("an unknown message is acknowledged and ignored", 0xFFFF0100, v.identified())
	v.dropped("a message that is too long, and one that is not known", map[DropReason]uint64{DropLong: 1, DropUnknown: 1})
	v.says("the end", logoutRequest, v.identified(), "LogoutReply", "leave")
	v.waits("the circuit ends when that is confirmed", 10*time.Millisecond)
	if !v.Over() || !v.peer.Closed() {
		t.Error("the circuit goes on")
	}
}

// TestOutbox has a viewer that takes no messages: what the game says is bounded.
func TestOutbox(t *testing.T) {
	v := newViewerTest(t)
	v.arrives()
	v.deaf = true
	const waiting, inFlight = 256, 128 // as SECURITY.md says
	for range waiting + 10 {
		v.Say([]byte("x"))
	}
	if n := v.Stats().Drops[DropOutbox]; n < 8 || n > 10 {
		t.Errorf("%d messages were dropped, want all beyond %d", n, waiting)
	}
	v.pass(100 * time.Millisecond)
	if n, _ := v.circuit.InFlight(); n != inFlight {
		t.Errorf("%d packets are on their way to a viewer that confirms none, want %d", n, inFlight)
	}
	v.deaf = false
	v.pass(20 * time.Second)
	if n := len(v.log); n < waiting-2 {
		t.Errorf("%d messages arrived", n)
	}
	v.deaf = true
	v.Say([]byte("lost"))
	for range 300 { // the viewer pings, or else the circuit would end
		v.pass(time.Second)
		v.Viewer.Receive(v.now, wire.Packet{Seq: wire.Seq(100000 + v.now.Unix()), Number: wire.StartPingCheck, Body: wire.StartPing{}.Append(nil)}.Append(nil), fromEdge{v})
	}
	if v.Over() || v.Stats().GivenUp == 0 {
		t.Errorf("%d messages were given up, want the one that the viewer did not confirm", v.Stats().GivenUp)
	}
}

func TestWrites(t *testing.T) {
	v := newViewerTest(t)
	door := newThing("door", "pos:vector3f32", "open:uint8", "name:string", "rot:quaternionf32")
	door.floats[3] = [4]float64{0, 0, 0, 1}
	wall := newThing("wall", "pos:vector3f32")
	wall.readOnly = true
	od := v.Link(door)
	v.Link(wall)
	v.arrives()
	v.want("two objects", `ObjectUpdate 1@[128 128 25]* "door\nopen=[0]\nname=[0]" 2@[128 128 25] "wall"`)

	write := func(id uint32, kind uint8, numbers ...float32) []byte {
		b := put(v.identified(1), id, kind, u8(4*len(numbers)))
		for _, f := range numbers {
			b = put(b, f)
		}
		return b
	}
	v.pass(flushPause)
	v.says("the viewer moves the door", multipleObjectUpdate, write(1, moveTo|moveTurn, 130, 127, 26, 0, 0, .6), "set door 0 [2 1 1]", "set door 3 [0 0.6000000238418579 0 0.799999982118606]")
	door.floats[0] = [4]float64{2, 1, 1}
	v.Written(od)
	v.waits("and gets what it is then", flushPause, `ObjectUpdate 1@[130 127 26]* "door\nopen=[0]\nname=[0]"`)
	v.says("the viewer moves what it may not", multipleObjectUpdate, write(2, moveTo, 1, 2, 3), `ObjectUpdate 2@[128 128 25] "wall"`)
	v.says("it scales", multipleObjectUpdate, write(1, moveScale, 1, 1, 1))
	v.waits("which no state has", flushPause, `ObjectUpdate 1@[130 127 26]* "door\nopen=[0]\nname=[0]"`)
	v.says("it moves what is not there", multipleObjectUpdate, write(9, moveTo, 1, 2, 3))
	set := func(parameters ...string) []byte {
		var list [][]byte
		for _, p := range parameters {
			list = append(list, []byte(p))
		}
		return appendGeneric(nil, ada, session, methodSet, list)
	}
	v.says("it opens the door", wire.GenericMessage, set("door", "open", "1"), "set door 1 1")
	v.says("by index", wire.GenericMessage, set("door", "2", "Ada's"), "set door 2 Ada's")
	v.says("a vector", wire.GenericMessage, set("door", "pos", "[1 2.5 3]"), "set door 0 [1 2.5 3]")
	for _, bad := range [][]byte{set("door", "open", "x"), set("door", "pos", "1 2"), set("door", "none", "1"), set("none", "open", "1"), set("wall", "pos", "1 2 3")} {
		v.says("nothing comes of it", wire.GenericMessage, bad)
	}
	v.dropped("what cannot be written", map[DropReason]uint64{DropReadOnly: 7})
}

func TestRepair(t *testing.T) {
	v := newViewerTest(t)
	v.Link(newThing("crate", ":vector3f32"))
	v.arrives()
	v.pass(flushPause)
	v.log = nil
	b := put(v.identified(2), u8(0), u32(1), u8(0), u32(99))
	v.says("the viewer lacks an object, and has one that is not there", requestMultiple, b, "KillObject 99", `ObjectUpdate 1@[128 128 25]* "crate"`)
}

func TestStatesWithoutAPlace(t *testing.T) {
	v := newViewerTest(t)
	clock := newThing("clock", "seconds:uint32", "text:string")
	clock.texts[1] = "noon"
	o := v.Link(clock)
	v.arrives()
	v.want("it is told", `GenericMessage dnp.state "1" "clock" "seconds=[0]" "text=noon"`)
	clock.floats[0][0] = 1
	v.Changed(o, []int{0})
	v.waits("and told again when it changes", 50*time.Millisecond, `GenericMessage dnp.state "1" "clock" "seconds=[1]" "text=noon"`)
	v.Unlink(o)
	v.waits("and its end", 50*time.Millisecond, `GenericMessage dnp.gone "1"`)
}

func TestOwnState(t *testing.T) {
	v := newViewerTest(t)
	v.arrives()
	update := golden(t)["AgentUpdate"]
	v.says("the viewer tells where it is", wire.AgentUpdate, update, "own [-127 -22 126] [0 0.6 0 0.8] 5")
	v.says("and again", wire.AgentUpdate, update)
}

func TestPlayersOnTheMap(t *testing.T) {
	v := newViewerTest(t)
	p := newThing("viewer Bob B", "pos:vector3f32")
	o := v.Link(p)
	v.arrives()
	v.waits("a player is on the map, which is sent some times because nothing acknowledges it", 9*time.Second,
		"CoarseLocationUpdate", `ObjectUpdate 1@[128 128 25]* "viewer Bob B"`, "CoarseLocationUpdate", "CoarseLocationUpdate", "CoarseLocationUpdate")
	v.Unlink(o)
	v.waits("and leaves it", 100*time.Millisecond, "KillObject 1", "CoarseLocationUpdate")
}

// TestForged has somebody send in the name of the viewer without knowing its session.
func TestForged(t *testing.T) {
	v := newViewerTest(t)
	send := func(p wire.Packet) { v.Viewer.Receive(v.now, p.Append(nil), fromEdge{v}) }
	wrong := opening
	wrong.Code++
	send(wire.Packet{Flags: wire.FlagReliable, Seq: 1, Number: wire.UseCircuitCode, Body: wrong.Append(nil)})
	send(wire.Packet{Flags: wire.FlagReliable, Seq: 1, Number: wire.AgentUpdate, Body: golden(t)["AgentUpdate"]})
	if v.circuit != nil || v.sizes != 0 {
		t.Fatalf("the circuit opened, %d bytes were answered", v.sizes)
	}
	v.arrives()
	before := v.sizes
	for i := range 200 {
		send(wire.Packet{Flags: wire.FlagReliable, Seq: wire.Seq(i), Number: wire.UseCircuitCode, Body: wrong.Append(nil)})
		send(wire.Packet{Flags: wire.FlagReliable, Seq: wire.Seq(i), Number: logoutRequest, Body: identity{ada, other}.append(nil)})
		send(wire.Packet{Flags: wire.FlagReliable, Seq: wire.Seq(i), Number: wire.ObjectUpdate, Body: v.identified()})
	}
	if v.sizes != before {
		t.Errorf("%d bytes were answered", v.sizes-before)
	}
	v.says("the viewer goes on, and its numbers are free", chatFromViewer, golden(t)["ChatFromViewer"], "send hällo")
	v.dropped("forgeries", map[DropReason]uint64{DropForged: 401, DropStage: 1, DropTrusted: 200})
}

func TestKick(t *testing.T) {
	v := newViewerTest(t)
	v.arrives()
	v.Kick(v.now, "the region restarts", fromEdge{v})
	v.waits("the viewer is told why", 10*time.Millisecond, "KickUser the region restarts")
	if !v.Over() {
		t.Error("the circuit goes on after the viewer confirmed")
	}
	v = newViewerTest(t)
	v.arrives()
	v.deaf = true
	v.Kick(v.now, "the region restarts", fromEdge{v})
	v.pass(leaveTime)
	if !v.Over() {
		t.Error("the circuit waits for a viewer that does not answer")
	}
	v = newViewerTest(t)
	v.Kick(v.now, "the login expired", fromEdge{v})
	if !v.Over() {
		t.Error("the circuit never opened, and goes on")
	}
}

func TestSilentViewer(t *testing.T) {
	v := newViewerTest(t)
	v.arrives()
	v.deaf = true
	v.peer, _ = lludp.New(v.now, lludp.Config{PingInterval: time.Hour, Timeout: time.Hour})
	v.pass(61 * time.Second)
	v.want("a viewer that says nothing for a minute is gone", "leave")
	if !v.Over() {
		t.Error("the circuit goes on")
	}
}

// TestArrivesNever has somebody open a circuit with a valid code, and say no more: perhaps from an address that is not theirs.
func TestArrivesNever(t *testing.T) {
	v := newViewerTest(t)
	v.Link(newThing("crate", ":vector3f32"))
	p := wire.Packet{Flags: wire.FlagReliable, Seq: 1, Number: wire.UseCircuitCode, Body: opening.Append(nil)}.Append(nil)
	v.deaf = true
	v.Viewer.Receive(v.now, p, fromEdge{v})
	if v.sizes > 15 {
		t.Errorf("%d bytes were answered to %d", v.sizes, len(p))
	}
	v.pass(2 * time.Minute)
	if !v.Over() || v.sizes > len(p) {
		t.Errorf("%d bytes were sent for %d; over: %t", v.sizes, len(p), v.Over())
	}
}

// TestLateObject has the network keep an ObjectUpdate while a move of the object arrives, or gets lost: the viewer ignores moves of what it
// does not know, and acknowledges their packets.
func TestLateObject(t *testing.T) {
	for _, lost := range []bool{false, true} {
		v := newViewerTest(t)
		v.arrives()
		crate := newThing("crate", ":vector3f32")
		v.holding = true
		o := v.Link(crate)
		v.pass(flushPause)
		v.holding, v.deaf = false, lost
		crate.floats[0] = [4]float64{1, 0, 0}
		v.Changed(o, []int{0})
		v.pass(settle + 2*flushPause) // the move is not repeated: first the viewer has to know the object
		if n := v.Stats().Moves; n != 1 {
			t.Errorf("%d moves were sent, want one", n)
		}
		v.deaf, v.log = false, nil
		v.release()
		v.waits("the object comes late, with its old place, and then moves", 100*time.Millisecond,
			`ObjectUpdate 1@[128 128 25]* "crate"`, "ImprovedTerseObjectUpdate 1@[129 128 25]")
	}
}
