package relay

import (
	"encoding/json"
	"strings"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// presence hears from the edges which clients come and go, because groups belong
// to clients that are in the space.
func (r *Relay) presence(m replication.Msg) {
	var ev struct{ Type, Space, Client, Session string }
	if json.Unmarshal(m.Data, &ev) != nil {
		return // not ours to judge: anybody may publish events
	}
	k := kindJoined
	switch replication.EventType(ev.Type) {
	case replication.EventJoined:
	case replication.EventLeft:
		k = kindLeft
	default:
		return
	}
	r.tell(k, ev.Space, ev.Client, ev.Session)
}

func (r *Relay) tell(k kind, space, client, session string) {
	if !replication.ValidToken(space) || !replication.ValidToken(client) || !replication.ValidToken(session) {
		return
	}
	shard := cluster.Shard(space, r.cfg.Shards)
	r.lane(shard).postMsg(posted{kind: k, shard: shard, space: space, client: client, session: session})
}

// askWho asks all edges who is in a space that this relay did not know.
func (l *Lane) askWho(sp *space) {
	l.send(replication.Msg{Subject: l.relay.cfg.Subjects.Who(sp.name), Reply: l.relay.inbox + "." + sp.name})
}

// present takes an edge's answer to askWho.
func (r *Relay) present(m replication.Msg) {
	var a struct {
		Clients []struct{ Client, Session string }
	}
	if m.Header[replication.HeaderStatus] != "" || json.Unmarshal(m.Data, &a) != nil {
		return
	}
	space := strings.TrimPrefix(m.Subject, r.inbox+".")
	for _, c := range a.Clients {
		r.tell(kindJoined, space, c.Client, c.Session)
	}
}
