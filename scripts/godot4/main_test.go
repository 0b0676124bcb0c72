package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const (
	from = "../../clients/godot/addons/dnp"
	to   = "../../clients/godot/godot4/addons/dnp"
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

// TestCurrent wants the addon for Godot 4 to be what the program makes of that for Godot 3.
func TestCurrent(t *testing.T) {
	files, err := portAll(from)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 6 {
		t.Fatalf("%d files, want at least 6", len(files))
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s is not what `make godot4` writes: %v", filepath.Join(to, name), err)
		}
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
		all[name] = string(text)
	}
	return all
}

// old are words of Godot 3 that Godot 4 does not know.
var old = regexp.MustCompile(`\b(PoolByteArray|PoolStringArray|Quat|TYPE_REAL|TYPE_RAW_ARRAY|Reference|Spatial|FuncRef|funcref|subarray|linear_interpolate|to_utf8|instance|yield|WebSocketClient|to_json|parse_json|get_ticks_msec_|JSON\.parse|call_func)\b\(?|\.empty\(\)|(?m:^export var)|\bOS\.get_ticks|\.remove\(`)

// TestNothingOld looks for what the table forgot, also in lines that `make godot4-test` does not run.
func TestNothingOld(t *testing.T) {
	for name, text := range scripts(t, to) {
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
		if udp := filepath.Base(name) == "udp.gd"; udp && len(words) == 0 {
			t.Error("udp.gd has no PacketPeerUDP: this test finds nothing")
		} else if !udp && len(words) > 0 {
			t.Errorf("%s has %q, which web exports do not have", name, words)
		}
	}
}
