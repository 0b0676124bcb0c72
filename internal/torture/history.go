package torture

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"
)

// A kind is what a Record says.
type kind string

const (
	kindRun      kind = "run"      // Note: seed and sizes
	kindPhase    kind = "phase"    // Note: its name
	kindFault    kind = "fault"    // N: which; Who: what was hit; Note: how
	kindHealed   kind = "healed"   // N: of the fault
	kindSaid     kind = "said"     // client Who sent its message N reliably
	kindHeard    kind = "heard"    // the game server consumed message N of Who
	kindTold     kind = "told"     // the game server began to send message N to Who
	kindAnswered kind = "answered" // it was told that message N is on its way
	kindGot      kind = "got"      // client Who got message N
	kindClosed   kind = "closed"   // client Who lost its connection; Note: why
	kindLeft     kind = "left"     // client Who was told to leave by the run
	kindSilence  kind = "silence"  // client Who got no datagram for D µs, until At
	kindAck      kind = "ack"      // a reliable message of Who was acknowledged after D µs
	kindExtra    kind = "extra"    // client Who was sent a reliable command that it had been sent before
	kindGame     kind = "game"     // the consumer stopped and started again with its stored cursor
	kindGap      kind = "gap"      // the game server is missing messages of Who; Note: which
	kindHanded   kind = "handed"   // the session of client Who was given away
	kindMoved    kind = "moved"    // the balancer took the flow of client Who to another edge
	kindOps      kind = "ops"      // N: operations while nothing happened; Note: of what; D: for how many µs
	kindCost     kind = "cost"     // N: datagrams to clients, D: µs of CPU of all edges; Note: direct or sprayed
)

// Notes of windows that are kept like faults, and in which nothing is done to anybody.
const (
	noteCalm   = "calm"
	noteDirect = "direct"
)

// A Record is one line of a history.
type Record struct {
	At   int64  `json:"at"` // µs since the start
	Kind kind   `json:"k"`
	Who  string `json:"w,omitempty"`
	N    uint64 `json:"n,omitempty"`
	D    int64  `json:"d,omitempty"`
	Note string `json:"note,omitempty"`
}

// A history is written by everybody.
type history struct {
	start time.Time

	mu   sync.Mutex // of the file
	file *os.File
	w    *bufio.Writer
	err  error // the first
}

func newHistory(name string) (*history, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &history{start: time.Now(), file: f, w: bufio.NewWriterSize(f, 1<<20)}, nil
}

func (h *history) add(r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.At = time.Since(h.start).Microseconds() // under the mutex, so that lines are in order
	b, err := json.Marshal(r)
	if err == nil {
		_, err = h.w.Write(append(b, '\n'))
	}
	if h.err == nil {
		h.err = err
	}
}

func (h *history) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, err := range []error{h.w.Flush(), h.file.Close()} {
		if h.err == nil {
			h.err = err
		}
	}
	return h.err
}
