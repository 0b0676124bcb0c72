package sessionlog

import "github.com/dnprelay/dnprelay/internal/fence"

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

// An Answer is what became of a Write or a read.
type Answer struct {
	Verdict fence.Verdict
	Seq     uint64  // of the write
	Entries []Entry // of a read
}
