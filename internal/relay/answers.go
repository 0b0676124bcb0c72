package relay

import (
	"hash/maphash"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// answersBytesMax bounds the answers that a worker keeps. At 10,000 publishes a second that is some seconds, longer than a
// publisher waits before it asks.
const answersBytesMax = 8 << 20

// answerOverhead is counted for each answer besides its bytes.
const answerOverhead = 64

// answers are the newest answers to publishes, for publishers whose connection ended before they came. Such a publisher does
// not know whether the worker applied the publish, and a repetition would overwrite what clients have written since.
type answers struct {
	seed  maphash.Seed
	by    map[uint64][]byte // by the hash of the subject of the answer
	queue []uint64          // from the oldest on
	bytes int
}

func newAnswers() answers { return answers{seed: maphash.MakeSeed(), by: map[uint64][]byte{}} }

// keep keeps the answer that goes to a subject, whose bytes the caller must not change any more.
func (a *answers) keep(subject string, data []byte) {
	if subject == "" {
		return
	}
	key := maphash.String(a.seed, subject)
	if _, ok := a.by[key]; ok {
		return // publishers that use one subject twice cannot ask
	}
	a.by[key] = data
	a.queue = append(a.queue, key)
	for a.bytes += len(data) + answerOverhead; a.bytes > answersBytesMax; a.queue = a.queue[1:] {
		a.bytes -= len(a.by[a.queue[0]]) + answerOverhead
		delete(a.by, a.queue[0])
	}
}

func (a *answers) to(subject string) (data []byte, ok bool) {
	data, ok = a.by[maphash.String(a.seed, subject)]
	return data, ok
}

// again answers the question for the answer to a publish. A publish that was not applied, as far as the worker knows, may be said
// again. One whose answer waits for the next batch gets that.
func (a *answers) again(w *Worker, o *ownership, m bus.Msg) {
	form, _, _ := forms(m)
	if data, ok := a.to(m.Reply); ok {
		w.answerIn(form, m.Reply, data)
		return
	}
	for _, sp := range o.spaces {
		for _, r := range sp.replies {
			if r.subject == m.Reply {
				return
			}
		}
	}
	w.refuse(o, m.Reply, form, replication.Errorf(replication.CodeBusy, "this relay knows no such publish; say it again"))
}
