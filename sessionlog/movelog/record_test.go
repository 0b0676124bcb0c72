package movelog

import (
	"testing"

	"github.com/dnprelay/dnprelay/internal/format"
)

// TestRecordOfOthers: the last release takes a record of this package for one of another release, which it
// leaves alone, and not for a damaged write, which ends the session.
func TestRecordOfOthers(t *testing.T) {
	if first := (&record{kind: data}).encode()[0]; !format.Other(first) {
		t.Errorf("a record begins with %d, which is no form of another release", first)
	}
}
