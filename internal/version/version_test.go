package version

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
)

func TestShort(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for _, c := range []struct {
		reason   string
		settings []debug.BuildSetting
		want     string
	}{
		{"built with -buildvcs=false, as images are", nil, Release},
		{"built from a commit", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, Release + "-0123456789ab"},
		{"built from a tree with changes", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}, Release + "-0123456789ab-dirty"},
	} {
		got := short(c.settings)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
		if len(got) > cluster.VersionMax {
			t.Errorf("%s: %q is longer than the %d bytes of a member's version", c.reason, got, cluster.VersionMax)
		}
	}
}

// TestChart requires that the chart installs the image of this release.
func TestChart(t *testing.T) {
	text, err := os.ReadFile("../../helm/relay/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nappVersion: "+Release+"\n") {
		t.Errorf("the appVersion is not %s:\n%s", Release, text)
	}
}
