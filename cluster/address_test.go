package cluster

import (
	"net/netip"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for name, want := range map[string]string{
		"relay": "relay 7946", "relay.ns.svc:1": "relay.ns.svc 1", "10.0.0.1": "10.0.0.1 7946", "10.0.0.1:65535": "10.0.0.1 65535",
		"::1": "::1 7946", "[::1]": "::1 7946", "[::1]:5": "::1 5",
		"": "", ":5": "", "relay:": "", "relay:x": "", "relay:0": "", "relay:65536": "", "[::1]:": "", "a:b:c": "", "[relay": "",
	} {
		host, port, err := ParseTarget(name, 7946)
		got := ""
		if err == nil {
			got = host + " " + netip.AddrPortFrom(netip.IPv4Unspecified(), port).String()[len("0.0.0.0:"):]
		}
		if got != want {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestParseBind(t *testing.T) {
	for text, want := range map[string]string{
		":7947": "[::]:7947", "localhost:1": "127.0.0.1:1", "[fd00::1]:2": "[fd00::1]:2", "[::ffff:10.0.0.1]:3": "10.0.0.1:3", "0.0.0.0:0": "0.0.0.0:0",
		"": "", "here": "", "here:1": "", "10.0.0.1": "", "10.0.0.1:": "", "10.0.0.1:65536": "", "::1:5": "",
	} {
		got, err := ParseBind(text, "[::]")
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q: got %v, %v, want %q", text, got, err, want)
		}
	}
}

func TestParseAdvertised(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1:7", "192.0.2.1:8": "192.0.2.1:8", "fd00::2": "[fd00::2]:7", "[fd00::2]": "[fd00::2]:7", "[fd00::2]:9": "[fd00::2]:9",
		"::": "", "0.0.0.0:8": "", "fe80::1%eth0": "", "relay": "", "": "",
	} {
		got, err := ParseAdvertised(text, 7)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q: got %v, %v, want %q", text, got, err, want)
		}
	}
}
