package natslease

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/nats-io/nats.go"
)

// What the store accepted as the record of a holder is told to all relays at once,
// as a message that may be lost. A watch would bring the same, but a watch asks the
// server for what comes next, and a request that is lost costs it a second or two. A
// shard that is handed over lay idle for as long.

// hint tells the others what the store accepted as own record of a shard.
func (s *shard) hint(own cluster.Holder, a cluster.Answer) {
	if a.Verdict != fence.OK {
		return
	}
	data := own.Append(binary.LittleEndian.AppendUint64(nil, a.Seq))
	_ = s.l.cfg.Conn.Publish(s.l.cfg.Subjects.Own(s.n), data) // the watch brings it
}

// hinted takes what another relay said.
func (l *Leases) hinted(m *nats.Msg) {
	n, ok := l.cfg.Subjects.ParseShard(m.Subject)
	if !ok || n >= len(l.shards) || len(m.Data) < 8 {
		return
	}
	own := cluster.ParseHolder(binary.LittleEndian.Uint64(m.Data), m.Data[8:])
	l.putHolder(n, own)
}

// tell brings the newest own record to a lease.
func (l *Leases) putHolder(n int, own cluster.Holder) {
	l.shards[n].put(func(in *inbox) {
		if own.Seq > in.holder.Seq {
			in.holder = own
		}
	})
}
