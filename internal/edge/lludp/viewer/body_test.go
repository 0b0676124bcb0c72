package viewer

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

var (
	ada     = wire.UUID(unhex("11111111222233334444555555555555"))
	session = wire.UUID(unhex("aaaaaaaabbbbccccddddeeeeeeeeeeee"))
	other   = wire.UUID(unhex("0102030405060708090a0b0c0d0e0f10"))
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// golden returns bodies that node-metaverse 0.8.16 wrote, by name of the message; vectors.js in ../testdata/bot makes them.
func golden(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/bodies.json")
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]string
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	bodies := make(map[string][]byte, len(list))
	for name, body := range list {
		bodies[name] = unhex(body)
	}
	return bodies
}

func TestBodiesOut(t *testing.T) {
	want := golden(t)
	region := objectUUID("region Lobby")
	object := objectHeader(nil)
	object[objectCount] = 1
	object = appendObject(object, 7, other, 3, [3]float32{1, 2, 3}, [4]float32{0, .5, 0, .8}, movable, "tower\nhp=7")
	for _, c := range []struct {
		name string
		got  []byte
	}{
		{"ObjectUpdate", object},
		{"KillObject", appendKill(nil, []uint32{7, 65536})},
		{"RegionHandshake", bytes.Replace(appendRegionHandshake(nil, "Lobby"), region[:], make([]byte, 16), 1)},
		{"RegionInfo", appendRegionInfo(nil, ada, session, "Lobby")},
		{"MapBlockReply", appendMapBlock(nil, ada, 2, "Lobby")},
		{"AgentMovementComplete", appendMovementComplete(nil, ada, session, 1000)},
		{"AgentWearablesUpdate", appendWearables(nil, ada, session)},
		{"AgentDataUpdate", appendAgentData(nil, ada, "Ada", "Byron")},
		{"UUIDNameReply", appendNames(nil, []name{{ada, "Ada", "Byron"}, {other, "?", ""}})},
		{"CoarseLocationUpdate", appendCoarse(nil, []player{{ada, [3]byte{1, 2, 3}}, {other, [3]byte{255, 0, 255}}}, -1)},
		{"ChatFromSimulator", bytes.Replace(appendChat(nil, "Lobby", "hällo"), slice(objectUUID("Lobby")), make([]byte, 16), 1)},
		{"GenericMessage", appendGeneric(nil, ada, session, methodGone, [][]byte{[]byte("7"), {0, 255}})},
		{"LogoutReply", appendLogoutReply(nil, ada, session)},
		{"KickUser", appendKick(nil, ada, session, "bye")},
	} {
		if !bytes.Equal(c.got, want[c.name]) {
			t.Errorf("%s is\n%x, node-metaverse writes\n%x", c.name, c.got, want[c.name])
		}
	}
}

// TestTerse spells the bytes of a move, which node-metaverse does not write, but reads as these numbers.
func TestTerse(t *testing.T) {
	want := unhex("2c" + "07000000" + "0000" + "0000803f" + "00000040" + "00004040" + "008000800080" + "008000800080" + "0080" + "ffff" + "0000" + "ffbf" + "008000800080" + "0000")
	if got := appendTerse([]byte{}, 7, [3]float32{1, 2, 3}, [4]float32{0, 1, -1, .5}); !bytes.Equal(got, want) {
		t.Errorf("a move is\n%x, want\n%x", got, want)
	}
	for f, want := range map[float32]uint16{-2: 0, 2: 65535, 0: 32768} {
		if got := unit(f); got != want {
			t.Errorf("%g is %d, want %d", f, got, want)
		}
	}
}

func slice(u wire.UUID) []byte { return u[:] }

func TestSizes(t *testing.T) {
	if n := len(appendObject(nil, 1, other, 1, [3]float32{}, [4]float32{}, 0, "abc")); n != objectSize+3 {
		t.Errorf("an object has %d bytes without its text, want %d", n-3, objectSize)
	}
	if n := len(appendTerse(nil, 1, [3]float32{}, [4]float32{})); n != 47 {
		t.Errorf("a move has %d bytes, want 47", n)
	}
	if n := len(appendGeneric(nil, ada, session, "", nil)); n != genericSize+1 {
		t.Errorf("a generic message has %d bytes, want %d", n, genericSize+1)
	}
	var full []player
	for range townMax {
		full = append(full, player{})
	}
	if n := len(appendCoarse(nil, full, -1)); n > bodyMax {
		t.Errorf("a map has %d bytes, at most %d fit", n, bodyMax)
	}
	var names []name
	for range namesIn {
		names = append(names, name{first: string(make([]byte, nameMax)), last: string(make([]byte, 31))})
	}
	if n := len(appendNames(nil, names)); n > bodyMax {
		t.Errorf("names have %d bytes, at most %d fit", n, bodyMax)
	}
}

