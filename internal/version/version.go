// Package version names the release of this program, and the commit of its source if the
// build recorded it.
package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Release is the version of everything in this repository, and the appVersion of the chart.
const Release = "0.1.0"

// stamped is the version that make release gives to the programs of an archive, such as
// v1.2.3. The linker sets it: -X github.com/dnprelay/dnprelay/internal/version.stamped=v1.2.3.
var stamped string

const (
	commitDigits = 12 // enough to name a commit
	shortMax     = 31 // bytes of a version in the metadata of a member
)

// pseudo is the version that Go makes for a commit without a tag.
var pseudo = regexp.MustCompile(`[-.][0-9]{14}-([0-9a-f]{12})(?:\+|$)`)

// Short returns the release with the commit, as 0.1.0, 0.1.0-0123456789ab or
// 0.1.0-0123456789ab-dirty: at most 31 bytes. Programs of an archive, or those that go install
// took at a tag, have the version of the tag.
func Short() string {
	if stamped != "" {
		return tag(stamped)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
	}
	return short(info.Main.Version, info.Settings)
}

// short makes the version of what go build and go install recorded. Go records the version of
// the module, (devel) where it knows none, and settings only for builds in a repository.
func short(module string, settings []debug.BuildSetting) string {
	var commit, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "-" + s.Value[:min(len(s.Value), commitDigits)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if m := pseudo.FindStringSubmatch(module); m != nil && commit == "" {
		commit = "-" + m[1] // go install …@commit
	} else if m == nil && dirty == "" && strings.HasPrefix(module, "v") {
		return tag(module)
	}
	if commit == "" {
		return Release // built without a repository
	}
	return Release + commit + dirty
}

func tag(version string) string {
	version = strings.TrimPrefix(version, "v")
	return version[:min(len(version), shortMax)]
}

// Long returns Short with the version of Go and the platform.
func Long() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Short(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
