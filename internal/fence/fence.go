// Package fence has the answers to fenced writes: writes that a store refuses unless the last
// message of a subject has the sequence that the writer expects. Leases (package cluster) and
// the logs of sessions (package sessionlog) are built from such writes and judge the answers
// by the same verdicts, which internal/jetstream finds in what JetStream says.
package fence

// A Verdict is how a store answered a request.
type Verdict uint8

const (
	// OK says that the store carried out the request.
	OK Verdict = iota + 1

	// Stale says that an expected sequence was not the last one, so nothing was written by
	// this request. After an Unknown the last sequence may be that of one's own write.
	Stale

	// Busy says that the store refused the write because another write that expects
	// something of the same subject is under way. Nothing was written.
	Busy

	// Unknown says that no answer came. The write may have been applied, or be applied
	// later.
	Unknown

	// Unreachable says that the store refused or could not be asked: nothing was written
	// or read.
	Unreachable

	// TooLarge says that the store takes no request of this size. Nothing was written, and
	// the same request will have the same answer.
	TooLarge
)

// String returns the name of v.
func (v Verdict) String() string {
	return [...]string{"none", "ok", "stale", "busy", "unknown", "unreachable", "too_large"}[v]
}

// Counts are numbers of answers by their verdicts.
type Counts [TooLarge + 1]uint64
