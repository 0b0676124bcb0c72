package replication

import (
	"bytes"
	"testing"

	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/lludp/zerocode"
)

func coded(t testing.TB, batch []byte) bool {
	t.Helper()
	h, _, err := view.Parse(batch)
	if err != nil {
		t.Fatal(err)
	}
	return h.Flags&view.FlagZeroCoded != 0
}

// TestZeroCodedFeed is a store that codes, and a replica that follows, misses
// batches, and joins late.
func TestZeroCodedFeed(t *testing.T) {
	r := newReplicaTest(t)
	r.store.cfg.ZeroCode = true
	many := Op{Kind: OpPut, Key: "many", Values: putValues(manyDefs(200, "uint32"))}
	if b := r.publish(many); len(b) != 1 || !coded(t, b[0]) {
		t.Fatal("a state of zeros did not shrink its batch")
	}
	q := r.asks("late join", RepairKeyframes)
	parts := r.store.Repair(r.store.now, q)
	if len(parts) != 1 || !coded(t, parts[0]) {
		t.Fatal("a state of zeros did not shrink the keyframes")
	}
	r.ApplyReply(r.now, parts[0])
	r.said("coded keyframes", "added many")
	r.at("coded keyframes", 7, 1, true)

	small := r.publish(set("many", "4", Encoded{typ("uint32"), []byte{1, 2, 3, 4}}))
	if coded(t, small[0]) {
		t.Fatal("an update without runs of zeros was coded")
	}
	r.Apply(r.now, small[0])
	r.said("plain update of a store that codes", "changed many 4=01020304")

	r.publish(set("many", "5", Encoded{typ("uint32"), []byte{5, 0, 0, 0}}), set("many", "7", Encoded{typ("uint32"), []byte{6, 0, 0, 0}}))
	last := r.publish(set("many", "5", Encoded{typ("uint32"), make([]byte, 4)}), set("many", "7", Encoded{typ("uint32"), make([]byte, 4)}))
	if !coded(t, last[0]) {
		t.Fatal("zeros in an update were not coded")
	}
	r.Apply(r.now, last[0])
	r.buffered("a coded batch is held expanded", last[0])
	for _, p := range r.store.Repair(r.store.now, r.asks("a batch is missing", RepairRange)) {
		if !coded(t, p) {
			t.Fatal("a range repeats the batch in another form")
		}
		r.ApplyReply(r.now, p)
	}
	r.said("coded range, then the coded batch that was held", "changed many 5=05000000 7=06000000", "changed many 5=00000000 7=00000000")
	r.at("coded range", 7, 4, true)
}

// buffered fails unless this batch is held, as plain records.
func (t *replicaTest) buffered(why string, batch []byte) {
	t.Helper()
	plain, _ := view.Plain(batch)
	_, records, _ := view.Parse(plain)
	if len(t.buffer.held) != 1 || !bytes.Equal(t.buffer.held[0].records, records) || t.buffer.size != len(records) {
		t.Fatalf("%s: the buffer counts %d bytes of %d batches, want %d", why, t.buffer.size, len(t.buffer.held), len(records))
	}
}

// A bomb is malformed like everything that is no batch, and costs nothing.
func TestZeroCodedBombs(t *testing.T) {
	r := joined(t)
	h := view.Header{Flags: view.FlagZeroCoded, Epoch: 7, Seq: 2, Prev: 1}
	bomb := zerocode.Append(h.Append(nil), make([]byte, view.BatchMax))
	r.Apply(r.now, bomb)
	h.Flags |= view.FlagReply
	bomb = zerocode.Append(h.Append(nil), make([]byte, view.BatchMax))
	r.ApplyReply(r.now, bomb)
	if r.stats.Malformed != 2 {
		t.Fatalf("%d of 2 bombs were counted", r.stats.Malformed)
	}
	r.at("after bombs", 7, 1, true)
}

// What a store sends of a realistic space is the same in both forms.
func TestZeroCodedTraffic(t *testing.T) {
	for _, sc := range scenes() {
		sc.count = 50
		plain, both := sc.traffic(t, false), sc.traffic(t, true)
		for _, kind := range []string{"updates", "keyframes"} {
			n := 0
			for i, m := range both[kind] {
				if coded(t, m) {
					n++
				}
				if got, err := view.Plain(m); err != nil || !bytes.Equal(got, plain[kind][i]) {
					t.Fatalf("%s: message %d of %s differs, %v", sc.name, i, kind, err)
				}
			}
			t.Logf("%s: %d of %d messages of %s shrink", sc.name, n, len(both[kind]), kind)
			if n == 0 && sc.name == "characters" {
				t.Errorf("no message of %s was coded", kind)
			}
		}
	}
}
