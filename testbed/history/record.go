package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"
	"sync"
	"time"
)

// A Kind is what a Record says.
type Kind string

const (
	Run      Kind = "run"      // Note: seed and sizes
	PhaseIs  Kind = "phase"    // a phase begins, or goes on; Note: its name; D: Phase.GapMax in µs
	Fault    Kind = "fault"    // N: number; Who: what was hit; Note: how
	Healed   Kind = "healed"   // N: number of the fault
	Said     Kind = "said"     // client Who sent its message N reliably
	Acked    Kind = "acked"    // an edge acknowledged message N of client Who
	Heard    Kind = "heard"    // the game server consumed message N of Who
	Told     Kind = "told"     // the game server began to send message N to Who
	Answered Kind = "answered" // an edge promised to deliver message N to Who; Note: its number, 0 for a duplicate
	Got      Kind = "got"      // client Who received message N
	Closed   Kind = "closed"   // client Who lost its connection; Note: why
	Left     Kind = "left"     // client Who closed its connection because the run told it to
	Silence  Kind = "silence"  // client Who received no datagram for D µs, until At
	Stale    Kind = "stale"    // D: longest time in µs in which client Who saw no update in the phase
	Ack      Kind = "ack"      // a reliable message of Who was acknowledged after D µs
	Waited   Kind = "waited"   // client Who lost its connection D µs after it sent a message that was never acknowledged
	Extra    Kind = "extra"    // client Who was sent a reliable command a second time
	Restart  Kind = "game"     // the consumer stopped and continued with its stored cursor
	Gap      Kind = "gap"      // the game server misses messages of Who; Note: which
	Handed   Kind = "handed"   // an edge handed the session of client Who over
	Moved    Kind = "moved"    // the balancer moved the flow of client Who to another edge
	Used     Kind = "used"     // D of something for N of another were used in a time of the phase; Note: of what for what
	Late     Kind = "late"     // D: longest time in µs that the machine delayed the test itself in the phase
	Route    Kind = "route"    // the balancer spread flows over other nodes; Note: which
	Cut      Kind = "cut"      // a fault on the way from player Who to its edge; Note: CutStart or CutEnd
	Problem  Kind = "problem"  // something else that must not happen; Note: what
	Ended    Kind = "ended"    // no message follows, and those under way had time to arrive; Note: what to know about that
)

// NoFault is the Note of a Fault that is none: a time that is recorded for comparison.
const NoFault = "no fault"

// Notes of a Cut. The way of a player is well again when it avoids the fault, or when the fault
// is over.
const (
	CutStart = "start"
	CutEnd   = "end"
)

// A Record is one line of a history.
type Record struct {
	At   int64  `json:"at"` // µs since the start
	Kind Kind   `json:"k"`
	Who  string `json:"w,omitempty"`
	N    uint64 `json:"n,omitempty"`
	D    int64  `json:"d,omitempty"`
	Note string `json:"note,omitempty"`
}

// A Log writes a history. All parties of a run share it.
type Log struct {
	start  time.Time
	faults uint64 // so far; the goroutine that runs the phases owns it

	mu   sync.Mutex // of the file
	file *os.File
	w    *bufio.Writer
	err  error // the first one
}

// Create opens the file of a history.
func Create(name string) (*Log, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &Log{start: time.Now(), file: f, w: bufio.NewWriterSize(f, 1<<20)}, nil
}

// Add appends a record, with the moment of the call.
func (l *Log) Add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.At = time.Since(l.start).Microseconds() // under the mutex, so that lines are in order
	b, err := json.Marshal(r)
	if err == nil {
		_, err = l.w.Write(append(b, '\n'))
	}
	l.err = cmp.Or(l.err, err)
}

// Phase begins a phase, or goes on with one of the same name. gapMax is Phase.GapMax.
func (l *Log) Phase(name string, gapMax time.Duration) {
	l.Add(Record{Kind: PhaseIs, Note: name, D: gapMax.Microseconds()})
}

// During records a fault around f.
func (l *Log) During(how, who string, f func() error) error {
	l.faults++
	n := l.faults
	l.Add(Record{Kind: Fault, N: n, Who: who, Note: how})
	err := f()
	l.Add(Record{Kind: Healed, N: n})
	return err
}

// Close writes the rest and returns the first error of all writes.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = cmp.Or(l.err, l.w.Flush(), l.file.Close())
	return l.err
}
