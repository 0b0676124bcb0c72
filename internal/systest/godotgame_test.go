package systest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/buildtest"
)

// runProject runs a project with a real engine, or skips the test.
func runProject(t *testing.T, dir string, env ...string) *process {
	t.Helper()
	godot, err := exec.LookPath("godot3-server")
	if err != nil {
		t.Skip("godot3-server is not installed: apt-get install godot3-server")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(godot, "--path", dir)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "HOME="+cmd.Dir), env...)
	return startCommand(t, cmd)
}

// A gameReport is the latest line in which a game says where its nodes are.
type gameReport map[string][2]float64

func reported(text string) (at gameReport, rest string) {
	i := strings.LastIndex(text, "REPORT ")
	if i < 0 {
		return nil, ""
	}
	line, _, whole := strings.Cut(text[i+len("REPORT "):], "\n")
	d := json.NewDecoder(strings.NewReader(line))
	if !whole || d.Decode(&at) != nil {
		return nil, ""
	}
	return at, line[d.InputOffset():]
}

// positions asks `dnpctl get` where states are, seen from above.
func (s *stack) positions() gameReport {
	s.Helper()
	out, err := exec.Command(buildtest.Program(s, "dnpctl"), "get", "s", "--nats-url", s.nats.URL()).Output()
	if err != nil {
		s.Fatalf("dnpctl get: %v: %s", err, out)
	}
	var answer struct {
		States []struct {
			Key    string
			Values []struct{ Value json.RawMessage }
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		s.Fatalf("dnpctl get prints %s: %v", out, err)
	}
	at := gameReport{}
	for _, state := range answer.States {
		var pos [3]float64
		if json.Unmarshal(state.Values[0].Value, &pos) == nil {
			at[state.Key] = [2]float64{pos[0], pos[2]}
		}
	}
	return at
}

// TestGodotGame runs the game without a screen. Its things are where `dnpctl get` says, it spawns and frees them, and it
// shows the lamp and what is said.
func TestGodotGame(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	npc := func(n int, x, z float64) string {
		return fmt.Sprintf(`{"op":"put","key":"npc.%d","values":[{"name":"pos","type":"vector3f32","value":[%g,0,%g]}]}`, n, x, z)
	}
	s.publish(`{"op":"put","key":"lamp","access":"read-write","values":[{"name":"on","type":"uint8","value":0},{"name":"colour","type":"vector3f32","value":[1,0.5,0]}]}`)
	for n := range 5 {
		s.publish(npc(n, float64(n), -1))
	}
	game := runProject(t, "../../examples/godot/game", "URL=udp://"+s.edge.Addrs()[0].String(), "REPORT=1")
	same := func(n int, rest string) {
		t.Helper()
		want := s.positions()
		if len(want) != n {
			t.Fatalf("dnpctl get knows %d positions, want %d", len(want), n)
		}
		eventually(t, fmt.Sprintf("the game shows %v, and says %q", want, rest), func() bool {
			game.clean()
			got, text := reported(game.output.String())
			for key, at := range want {
				if math.Abs(got[key][0]-at[0]) > 0.01 || math.Abs(got[key][1]-at[1]) > 0.01 {
					return false
				}
			}
			return len(got) == n+1 && strings.Contains(text, rest) // the lamp has a place of its own
		})
	}
	same(5, "lamp 0 said")
	for n := range 5 {
		s.publish(npc(n, -float64(n), 2.5))
	}
	s.publish(`{"op":"set","key":"lamp","values":{"on":1}}`)
	s.publish(`{"op":"remove","key":"npc.2"}`)
	if err := s.game.Publish(bus.Msg{Subject: s.subjects.ToAll("s"), Data: []byte("well met")}); err != nil {
		t.Fatal(err)
	}
	same(4, "lamp 1 said well met")
}

// TestGodotFlock runs the flock beside a game: its boids move, and what a player says returns to all.
func TestGodotFlock(t *testing.T) {
	t.Parallel()
	s := newStack(t, local(wire.Denetwork))
	s.publish(lampPut) // the relay holds the shard
	engine(t, "../../examples/godot/flock.gd", "NATS="+s.port, "SPACE=s", "BOIDS=20")
	game := runProject(t, "../../examples/godot/game", "URL=udp://"+s.edge.Addrs()[0].String(), "REPORT=1")
	player := engine(t, godotClient+"/test/player.gd", "EDGE=udp://"+s.edge.Addrs()[0].String())
	player.says("opened")
	var first gameReport
	eventually(t, "all boids are there", func() bool {
		game.clean()
		first, _ = reported(game.output.String())
		return len(first) >= 20
	})
	eventually(t, "all boids move", func() bool {
		at, _ := reported(game.output.String())
		return len(at) >= 20 && !slices.ContainsFunc(boids(at), func(key string) bool { return at[key] == first[key] })
	})
	if err := s.game.Publish(bus.Msg{Subject: s.subjects.ToAll("s"), Data: []byte("g0")}); err != nil { // the player answers c0
		t.Fatal(err)
	}
	eventually(t, "the game shows what the player says", func() bool {
		_, text := reported(game.output.String())
		return strings.Contains(text, ": c0")
	})
}

func boids(at gameReport) (keys []string) {
	for key := range at {
		if strings.HasPrefix(key, "boid.") {
			keys = append(keys, key)
		}
	}
	return keys
}

// godotProbe prints where the things of the page's script are.
const godotProbe = `extends Node
func _process(_delta):
	for dnp in get_tree().current_scene.get_children():
		if dnp.name.begins_with("ball"):
			print("the ball is at ", dnp.position.round())
`

// TestGodotReadme makes a project of the page for the addon as it is written, and runs it beside `relay dev`: something moves.
func TestGodotReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(godotClient + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```gdscript\n(.*?)```").FindAllSubmatch(page, -1)
	command := regexp.MustCompile("`bin/relay dev ([^`]*)`").FindSubmatch(page)
	if len(blocks) != 2 || command == nil {
		t.Fatalf("the page has %d scripts and the command %q; want 2 and one", len(blocks), command)
	}
	if n := strings.Count(string(blocks[0][1]), "\n"); n > 12 {
		t.Errorf("the first script has %d lines, want 10 beside its head", n)
	}
	relay := dev(t, strings.Fields(string(command[1]))...)
	relay.says("dnpctl watch")
	url := regexp.MustCompile(`udp://\S+`).FindString(relay.output.String())
	for i, b := range blocks {
		script := strings.Replace(string(b[1]), "udp://127.0.0.1:3413", url, 1)
		if i == 1 {
			script = "extends Node2D\n" + strings.Replace(script, "the token of the game's service", "", 1)
		}
		dir := t.TempDir()
		if err := os.CopyFS(filepath.Join(dir, "addons"), os.DirFS(godotClient+"/addons")); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"main.gd": script, "probe.gd": godotProbe,
			"thing.tscn":    "[gd_scene format=2]\n\n[node name=\"thing\" type=\"Sprite\"]\n",
			"main.tscn":     "[gd_scene load_steps=2 format=2]\n\n[ext_resource path=\"res://main.gd\" type=\"Script\" id=1]\n\n[node name=\"main\" type=\"Node2D\"]\nscript = ExtResource( 1 )\n",
			"project.godot": "config_version=4\n\n[application]\n\nrun/main_scene=\"res://main.tscn\"\n\n[autoload]\n\nprobe=\"*res://probe.gd\"\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := runProject(t, dir)
		if i == 1 {
			p.says("lamp [on, colour] [")
			p.clean()
			continue
		}
		places := regexp.MustCompile(`the ball is at \S+ \S+`)
		eventually(t, "the ball moves", func() bool {
			p.clean()
			at := places.FindAllString(p.output.String(), -1)
			slices.Sort(at)
			return len(slices.Compact(at)) >= 10
		})
	}
}
