package format

import "testing"

// TestToWrite checks that a node writes what all members read, and nothing that it does not
// know itself.
func TestToWrite(t *testing.T) {
	for lowest, want := range map[uint8]uint8{0: Oldest, Newest: Newest, Newest + 1: Newest, 255: Newest} {
		if got := ToWrite(func() uint8 { return lowest }); got != want {
			t.Errorf("members read format %d at least: it writes %d, want %d", lowest, got, want)
		}
	}
	if got := ToWrite(nil); got != Oldest {
		t.Errorf("without members it writes format %d, want the oldest", got)
	}
	for n, want := range map[uint8]bool{0: false, Newest: false, Newest + 1: true, Max: true, Max + 1: false} {
		if Other(n) != want {
			t.Errorf("%d is a format of others: %v, want %v", n, Other(n), want)
		}
	}
}
