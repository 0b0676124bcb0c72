// Package gossip finds out which nodes there are, with hashicorp/memberlist: every node probes random
// other ones, suspicions and news travel by gossip, and the result are rosters ([cluster.Roster]).
//
//	g, err := gossip.Open(gossip.Config{Self: member, Bind: ":7946", Join: []string{"relay-gossip"}, KeyFile: file, Log: log})
//	go g.Run(ctx)                  // joins, re-joins, follows the key file; leaves when ctx ends
//	for range g.Changes() { … g.Roster() … }
//	g.SetPhase(cluster.PhaseDraining)
//
// The others notice within about a second that a node died (see tuned), and at once that one left.
// Rosters are coalesced: a slow reader gets the newest, not all.
//
// Gossip is encrypted with the keys of a file, one in hex or base64 on each line. The first is the one to
// send with. The file is read again when it changes: the node knows new keys at once; after every node has
// had the time to learn them (Config.KeyDelay), it sends with the first, and later forgets the keys that
// are gone from the file. So no node is ever sent a message with a key that it does not know. To change
// the key of a cluster, put the new key into the second line, wait, swap the lines, wait, and remove the
// old one. Replacing the only line works, too, unless a node starts meanwhile.
//
// The order of starts does not matter: the node tries names that do not resolve and addresses without an
// answer again. But if others refuse a newcomer because of its key or its shard count, Run returns that
// error, and the others ignore the newcomer.
//
// memberlist does not protect against replay, and a roster is late. So a roster is a hint and nothing
// unsafe may follow from it, as package cluster says.
package gossip