// parsers parse bodies of viewers, for the tests of truncation and the fuzz target.
var parsers = map[string]func(p []byte) (any, error){
	"CompleteAgentMovement": identifiedBody(func(r reader) (any, error) { return pair(parseMovement(r)) }),
	"AgentThrottle": identifiedBody(func(r reader) (any, error) {
		generation, bits, err := parseThrottle(r)
		return []float64{float64(generation), bits}, err
	}),
	"MultipleObjectUpdate":   identifiedBody(func(r reader) (any, error) { return pair(parseMoves(nil, r)) }),
	"RequestMultipleObjects": identifiedBody(func(r reader) (any, error) { return pair(parseRequested(nil, r)) }),
	"ChatFromViewer": identifiedBody(func(r reader) (any, error) {
		message, kind, channel, err := parseChat(r)
		return []any{message, kind, channel}, err
	}),
	"MapNameRequest": identifiedBody(func(r reader) (any, error) {
		flags, name, err := parseMapName(r)
		return []any{flags, name}, err
	}),
	"UUIDNameRequest": func(p []byte) (any, error) { return pair(parseNames(reader{p: p})) },
	"AgentUpdate":     identifiedBody(func(r reader) (any, error) { return pair(parseAgent(r)) }),
	"GenericMessage": identifiedBody(func(r reader) (any, error) {
		method, parameters, err := parseGeneric(r)
		return []any{method, parameters}, err
	}),
}

func pair[T any](v T, err error) (any, error) { return v, err }

func identifiedBody(parse func(reader) (any, error)) func(p []byte) (any, error) {
	return func(p []byte) (any, error) {
		_, r, err := identify(p)
		if err != nil {
			return nil, err
		}
		return parse(r)
	}
}

func TestBodiesIn(t *testing.T) {
	bodies := golden(t)
	for name, want := range map[string]any{
		"CompleteAgentMovement":  uint32(4711),
		"AgentThrottle":          []float64{2, 7021},
		"MultipleObjectUpdate":   []move{{id: 7, kind: moveTo, position: [3]float32{1, 2, 3}}, {id: 8, kind: moveTurn, rotation: [3]float32{0, 0, .6}}, {id: 9, kind: moveTo | moveScale, position: [3]float32{4, 5, 6}}},
		"RequestMultipleObjects": []uint32{7, 65536},
		"ChatFromViewer":         []any{"hällo", uint8(chatSay), int32(0)},
		"MapNameRequest":         []any{uint32(2), "Lobby"},
		"UUIDNameRequest":        []wire.UUID{ada, other},
		"AgentUpdate":            agent{body: [3]float32{0, 0, .6}, camera: [3]float32{1, 2, 3}, keys: 5},
		"GenericMessage":         []any{methodGone, [][]byte{[]byte("7"), {0, 255}}},
	} {
		body := bodies[name]
		got, err := parsers[name](body)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", name, got, err, want)
		}
		if name != "UUIDNameRequest" {
			if id, _, err := identify(body); err != nil || id != (identity{ada, session}) {
				t.Errorf("%s is of %+v, %v", name, id, err)
			}
		}
		for n := range body {
			if _, err := parsers[name](body[:n]); err == nil {
				t.Errorf("%s parses with %d of %d bytes", name, n, len(body))
			}
		}
	}
}

// FuzzBodies: no body makes a parser panic, or read beyond its end.
func FuzzBodies(f *testing.F) {
	for name, body := range golden(f) {
		if parsers[name] != nil {
			f.Add(name, body)
		}
	}
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		parse := parsers[name]
		if parse == nil || len(body) > wire.ExpandedMax {
			return
		}
		if _, err := parse(body); err == nil {
			if _, err := parse(append(bytes.Clone(body), 0)); err != nil {
				t.Errorf("%s parses, and not with another byte: %v", name, err)
			}
		}
	})
}
