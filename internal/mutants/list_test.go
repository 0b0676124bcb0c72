package mutants

// list is all mutants in Go, by what they guard. Those of the client in TypeScript are beside its tests.
var list = []mutant{
	// What a stranger off the path can do to a session.
	{
		Name: "any_datagram_changes_the_path", In: "internal/edge/takeover", Func: "base.notePath", Guards: "SECURITY: a forged datagram does not change the return path of a session",
		Old: "case s.path.Unknown:\n", New: "case s.path.Unknown || s.path.Edge != edge:\n",
		By: "internal/edge/takeover.TestForgedWay",
	},
	{
		Name: "any_datagram_takes_the_owner", In: "internal/edge/takeover", Func: "base.yield", Guards: "SECURITY: a forged datagram takes no session from an edge that lives",
		Old: "case b.orphans.any(s.client, s.Log.Evident):", New: "case true:",
		By: "internal/edge/takeover.TestForgedOwner",
	},
	{
		Name: "anything_refutes_a_close", In: "dnp", Func: "liveness.hear", Guards: "SECURITY: a client that lives survives a forged end, and one that is gone does not survive a real end",
		Old: "switch {\n\tcase l.tested:", New: "switch {\n\tcase false:",
		By: "dnp.TestForgedLife",
	},
	{
		Name: "contradiction_closes", In: "dnp", Func: "Conn.receiveAck", Guards: "SECURITY: numbers that contradict the log make the edge ask, and end nothing",
		Old: "contradicted(now) {\n\t\t\tc.Ask()", New: "contradicted(now) {\n\t\t\tc.Close(CloseUncertain)",
		By: "dnp.TestLoggedContradiction",
	},
	{
		Name: "held_bytes_unbounded", In: "dnp", Func: "holdTable.set", Guards: "SECURITY: the checkpoint of a session has a bound",
		Old: "h.bytes+more > holdBytesMax, held", New: "held",
		By: "dnp.TestSnapshotBounded",
	},
	{
		Name: "wrong_acknowledgements_are_life", In: "dnp", Func: "liveness.vague", Guards: "SECURITY: guessed acknowledgements do not keep a session alive whose client is gone",
		Old: "return l.wrongAcks == vagueAcks", New: "return false",
		By: "dnp.TestOutlives",
	},
	{
		Name: "flood_leaves_nothing", In: "dnp", Func: "Endpoint.limited", Guards: "SECURITY: a flood in a client's name does not stop what the client says reliably",
		Old: "v == awaited || v != noEvidence &&", New: "v == awaited && v != noEvidence &&",
		By: "dnp.TestFlood",
	},
	{
		Name: "forged_reliable_commands_raise_no_alarm", In: "dnp", Func: "suspicion.miss", Guards: "SECURITY: many forged reliable commands raise an alarm",
		Old: "s.misses <= suspectMisses", New: "true",
		By: "dnp.TestSuspect",
	},
	{
		Name: "numbers_ahead_are_acknowledged", In: "dnp", Func: "Conn.acknowledge", Guards: "SECURITY: a command with a number ahead is not acknowledged before its predecessors",
		Old: "case c.log == nil && !c.client && n > c.recv.next:", New: "case false:",
		By: "dnp.TestReliableAhead",
	},
	{
		Name: "acknowledgements_over_budget", In: "dnp", Func: "ackRepeats.resend", Guards: "SECURITY: forged repeats do not make the edge send more than the client's budget",
		Old: "if !p.budget.overdrawn(now) {", New: "if true {",
		By: "dnp.TestAckRepeatsBounded",
	},
	{
		Name: "long_messages_take_their_time", In: "dnp", Func: "longReceive.add", Guards: "SECURITY: a long message without an end is forgotten",
		Old: "*p = &longPart{now.add(longPatience),", New: "*p = &longPart{now.add(2*longPatience),",
		By: "dnp.TestLongTime",
	},

	// What strangers cost, and who is let in.
	{
		Name: "unproven_without_bound", In: "dnp", Func: "unprovenTable.insert", Guards: "SECURITY: a stranger costs no memory beyond tables made at the start",
		Old: "if t.n >= t.max {", New: "if false {",
		By: "dnp.TestUnprovenTable",
	},
	{
		Name: "short_logins_are_greeted", In: "dnp", Func: "Endpoint.greet", Guards: "SECURITY: an edge sends an unproven address at most one byte for each byte from it",
		Old: "if size >= greetingSize {", New: "if true {",
		By: "dnp.TestAmplification",
	},
	{
		Name: "silent_are_told_unproven", In: "dnp", Func: "Endpoint.endSilent", Guards: "SECURITY: a request in the name of a client does not end its session elsewhere",
		Old: "if u := e.unproven.find(to); u != nil {\n\t\te.unproven.remove(u)\n", New: "{\n",
		By: "dnp.TestLoginTimeoutOfOthers",
	},
	{
		Name: "any_link_is_a_proof", In: "dnp", Func: "Endpoint.receiveStateless", Guards: "SECURITY: only an address that got the keyed hash proves itself",
		Old: "case !e.isStateless(from, m.Link, now):", New: "case false:",
		By: "dnp.TestStatelessOfAnother",
	},
	{
		Name: "proven_logins_wait_behind_forged", In: "dnp/admit", Func: "Gate.Judge", Guards: "SECURITY: forged logins take nothing from addresses that answered a greeting",
		Old: "kind == Login && !g.unproven.take(t)", New: "kind == Login && !g.unproven.take(t) && !g.logins.take(t)",
		By: "dnp.TestGreetingsUnderFlood",
	},
	{
		Name: "addresses_without_rate", In: "dnp/admit", Func: "Gate.limit", Guards: "SECURITY: one address or network does not take the rate of others",
		Old: "if b.tokens < 1 {", New: "if b.tokens < -1e9 {",
		By: "dnp/admit.TestAddressRate",
	},
	{
		Name: "late_datagrams_begin", In: "dnp/admit", Func: "graveyard.judge", Guards: "SECURITY: late datagrams of an ended session begin nothing",
		Old: "case !request:", New: "case false:",
		By: "dnp/admit.TestTombstones",
	},
	{
		Name: "questions_without_rate", In: "internal/edge/takeover", Func: "base.mayAsk", Guards: "SECURITY: forged datagrams cost the log and Redis a bounded number of requests",
		Old: "return b.joins.take(now, edgeJoinsPerSecond/workers, edgeJoinsPerSecond/workers)", New: "return true",
		By: "internal/edge/takeover.TestQuestionsAboutStrangers",
	},
	{
		Name: "orphans_without_bound", In: "internal/edge/takeover", Func: "orphans.hold", Guards: "SECURITY: orphan datagrams do not fill the memory",
		Old: "case q.bytes+size > orphanBytesMax:", New: "case false:",
		By: "internal/edge/takeover.TestOrphanBytes",
	},
	{
		Name: "unsigned_tokens", In: "internal/auth", Func: "Keys.Verify", Guards: "SECURITY: a forged or changed token is refused",
		Old: "case err != nil:\n\t\treturn Claims{}, BadKey", New: "case false:\n\t\treturn Claims{}, BadKey",
		By: "internal/auth.TestVerify",
	},
	{
		Name: "stolen_tokens", In: "internal/auth", Func: "Replay.Use", Guards: "SECURITY: a token that was used is good from the same network only",
		Old: "if u.from != network {", New: "if u == nil {",
		By: "internal/auth.TestReplay",
	},

	// What a client may do.
	{
		Name: "everybody_may_write", In: "replication", Func: "Access.MayWrite", Guards: "SECURITY: a relay refuses writes of clients without the right",
		Old: "a.Kind == AccessWriters && slices.Contains(a.Writers, client)", New: "a.Kind <= AccessWriters",
		By: "replication.TestStoreWrites",
	},
	{
		Name: "guests_may_write", In: "internal/edge/fanout", Func: "rights.mayWrite", Guards: "SECURITY: a client with write:false writes nothing",
		Old: "return r.Claims.Write && st.Desc", New: "return st.Desc",
		By: "internal/edge/fanout.TestCommandErrors",
	},
	{
		Name: "commands_about_any_state", In: "internal/edge/fanout", Func: "commands.target", Guards: "SECURITY: a command about a state that the client may not write goes nowhere",
		Old: "case !c.rights.mayWrite(st):", New: "case false:",
		By: "internal/edge/fanout.TestCommandErrors",
	},
	{
		Name: "commands_without_bound", In: "internal/edge/fanout", Func: "commands.judge", Guards: "SECURITY: a client has at most 16 commands without an answer",
		Old: "case first && len(c.open) >= command.OutstandingMax:", New: "case false:",
		By: "internal/edge/fanout.TestCommandBounds",
	},
	{
		Name: "unlink_only_sleeps", In: "internal/edge/fanout", Func: "space.rest", Guards: "SECURITY: a client does not have what lies beyond the bands of an interest that unlinks",
		Old: "r.says != nil && r.says.Unlink:", New: "r.says != nil && false:",
		By: "internal/edge/fanout.TestUnlinkLasts",
	},
	{
		Name: "jumps_without_pause", In: "interest", Func: "Bander.hurry", Guards: "SECURITY: an eye that jumps looks at most 25 times a second",
		Old: "at := s.jumpedAt.Add(jumpPause)", New: "at := s.jumpedAt",
		By: "interest.TestJump",
	},
	{
		Name: "sightings_without_limit", In: "internal/edge/fanout", Func: "sightings.advance", Guards: "SECURITY: clients that jump to and fro do not flood the bus with events",
		Old: "due < len(n.queue) && n.count < sightingsMax", New: "due < len(n.queue)",
		By: "internal/edge/fanout.TestSightingsBounds",
	},
	{
		Name: "refused_values_are_applied", In: "replication", Func: "Store.enforceBounds", Guards: "SECURITY: a relay drops values beyond their bounds",
		Old: "\ts.edit.values = allowed\n", New: "",
		By: "replication.TestWritesBeyondBounds",
	},
	{
		Name: "corrections_without_limit", In: "dnp", Func: "Conn.correct", Guards: "SECURITY: a correction is not longer than the write, but for one datagram a second",
		Old: "if now < t.longAnswer {", New: "if false {",
		By: "dnp.TestReadOnlyAnswers",
	},
	{
		Name: "backlog_without_bound", In: "dnp", Func: "Conn.Send", Guards: "SECURITY: a client that takes nothing costs a bounded backlog",
		Old: "case c.send.full(len(data)):", New: "case false:",
		By: "dnp.TestBacklogCloses",
	},
	{
		Name: "empty_data_is_sent", In: "replication", Func: "edit.addIf", Guards: "SECURITY: no client gets a data value without bytes",
		Old: "b = append(b[:off], c.fields[i].Type.Sendable(b[off:])...)", New: "_ = off",
		By: "replication.TestNoEmptyData",
	},

	// Clients that do not speak DNP over UDP.
	{
		Name: "any_token_is_valid", In: "internal/edge/carrier", Func: "Tokens.Valid", Guards: "SECURITY: a guessed token is no session token",
		Old: "hmac.Equal(b[tokenSecret:], t.sum(\"token\", k, b[:tokenSecret])[:tokenMAC])", New: "hmac.Equal(b[tokenSecret:], b[tokenSecret:])",
		By: "internal/edge/carrier.TestTokens",
	},
	{
		Name: "carried_addresses_by_udp", In: "internal/edge", Func: "Worker.receiveBatch", Guards: "SECURITY: datagrams by UDP in the name of a carried client are dropped",
		Old: "w.impostors++\n\t\t\tcontinue", New: "w.impostors++",
		By: "internal/systest.TestCarriedForged",
	},
	{
		Name: "pages_of_any_site", In: "internal/edge/carrier", Func: "Origins.Allow", Guards: "SECURITY: a page of another site does not play here",
		Old: "return page.Hostname() == host || local(page.Hostname())", New: "return host != \"\"",
		By: "internal/edge/carrier.TestOrigins",
	},
	{
		Name: "anybody_is_a_proxy", In: "internal/edge/carrier", Func: "Proxies.Home", Guards: "SECURITY: X-Forwarded-For counts only from trusted proxies",
		Old: "!p.trusts(home) || err != nil", New: "err != nil",
		By: "internal/edge/carrier.TestProxies",
	},
	{
		Name: "networks_without_bound", In: "internal/edge/carrier", Func: "Hub.admit", Guards: "SECURITY: one network has a bounded number of connections",
		Old: "h.seats.Of(home) >= h.cfg.PerNetworkMax", New: "false",
		By: "internal/edge/carrier.TestPlaces",
	},
	{
		Name: "slow_readers_fill_the_queue", In: "internal/edge/carrier", Func: "Conn.send", Guards: "SECURITY: a slow reader costs at most 64 KiB",
		Old: "c.ended || c.outSize+len(p) > outMax", New: "c.ended",
		By: "internal/edge/carrier.TestSlowClient",
	},
	{
		Name: "any_cookie_begins", In: "internal/edge/variant/protocol", Func: "Cookies.Valid", Guards: "SECURITY: a cookie is bound to the address and the edge",
		Old: "hmac.Equal(k[:], p) &&", New: "hmac.Equal(p, p) &&",
		By: "internal/edge/variant/protocol.TestCookies",
	},
	{
		Name: "parts_without_end", In: "internal/edge/variant/protocol", Func: "Core.onPart", Guards: "SECURITY: a message of Variants in parts has at most 1 MiB",
		Old: "case len(c.parts)+len(p) > partsMax:", New: "case false:",
		By: "internal/edge/variant/protocol.TestBombs",
	},
	{
		Name: "codes_from_any_network", In: "internal/edge/lludp", Func: "logins.take", Guards: "SECURITY: a code opens a circuit only from the network of its login",
		Old: "case auth.HomeNetwork(from) != auth.HomeNetwork(p.home):", New: "case false:",
		By: "internal/edge/lludp.TestLogins",
	},
	{
		Name: "any_session_is_the_viewers", In: "internal/edge/lludp/viewer", Func: "Viewer.genuine", Guards: "SECURITY: a forged packet in the name of a viewer takes nothing from its circuit",
		Old: " || id.session != v.cfg.Opening.Session", New: "",
		By: "internal/edge/lludp/viewer.TestForged",
	},

	// What stolen credentials, other processes and pages can do.
	{
		Name: "game_servers_ask_for_logins", In: "internal/natsroles", Func: "Config.publisher", Guards: "SECURITY: no role sends to subjects on which another role answers it with its rights",
		Old: "s.ToAll(\"*\"), s.Who(\"*\"),", New: "s.ToAll(\"*\"), s.Who(\"*\"), s.Auth(),",
		By: "internal/natsroles.TestRightsToAnswer",
	},
	{
		Name: "edges_have_direct_gets", In: "internal/natsroles", Func: "Config.edge", Guards: "SECURITY: a stolen edge cannot have JetStream publish stored bytes anywhere",
		Old: "\"STREAM.CREATE\", \"STREAM.MSG.GET\"}", New: "\"STREAM.CREATE\", \"STREAM.MSG.GET\", \"DIRECT.GET\"}",
		By: "internal/natsroles.TestDirectGets",
	},
	{
		Name: "answers_of_any_size", In: "replication", Func: "statesAnswer.add", Guards: "SECURITY: an answer to a stolen edge is one message of at most 256 KiB",
		Old: "len(a.records) > recordsMax {", New: "len(a.records) > 1<<30 {",
		By: "replication.TestHostileRequest",
	},
	{
		Name: "requesters_without_bound", In: "internal/relay", Func: "repairs.of", Guards: "SECURITY: a relay remembers a bounded number of subjects for answers",
		Old: "if len(p.requesters) >= requestersMax {\n\t\t\treply", New: "if false {\n\t\t\treply",
		By: "internal/relay.TestHostileRequester",
	},
	{
		Name: "forged_head_hides_the_true", In: "cluster/natslease", Func: "Leases.Fence", Guards: "SECURITY: epochs do not run backwards when streams are made again",
		Old: "l.heard[shard%l.cfg.Streams].hear(epoch)\n", New: "",
		By: "cluster/natslease.TestHeard",
	},
	{
		Name: "forwarded_twice", In: "cluster/forward", Func: "Router.open", Guards: "SECURITY: repeated datagrams between edges are dropped",
		Old: "case !from.window.fresh(h.counter):", New: "case false:",
		By: "cluster/forward.TestStolenKey",
	},
	{
		Name: "forwards_any_flood", In: "cluster/forward", Func: "fenceEntry.allow", Guards: "SECURITY: an edge forwards no more in a client's name than the client's rate",
		Old: "return likely && e.allowance.TakeSpare(now, next)", New: "return likely || !next",
		By: "cluster/forward.TestRateOfClient",
	},
	{
		Name: "admin_port_for_pages", In: "internal/telemetry", Func: "guard", Guards: "SECURITY: a web page of another site changes nothing by the admin port",
		Old: " && ofNoPage(r)", New: "",
		By: "internal/telemetry.TestWebPages",
	},
	{
		Name: "console_changes_without_edit", In: "internal/console", Func: "Server.mayChange", Guards: "SECURITY: the console changes nothing without --edit",
		Old: "case !s.cfg.Edit:", New: "case false:",
		By: "internal/console.TestChanges",
	},

	// Nothing acknowledged is lost, and a session outlives its edge.
	{
		Name: "acknowledges_before_the_log", In: "dnp", Func: "Conn.acknowledge", Guards: "DESIGN: the edge acknowledges a client's reliable command when it is in the log",
		Old: "(c.log.muted || !c.recv.mayAcknowledge(n))", New: "c.log.muted",
		By: "sessionlog.TestSimulation", Args: []string{"-seeds", "450"},
	},
	{
		Name: "sends_before_the_log", In: "dnp", Func: "Conn.sendStored", Guards: "DESIGN: the meaning of a number is in the log before the number is sent",
		Old: "n < min(w.next, c.log.sent)", New: "n < w.next",
		By: "sessionlog.TestSimulation", Args: []string{"-seeds", "450"},
	},
	{
		Name: "fenced_goes_on", In: "sessionlog", Func: "Session.foreign", Guards: "DESIGN: only one edge continues a log; one whose write is refused stops",
		Old: "s.end(Action{Kind: ActionLost, Epoch: c.last.Epoch, Node: c.owner})", New: "s.seq, s.pending = c.tail, nil",
		By: "sessionlog.TestSimulation", Args: []string{"-seeds", "450"},
	},
	{
		Name: "one_copy_stores", In: "sessionlog/quorumlog", Func: "storing.stored", Guards: "DESIGN: a write is in the log when two of three copies have it",
		Old: "case n == quorum && !s.o.over:", New: "case n == 1 && !s.o.over:",
		By: "sessionlog/quorumlog.TestSimulation", Args: []string{"-seeds", "400"},
	},
	{
		Name: "longest_copy_wins", In: "sessionlog/quorumlog", Func: "history", Guards: "DESIGN: the newest lead among two copies has everything that was acknowledged",
		Old: "cmp.Or(c.data.compare(best.data), cmp.Compare(c.end(), best.end()))", New: "cmp.Or(cmp.Compare(c.end(), best.end()), c.data.compare(best.data))",
		By: "sessionlog/quorumlog.TestSimulation", Args: []string{"-seeds", "400"},
	},
	{
		Name: "orphans_are_dropped", In: "internal/edge/takeover", Func: "base.interceptOrphan", Guards: "DESIGN: a client outlives its edge",
		Old: "\tif first {\n\t\tb.lookUp", New: "\tif first && false {\n\t\tb.lookUp",
		By: "internal/edge/takeover.TestEdgeLost",
	},

	// One authority per space, and no acknowledged value is lost.
	{
		Name: "stores_without_lease", In: "cluster/natslease", Func: "lane.write", Guards: "DESIGN: a relay whose lease was revoked stores nothing",
		Old: "s.publish(jetstream.Expect(m, subject, a.Expect), nil,", New: "s.publish(m, nil,",
		By: "cluster/natslease.TestRevoked",
	},
	{
		Name: "batches_without_lease", In: "cluster/natslease", Func: "lane.write", Guards: "DESIGN: a relay whose lease was revoked stores nothing",
		Old: "last := jetstream.Expect(s.message(subject, a.Record.Append(nil)), \"\", a.Expect)", New: "last := s.message(subject, a.Record.Append(nil))",
		By: "cluster/natslease.TestRevoked",
	},
	{
		Name: "revokes_without_proof", In: "cluster/lease", Func: "peer.silent", Guards: "DESIGN: a silent store revokes no lease",
		Old: "&& p.proofs >= proofs ||", New: "||",
		By: "cluster/lease.TestTimes",
	},
	{
		Name: "takes_from_the_living", In: "cluster/lease", Func: "Lease.hasLeft", Guards: "DESIGN: a relay takes a shard only if it knows that the lease of the holder is over",
		Old: "return false", New: "return true",
		By: "cluster/lease.TestSimulation", Args: []string{"-seeds", "500"},
	},
	{
		Name: "old_copy_is_served", In: "cluster/lease", Func: "Lease.owned", Guards: "DESIGN: a relay goes on with what it had only if no other relay held the shard",
		Old: "case !older && f.until != o.Before:", New: "case false:",
		By: "cluster/lease.TestSimulation", Args: []string{"-seeds", "500"},
	},
	{
		Name: "changes_are_not_stored", In: "replication", Func: "Store.emitState", Guards: "INTERFACES: what a game server heard as changed stays when the relay dies",
		Old: "s.checks.touch(now, st)\n\ts.unstored.add(now, st)", New: "s.checks.touch(now, st)",
		By: "replication.TestRestore",
	},
	{
		Name: "ready_without_states", In: "internal/relay", Func: "Relay.Missing", Guards: "INTERFACES: a relay that does not serve what is stored is not ready",
		Old: "len(shards) > 0", New: "false",
		By: "internal/relay.TestUnserved",
	},
	{
		Name: "serves_before_loaded", In: "internal/relay", Func: "Worker.acquire", Guards: "INTERFACES: a relay that takes over has everything that a game server said",
		Old: "if w.relay.cfg.Leases == nil {\n\t\tw.serve(now, o)\n\t\treturn", New: "w.serve(now, o)\n\tif w.relay.cfg.Leases == nil {\n\t\treturn",
		By: "internal/relay.TestFormerNeedsWholeLoad",
	},
	{
		Name: "follows_old_epochs", In: "replication", Func: "Replica.follow", Guards: "DESIGN: replicas follow the highest epoch that they have seen",
		Old: "if epoch < r.top {", New: "if false {",
		By: "replication.TestReplicaNewEpoch",
	},

	// In order, once, and to those who may see it.
	{
		Name: "gaps_are_ignored", In: "replication", Func: "Replica.applyOrBuffer", Guards: "DESIGN: a replica applies the batches of its space in order, without a gap",
		Old: "case !r.broken && h.Prev == r.seq:", New: "case !r.broken:",
		By: "replication.TestReplicaRange",
	},
	{
		Name: "audience_ignored", In: "internal/edge/fanout", Func: "space.offerIn", Guards: "INTERFACES: a client outside the audience of a state does not get it",
		Old: "if !s.includes(st, session) {", New: "if false {",
		By: "internal/edge/fanout.TestRules",
	},
	{
		Name: "late_write_undoes", In: "replication", Func: "stored.overtaken", Guards: "INTERFACES: a write of a client makes one changed, in the order in which the client wrote",
		Old: "case !number.after(m.last):", New: "case m.last == number:",
		By: "replication.TestWriteOrder",
	},
	{
		Name: "older_value_replaces", In: "client", Func: "Client.update", Guards: "INTERFACES: a client is never shown an older value after a newer one",
		Old: "e.Order < s.orders[index]", New: "false",
		By: "client.TestOrder",
	},
	{
		Name: "repeats_are_delivered", In: "dnp", Func: "Conn.receiveReliable", Guards: "DESIGN: a reliable command is delivered once",
		Old: "case arrivalRepeat:\n\t\tc.e.drop(DropRepeat)", New: "case arrivalRepeat:\n\t\tc.deliver(cmd, p, now)",
		By: "dnp.TestReliableInOrder",
	},
	{
		Name: "writes_before_joined", In: "internal/edge/fanout", Func: "Session.advance", Guards: "INTERFACES: a game server hears joined before anything else of a session",
		Old: "s.announced {", New: "true {",
		By: "internal/edge/fanout.TestOrderOfEvents",
	},
	{
		Name: "commands_to_all_loops", In: "publisher", Func: "Space.hear", Guards: "INTERFACES: a command is executed at most once",
		Old: "return // one loop of a queue gets it", New: "// all loops get it",
		By: "publisher.TestCommands",
	},
}
