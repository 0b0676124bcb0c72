package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const (
	from   = "../../clients/godot/addons/dnp"
	byHand = "../../clients/godot/godot4"
)

// TestPort is the table of what differs.
func TestPort(t *testing.T) {
	for in, want := range map[string]string{
		"extends Reference":                               "extends RefCounted",
		"export var url = \"\"":                           "@export var url = \"\"",
		"\tif _queue.empty():":                            "\tif _queue.is_empty():",
		"\tvar p = PoolByteArray([4])":                    "\tvar p = PackedByteArray([4])",
		"\tclient.connect(\"linked\", self, \"_a\")":      "\tclient.connect(\"linked\", Callable(self, \"_a\"))",
		"\t\t_flight.remove(i) # 4: _flight.remove_at(i)": "\t\t_flight.remove_at(i)",
		"#\tone # 4: two":                                 "#\ttwo",
	} {
		if got := port(in); got != port("")+want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// addon returns the scripts of the addon for Godot 4 by name.
func addon(t *testing.T) map[string]string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "addons", "dnp")
	for range 2 { // the second time the folder is there
		if err := run(from, to, byHand); err != nil {
			t.Fatal(err)
		}
	}
	return scripts(t, to)
}

// TestAddon wants the scripts of the addon for Godot 3, and in place of some of them those that are written by hand.
func TestAddon(t *testing.T) {
	made, old := addon(t), scripts(t, from)
	hand, err := filepath.Glob(filepath.Join(byHand, "*.gd"))
	if err != nil || len(hand) == 0 {
		t.Fatal(hand, err)
	}
	want := map[string]string{}
	for name, text := range old {
		want[name] = port(text)
	}
	for _, file := range hand {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := old[filepath.Base(file)]; !ok {
			t.Errorf("%s takes the place of no script", file)
		}
		want[filepath.Base(file)] = string(text)
	}
	if !maps.Equal(made, want) {
		t.Errorf("the addon has %q, or other contents; want %q", slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(want)))
	}
}

// scripts returns the scripts of an addon by name.
func scripts(t *testing.T, folder string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.gd"))
	if err != nil || len(names) < 7 {
		t.Fatal(names, err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = string(text)
	}
	return all
}

// old are words of Godot 3 that Godot 4 does not know.
var old = regexp.MustCompile(`\b(PoolByteArray|PoolStringArray|Quat|TYPE_REAL|TYPE_RAW_ARRAY|Reference|Spatial|FuncRef|funcref|subarray|linear_interpolate|to_utf8|instance|yield|WebSocketClient|to_json|parse_json|get_ticks_msec_|JSON\.parse|call_func)\b\(?|\.empty\(\)|(?m:^export var)|\bOS\.get_ticks|\.remove\(`)

// TestNothingOld looks for what the table forgot, also in lines that `make godot4-test` does not run.
func TestNothingOld(t *testing.T) {
	for name, text := range addon(t) {
		for _, word := range old.FindAllString(text, -1) {
			t.Errorf("%s has %q, which Godot 4 does not know", name, word)
		}
	}
}

// absent are what web exports of Godot 3 do not have.
var absent = regexp.MustCompile(`\b(Thread|Mutex|Semaphore|StreamPeerTCP|TCP_Server|UDPServer|PacketPeerUDP|PacketPeerDTLS|NetworkedMultiplayerENet|GDNative|NativeScript|File|Directory|OS\.(execute|delay_msec|delay_usec|get_environment))\b`)

// TestWebExports wants the addon to need nothing that web exports lack: only its carrier for UDP has what they do not. Those of
// Godot 4 are run by `make godot4-test`; there is no engine to run those of Godot 3.
func TestWebExports(t *testing.T) {
	for name, text := range scripts(t, from) {
		words := absent.FindAllString(text, -1)
		if udp := name == "udp.gd"; udp && len(words) == 0 {
			t.Error("udp.gd has no PacketPeerUDP: this test finds nothing")
		} else if !udp && len(words) > 0 {
			t.Errorf("%s has %q, which web exports do not have", name, words)
		}
	}
}
