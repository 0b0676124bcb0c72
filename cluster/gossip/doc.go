// Package gossip finds out which nodes are there, with hashicorp/memberlist:
// every node probes a random other one, suspicions and news travel by gossip, and
// what comes out are rosters ([cluster.Roster]).
//
//	g, err := gossip.Open(gossip.Config{Self: member, Bind: ":7946", Join: []string{"relay-gossip"}, KeyFile: file, Log: log})
//	go g.Run(ctx)                  // joins, re-joins, follows the key file; leaves when ctx ends
//	for range g.Changes() { … g.Roster() … }
//	g.SetPhase(cluster.PhaseDraining)
//
// A node that dies is noticed within about a second (see tuning.go), one that
// leaves at once. Rosters are coalesced: a slow reader gets the newest, not all.
//
// Gossip is encrypted with the keys of a file, one in hex or base64 on each line.
// The first is the one to send with. The file is read again when it changes; new
// keys are known at once, and only when every node has had the time to learn them
// (Config.KeyDelay) the node sends with the first and then forgets those that have
// gone, so that no node is ever spoken to with a key that it does not know. To
// change the key of a cluster, put the new key into the second line, wait, swap the
// lines, wait, and remove the old one. Replacing the only line works too, unless a
// node starts meanwhile.
//
// The order of starts does not matter: names that do not resolve and addresses
// where nobody answers are tried again. But a newcomer that others answer and
// refuse, because of its key or its shard count, is told so by Run, and the others
// never take notice of it.
//
// memberlist does not protect against replay, and a roster is late. So a roster is
// a hint and nothing unsafe may follow from it, as package cluster says.
package gossip
