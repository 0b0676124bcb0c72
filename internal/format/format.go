// Package format counts the forms of everything that nodes store or tell each other and that
// another release may read: writes of session logs, lease records, keyframes, gossip metadata.
//
// Two releases run side by side during a rolling upgrade, so a program reads the formats from
// Oldest to Newest and tells the others its Newest in its gossip metadata. It writes the newest
// format that all members read ([ToWrite]). A record of a format that it does not know belongs
// to others: it is left alone, and never counts as damaged. sessionlog/DESIGN.md has the rule
// and what to do to change a format.
package format

// The formats that this program reads.
const (
	Oldest = 1
	Newest = 1

	// Max is the highest number that may be a format; a higher one is damage.
	Max = 31
)

// ToWrite returns the form of records to write, given the source of the lowest format that all
// members read. A nil source stands for Oldest.
func ToWrite(lowest func() uint8) uint8 {
	if lowest == nil {
		return Oldest
	}
	return min(max(lowest(), Oldest), Newest)
}

// Other reports whether a number is a form of records that this program does not read.
func Other(n uint8) bool { return n > Newest && n <= Max }
