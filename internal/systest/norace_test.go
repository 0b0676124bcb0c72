//go:build !race

package systest

// raceDetector reports whether the race detector watches this test binary.
const raceDetector = false
