package config

import (
	"slices"
	"strings"
	"testing"
)

func TestForward(t *testing.T) {
	for name, c := range map[string]struct {
		forward Forward
		want    []string // start of each problem
	}{
		"default":   {Forward{ForwardListen: ":7947"}, nil},
		"a pod":     {Forward{ForwardListen: "[::]:7947", ForwardAdvertise: "fd00::1"}, nil},
		"both":      {Forward{ForwardListen: "127.0.0.1:0", ForwardAdvertise: "192.0.2.1:1"}, nil},
		"all wrong": {Forward{ForwardListen: "7947", ForwardAdvertise: "0.0.0.0"}, []string{"--forward-listen: want", "--forward-advertise: want"}},
	} {
		if got := c.forward.Problems(); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
