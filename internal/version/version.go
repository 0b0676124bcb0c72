// Package version says what this program is: its release, and the commit that it was
// built from, if the build was told.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Release is the version of everything in this repository, and the appVersion of the chart.
const Release = "0.1.0"

// commitDigits are as many as name a commit for a reader.
const commitDigits = 12

// Short returns the release with the commit, as 0.1.0 or 0.1.0-0123456789ab or
// 0.1.0-0123456789ab-dirty, at most 31 bytes.
func Short() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
	}
	return short(info.Settings)
}

func short(settings []debug.BuildSetting) string {
	var commit, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "-" + s.Value[:min(len(s.Value), commitDigits)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return Release // built without a repository
	}
	return Release + commit + dirty
}

// Long returns what Short does, with the version of Go and the platform.
func Long() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Short(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
