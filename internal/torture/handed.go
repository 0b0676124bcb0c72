//go:build linux

package torture

import (
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
)

// watchLogs notes each session that its owner gives away, as the log has it.
func (r *run) watchLogs() (*nats.Subscription, error) {
	return r.nc.Subscribe("dnp.v1.log.>", func(m *nats.Msg) {
		k, err := sessionlog.ParseBlock(m.Data)
		if err != nil || k.Hand == nil || k.Ckpt == nil {
			return
		}
		if who := r.balancer.nameAt(k.Ckpt.Info.Addr.Port()); who != "" {
			r.note.add(Record{Kind: kindHanded, Who: who})
		}
	})
}
