package sessionlog

// A Log stores the logs of sessions. Calls do not block; answers come later, each
// exactly once, and never before the call returns. After about half a second without
// an answer of the store the verdict is Unknown: a client waits for three.
type Log interface {
	// Append appends each write to the log that it names, in one request where the
	// store can do so. Each is done or not by itself. The data is not changed after.
	Append(writes []Write, answer func(i int, a Answer))

	// Read returns all writes of a log, oldest first. What its leader has is to be
	// read; an old answer costs time but does no harm.
	Read(log string, answer func(Answer))
}

// A Write is what is to be appended to one log.
type Write struct {
	Log    string // see Key
	Expect uint64 // the sequence of the last write of this log; 0 for none
	Data   []byte
	Rollup bool // when this is stored, all before it may be deleted
	Final  bool // the session is over; after some minutes the log may be forgotten
}

// An Entry is a stored write.
type Entry struct {
	Seq  uint64
	Data []byte
}

// A Verdict is how the log answered.
type Verdict uint8

// The verdicts.
const (
	// OK says that it is done.
	OK Verdict = iota + 1

	// Stale says that Expect was not the last sequence. After an Unknown this may be
	// the trace of one's own write. JetStream: 10071.
	Stale

	// Busy says that another write of the same log is under way: nothing was written.
	// JetStream: 10164.
	Busy

	// Unknown says that no answer came. It may be written, or be written later.
	Unknown

	// Unreachable says that nothing was written or read.
	Unreachable
)

func (v Verdict) String() string {
	return [...]string{"none", "ok", "stale", "busy", "unknown", "unreachable"}[v]
}

// An Answer is what became of a Write or a read.
type Answer struct {
	Verdict Verdict
	Seq     uint64  // of the write
	Entries []Entry // of a read
}
