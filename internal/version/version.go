// Package version names the release of this program, and the commit of its source if the
// build recorded it.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Release is the version of everything in this repository, and the appVersion of the chart.
const Release = "0.1.0"

// commitDigits are enough to name a commit.
const commitDigits = 12

// Short returns the release with the commit, as 0.1.0, 0.1.0-0123456789ab or
// 0.1.0-0123456789ab-dirty: at most 31 bytes.
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

// Long returns Short with the version of Go and the platform.
func Long() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Short(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
