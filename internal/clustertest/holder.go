//go:build linux

package clustertest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/natslease"
)

// shard is the one that the space belongs to.
var shard = cluster.Shard(space, shards)

// holder returns the relay that the store says holds the shard of the space; nil if
// nobody does or the store does not answer.
func (r *run) holder() *node {
	request := fmt.Sprintf(`{"last_by_subj":%q}`, r.game.subjects.StoreOwn(shard))
	m, err := r.game.nc.Request("$JS.API.STREAM.MSG.GET."+stream(), []byte(request), time.Second)
	if err != nil {
		return nil
	}
	var a struct {
		Message struct{ Data []byte }
	}
	var own cluster.Holder
	if json.Unmarshal(m.Data, &a) != nil || json.Unmarshal(a.Message.Data, &own) != nil || own.Released {
		return nil
	}
	return r.deployment.relay(own.Node)
}

// stream returns the name of the stream that the shard is stored in.
func stream() string { return natslease.StreamName(shard % storeStreams) }

// A streamInfo is what the leader of a stream says about its copies.
type streamInfo struct {
	Cluster struct {
		Leader   string
		Replicas []struct{ Current, Offline bool }
	}
}

// streamLeader returns the NATS server that leads the stream of the shard, and
// whether all copies are up to date; nil if there is no leader.
func (r *run) streamLeader(name string) (leader *node, current bool) {
	m, err := r.game.nc.Request("$JS.API.STREAM.INFO."+name, nil, time.Second)
	if err != nil {
		return nil, false
	}
	var info streamInfo
	if json.Unmarshal(m.Data, &info) != nil {
		return nil, false
	}
	current = len(info.Cluster.Replicas) == servers-1
	for _, c := range info.Cluster.Replicas {
		current = current && c.Current && !c.Offline
	}
	return named(r.deployment.nats, info.Cluster.Leader), current
}

// storeWhole reports whether all streams of the store have all copies.
func (r *run) storeWhole() bool {
	for g := range storeStreams {
		if leader, current := r.streamLeader(natslease.StreamName(g)); leader == nil || !current {
			return false
		}
	}
	return true
}
