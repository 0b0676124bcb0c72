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
	clean, dirty := debug.BuildSetting{Key: "vcs.modified", Value: "false"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, c := range []struct {
		reason   string
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{"built with -buildvcs=false, as images are", "(devel)", nil, Release},
		{"built from a commit", "v0.0.0-20260102030405-0123456789ab", []debug.BuildSetting{revision, clean}, Release + "-0123456789ab"},
		{"built from a tree with changes", "v0.0.0-20260102030405-0123456789ab+dirty", []debug.BuildSetting{revision, dirty}, Release + "-0123456789ab-dirty"},
		{"built from a commit after a tag", "v1.2.4-0.20260102030405-0123456789ab", []debug.BuildSetting{revision, clean}, Release + "-0123456789ab"},
		{"built from a tag", "v1.2.3", []debug.BuildSetting{revision, clean}, "1.2.3"},
		{"built from a tag with changes", "v1.2.3+dirty", []debug.BuildSetting{revision, dirty}, Release + "-0123456789ab-dirty"},
		{"go install at a tag", "v1.2.3", nil, "1.2.3"},
		{"go install at a candidate", "v1.2.3-rc.1", nil, "1.2.3-rc.1"},
		{"go install at a commit", "v1.2.4-0.20260102030405-0123456789ab", nil, Release + "-0123456789ab"},
		{"a long version", "v1.2.3-" + strings.Repeat("x", 99), nil, "1.2.3-" + strings.Repeat("x", cluster.VersionMax-7)},
	} {
		got := short(c.module, c.settings)
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
