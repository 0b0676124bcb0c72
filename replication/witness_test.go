package replication

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// A witnessing is a test whose replica has a witness.
type witnessing struct {
	*replicaTest
	seen []string
}

func newWitnessing(t *testing.T) *witnessing {
	w := &witnessing{replicaTest: newReplicaTest(t)}
	w.SetWitness(func(r Witnessed) {
		line := fmt.Sprintf("%d message %d view %x", r.Seq, r.Record.Message, r.Entity)
		if r.Repair {
			line += " repair"
		}
		if r.State != nil {
			_, views := r.State.Fields()
			line += fmt.Sprintf(" %s=%x", r.State.Desc.Key, r.State.Values.Value(0))
			if crc, err := r.Record.CRC(); r.Record.Message == view.Checksum && err == nil {
				line += fmt.Sprint(" ", r.State.Checksum(views[r.Entity.View()]) == crc)
			}
		}
		if !r.Applied {
			line += " refused"
		}
		w.seen = append(w.seen, line)
	})
	return w
}

func (w *witnessing) saw(why string, want ...string) {
	w.Helper()
	if got, want := strings.Join(w.seen, "\n"), strings.Join(want, "\n"); got != want {
		w.Fatalf("%s: the witness saw\n%s\nwant\n%s", why, got, want)
	}
	w.seen, w.log = nil, nil
}

// TestWitness: a witness sees records when they are applied, not when they come, so the state is that of the
// record.
func TestWitness(t *testing.T) {
	w := newWitnessing(t)
	w.publish(tower("a", u8(1), u8(2), str("x")))
	w.repair()
	w.saw("an answer", "1 message 9 view 100 repair", "1 message 16 view 100 repair", "1 message 3 view 100 repair a=01")
	first := w.publish(set("a", "hp", u8(2)))[0]
	second := w.publish(set("a", "hp", u8(3)))[0]
	quiet := w.batches(time.Second)[0]
	last := w.publish(Op{Kind: OpRemove, Key: "a"})[0]
	w.Apply(w.now, quiet)
	w.Apply(w.now, last)
	w.Apply(w.now, second)
	w.saw("batches that wait for an earlier one")
	w.Apply(w.now, first)
	w.saw("then in order, each with the state of its moment",
		"2 message 1 view 100 a=02", "3 message 1 view 100 a=03", "4 message 2 view 100 a=03 true", "5 message 6 view 100 a=03")
	bad := append(view.Header{Epoch: 7, Seq: 6, Prev: 5}.Append(nil), view.AppendChecksum(nil, 9, 1)...)
	w.Apply(w.now, bad)
	w.saw("what cannot be applied", "6 message 2 view 0 refused")
	w.SetWitness(nil)
	w.Apply(w.now, bad)
	w.saw("without a witness")
}
