package systest

import (
	"flag"
	"regexp"
	"slices"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulations over every deliberate fault (some minutes)")

func TestMutantsApply(t *testing.T) { mutants.Check(t, slices.Concat(mutantList, twinMutants)) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{Run: chaosRun, Args: []string{"-seed", "1", "-rounds", "60"}, Rounds: roundsBegun}, slices.Concat(mutantList, twinMutants))
}

var aRound = regexp.MustCompile(`^=== RUN +Test\w+/\d+$`)

// roundsBegun counts the seeds that were tried.
func roundsBegun(lines []string) (n int) {
	for _, line := range lines {
		if aRound.MatchString(line) {
			n++
		}
	}
	return n
}

// The simulations that must notice the faults.
const (
	chaosRun   = "^TestChaos$"
	stormRun   = "^TestStorm$"
	troubleRun = "^TestTrouble$"
	damageRun  = "^TestDamage$"
	handRun    = "^TestHandOver$"
	deathRun   = "^TestHolderDies$"
	joinRun    = "^TestJoinWhileChanging$"
	largeRun   = "^TestLargeSpace$"
	rightsRun  = "^TestRightsCannotBeWidened$"
	boundsRun  = "^TestBounds$"
	floodRun   = "^TestForgedLogins$"
	wipeRun    = "^TestStoreWiped$"
)

// mutantList is deliberate faults all over the system. The leases have a list of their own
// (cluster/mutants_test.go).
var mutantList = []mutants.Mutant{
	// A replica that ignores where a batch belongs, or what the batch says.
	{Name: "replica_ignores_gap", File: "replication/replicarepair.go", Old: "case !r.broken && h.Prev == r.seq:", New: "case !r.broken:"},
	{Name: "replica_applies_repeats", File: "replication/replicarepair.go", Old: "r.stats.Duplicates++", New: "r.applyBatch(h.Seq, records)"},
	{Name: "replica_follows_old_epoch", File: "replication/replicarepair.go", Old: "if epoch < r.top {", New: "if false {"},
	{Name: "replica_trusts_new_epoch", File: "replication/replicarepair.go", Old: "r.top, r.known = epoch, 0\n\tr.broken = true", New: "r.top, r.known = epoch, 0"},
	{Name: "replica_ignores_checksum", File: "replication/replica.go", Old: "\t\tr.doubtState(st.Number, m.Ref)\n\t}\n\treturn true\n", New: "\t}\n\treturn true\n", Run: damageRun},
	{Name: "replica_ignores_bad_record", File: "replication/replica.go", Old: "r.stats.BadRecords++\n\t\t\tr.doubtRecord(&m)", New: "r.stats.BadRecords++", Run: damageRun},
	{Name: "replica_ignores_heads", File: "replication/replicarepair.go", Old: "\tr.known = max(r.known, seq)\n", New: ""},
	{Name: "reply_without_position", File: "replication/replicarepair.go", Old: "older := h.Epoch == r.epoch && h.Seq < r.seq", New: "older := false", Run: damageRun},
	{Name: "reply_to_another_request", File: "replication/replicarepair.go", Old: "h.Prev != r.ask.id || older", New: "older", Run: largeRun,
		Survives: "a whole answer to an earlier request for the same need is as true, and parts are counted per request"},
	{Name: "reply_keeps_what_is_gone", File: "replication/replicarepair.go", Old: "if !st.dead && st.round != r.answer.round {", New: "if false {"},
	{Name: "early_answer_is_all", File: "replication/replicarepair.go", Old: "r.broken, r.open = false, r.ask.from.Early", New: "r.broken, r.open = false, false", Run: "^TestLateWorker$"},
	{Name: "asks_once", File: "replication/replicarepair.go", Old: "r.ask.kind, r.ask.sent, r.ask.last, r.ask.at = q.Kind, true, now, now.Add(r.ask.wait)", New: "r.ask.kind, r.ask.sent, r.ask.last, r.ask.at = q.Kind, true, now, now.Add(time.Hour)",
		Survives: "the next head, at most 250 ms later, makes it ask again"},
	{Name: "buffer_ignores_gap", File: "replication/replicarepair.go", Old: "|| b.held[0].prev != seq {", New: "{"},
	{Name: "null_keeps_value", File: "replication/state.go", Old: "value = s.schema.defs[i].Substitute()", New: "value = s.Values.Value(i)"},
	{Name: "redescribe_changes_nothing", File: "replication/replica.go", Old: "if st.sum != r.asm.st.sum {", New: "if false {"},

	// A store that says too little, too much, or the wrong thing.
	{Name: "store_reuses_numbers", File: "replication/publish.go", Old: "newState(s.next, ", New: "newState(max(s.cfg.FirstNumber, 1)+uint64(len(s.states.all)), "},
	{Name: "removal_not_stored", File: "replication/emit.go", Old: "s.checks.remove(st)\n\ts.unstored.add(now, st)", New: "s.checks.remove(st)", Run: deathRun},
	{Name: "removal_not_told", File: "replication/publish.go", Old: "if st.introduced {\n\t\ts.batch.removed = append(s.batch.removed, st)", New: "if false {\n\t\ts.batch.removed = append(s.batch.removed, st)"},
	{Name: "change_not_stored", File: "replication/emit.go", Old: "s.checks.touch(now, st)\n\ts.unstored.add(now, st)", New: "s.checks.touch(now, st)", Run: deathRun},
	{Name: "null_bits_dropped", File: "replication/view/view.go", Old: "b[len(b)-1] |= 1 << (n % 8)", New: "b[len(b)-1] |= 0"},
	{Name: "null_not_marked", File: "replication/edit.go", Old: "st.set(i, enc, null)\n\tst.dirty.Set(i)", New: "st.set(i, enc, null)\n\tif !null {\n\t\tst.dirty.Set(i)\n\t}"},
	{Name: "describe_crc_ignored", File: "replication/repair.go", Old: "have.describe != st.sum || ", New: ""},
	{Name: "keyframe_crc_ignored", File: "replication/repair.go", Old: "have.keyframe != st.crc(scratch, r)", New: "r.First < 0"},
	{Name: "redescribe_not_told", File: "replication/emit.go", Old: "case st.redescribe:", New: "case false:"},
	{Name: "second_view_not_told", File: "replication/emit.go", Old: "if i >= r.End {\n\t\t\tcontinue", New: "if i >= r.End {\n\t\t\tbreak"},
	{Name: "repair_before_emission", File: "replication/repair.go", Old: "if s.Pending() {\n\t\ts.emit(now)", New: "if false {\n\t\ts.emit(now)"},
	{Name: "range_skips_a_batch", File: "replication/emit.go", Old: "all[min(seq-all[0].seq, ", New: "all[min(seq-all[0].seq+1, "},
	{Name: "ring_forgets_its_age", File: "replication/emit.go", Old: "if len(all) == 0 || seq < all[0].seq {\n\t\treturn nil, false", New: "if len(all) == 0 || seq < all[0].seq {\n\t\treturn all, len(all) > 0"},
	{Name: "own_state_of_another_session", File: "replication/clients.go", Old: "if !st.dead && st.owned.session == session {", New: "if false {", Run: stormRun},

	// Rights that are not checked, and bounds that are not reported.
	{Name: "everybody_may_write", File: "replication/description.go", Old: "return a.Kind == AccessReadWrite || a.Kind == AccessWriters && slices.Contains(a.Writers, client)", New: "return a.Kind <= AccessWriters", Run: rightsRun},
	{Name: "guests_may_write", File: "internal/edge/fanout/session.go", Old: "return r.Claims.Write && st.Desc", New: "return st.Desc", Run: rightsRun},
	{Name: "guests_may_make_states", File: "internal/edge/fanout/ownstates.go", Old: "|| !o.Claims.Write || !o.accept", New: "|| !o.accept", Run: rightsRun},
	{Name: "everybody_is_listed", File: "replication/description.go", Old: "case AudienceListed:\n\t\treturn a.lists(client, groups)", New: "case AudienceListed:\n\t\treturn a.lists(client, groups) || true", Run: rightsRun},
	{Name: "partly_is_ok", File: "replication/codec.go", Old: "return v.Code, true", New: "return 0, false", Run: boundsRun,
		Survives: "a released value that differs from the client's write is sent to it at once, like a refused one"},

	// A relay that serves when it must not, or does not when it must.
	{Name: "serves_before_loaded", File: "internal/relay/ownership.go", Old: "if w.relay.cfg.Leases == nil {\n\t\tw.serve(now, o)\n\t\treturn", New: "w.serve(now, o)\n\tif w.relay.cfg.Leases == nil {\n\t\treturn"},
	{Name: "wiped_states_are_gone", File: "internal/relay/ownership.go", Old: "if old := w.takeFormer(shard, former); old != nil {", New: "if old := w.takeFormer(shard, former); false {", Run: wipeRun},
	{Name: "wiped_states_are_not_stored", File: "internal/relay/former.go", Old: "dirty = len(all)", New: "", Run: wipeRun},
	{Name: "state_on_its_way_is_not_stored", File: "internal/relay/former.go", Old: "st.space.store.MarkDirty(st.since, st.number)", New: "_ = st", Run: wipeRun},
	{Name: "constant_first_number", File: "internal/relay/ownership.go", Old: "return epoch<<14 + 1", New: "return 1"},
	{Name: "no_fence", File: "internal/relay/relay.go", Old: "r.cfg.Leases.Fence(shard, epoch)", New: "_, _ = shard, epoch"},
	{Name: "lost_shard_keeps_states", File: "internal/relay/ownership.go", Old: "for _, sp := range o.spaces {\n\t\tw.removeSpace(sp)", New: "for range o.spaces {"},
	{Name: "lost_shard_goes_on", File: "internal/relay/relay.go", Old: "w.command(e.Shard, e.Epoch, func(now time.Time, o *ownership) { w.lost(now, o, e.Reason) })", New: ""},
	{Name: "hand_over_without_storing", File: "internal/relay/ownership.go", Old: "o.stopServing()\n\tw.store(o, o.dirty())", New: "o.stopServing()", Run: handRun},
	{Name: "hand_over_while_serving", File: "internal/relay/ownership.go", Old: "o.stopServing()\n\tw.store(o, o.dirty())", New: "w.store(o, o.dirty())", Run: handRun},
	{Name: "hand_over_to_itself", File: "internal/relay/placement.go", Old: "if name != node {", New: "if true {", Run: handRun,
		Survives: "a relay announces that it leaves before it does, so the roster does not rank it"},
	{Name: "no_presence_question", File: "internal/relay/presence.go", Old: "if !w.send(bus.Msg{Subject: w.relay.cfg.Subjects.Who(sp.name), Reply: w.relay.inbox + \".\" + sp.name}) {", New: "if true {", Run: stormRun},
	{Name: "no_reassert", File: "internal/relay/ownership.go", Old: "w.publishEvent(&replication.Event{\n\t\tType: replication.EventReassert", New: "_ = (&replication.Event{\n\t\tType: replication.EventReassert", Run: deathRun},
	{Name: "no_heads", File: "internal/relay/ownership.go", Old: "w.send(bus.Msg{Subject: w.relay.cfg.Subjects.Head(o.shard), Data: data})", New: "_ = data"},
	{Name: "publish_not_due", File: "internal/relay/publish.go", Old: "apply.End()\n\tw.plan(sp)", New: "apply.End()"},
	{Name: "wants_every_shard", File: "internal/relay/placement.go", Old: "w.relay.cfg.Leases.Want(shard, rank)", New: "w.relay.cfg.Leases.Want(shard, 0)", Run: handRun,
		Survives: "a relay that takes a free shard of another relay hands it over at once"},

	// An edge that does not carry on, or shows what it must not.
	{Name: "own_states_not_reasserted", File: "internal/edge/fanout/session.go", Old: "for _, own := range s.ownStates.list {\n\t\town.assertNow(now)", New: "for range s.ownStates.list {", Run: stormRun},
	{Name: "writer_gives_up", File: "internal/edge/fanout/request.go", Old: "r.due = now.Add(r.wait)\n\t*next = earlier(*next, r.due)", New: "if r.due = now.Add(r.wait); r.wait == repeatMax {\n\t\tr.due = time.Time{}\n\t}\n\t*next = earlier(*next, now.Add(r.wait))", Run: stormRun},
	{Name: "write_not_held", File: "internal/edge/fanout/writes.go", Old: "wr.conn.Writes().Hold(ev.Link, index, write, value)", New: "", Run: stormRun},
	{Name: "write_released_too_early", File: "internal/edge/fanout/writes.go", Old: "if !v.acknowledged || !wr.arrived(v) {", New: "if !v.acknowledged {", Run: stormRun},
	{Name: "refused_not_reported", File: "internal/edge/fanout/writes.go", Old: "wr.conn.Writes().Refuse(link.ID, v.index)", New: "_ = link", Run: stormRun},
	{Name: "newer_write_overtaken", File: "internal/edge/fanout/writes.go", Old: "case v.number == 0:\n\t\t\treturn wr", New: "default:\n\t\t\treturn wr", Run: stormRun},
	{Name: "drop_not_told", File: "internal/edge/fanout/ownstates.go", Old: "d.repeat.want(now)\n\to.drops", New: "o.drops", Run: stormRun},
	{Name: "change_not_marked", File: "internal/edge/fanout/space.go", Old: "\tf.full.ChangedMask(changed)\n", New: ""},
	{Name: "new_message_not_linked", File: "internal/edge/fanout/space.go", Old: "if included && !newMessage && !wrongRight {", New: "if included && !wrongRight {"},
	{Name: "audience_ignored", File: "internal/edge/fanout/space.go", Old: "if !s.includes(st, session) {", New: "if false {"},
	{Name: "removed_state_linked", File: "internal/edge/fanout/levels.go", Old: "source(st).Remove()\n\tv.end", New: "v.end"},
	{Name: "reconnect_not_noticed", File: "internal/edge/fanout/spaces.go", Old: "sp.replica.Reconnected(now)\n\t\tsp.repeatAll(now)", New: "sp.repeatAll(now)",
		Survives: "the next head, at most 250 ms later, reveals what was missed"},

	// A protocol that trusts the network.
	{Name: "no_refresh", File: "dnp/source.go", Old: "s.repeat()\n\tif r.step++", New: "if r.step++", Run: troubleRun},
	{Name: "no_scrub", File: "dnp/repeat.go", Old: "\tl.sent = 0\n\ts := t.core.sources[l.source]\n\tif l.has(linkByPeer)", New: "\ts := t.core.sources[l.source]\n\tif l.has(linkByPeer)", Run: troubleRun},
	{Name: "offer_counts_open_version", File: "dnp/link.go", Old: "l.sent = t.core.sources[l.source].settled()", New: "l.sent = t.core.sources[l.source].version", Run: joinRun},
	{Name: "encoded_once_for_all", File: "dnp/flush.go", Old: "case l.sent == s.version-1 && s.encodedVersion", New: "case s.encodedVersion"},
	{Name: "link_up_is_enough", File: "dnp/link.go", Old: "if l.sent != t.core.sources[l.source].version {\n\t\tt.mark(slot)", New: "if false {\n\t\tt.mark(slot)"},
	{Name: "link_down_once", File: "dnp/repeat.go", Old: "linkDownSteps = []time.Duration{0, 60 * time.Millisecond, 180 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}", New: "linkDownSteps = []time.Duration{0}", Run: troubleRun},
	{Name: "link_up_once", File: "dnp/repeat.go", Old: "linkUpSteps   = []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}", New: "linkUpSteps = []time.Duration{0}", Run: stormRun},
	{Name: "never_presumes", File: "dnp/link.go", Old: "presumeSteps = []time.Duration{500 * time.Millisecond}", New: "presumeSteps = []time.Duration{time.Hour}", Run: troubleRun},
	{Name: "acknowledged_and_dropped", File: "dnp/reliable.go", Old: "c.recv.keep(early{n: n, cmd: cmd, buf: append(c.e.buffer(), p...)}, now)", New: "c.recv.next = n", Run: troubleRun},
	{Name: "repeat_delivered", File: "dnp/reliable.go", Old: "case arrivalRepeat:\n\t\tc.e.drop(DropRepeat)", New: "case arrivalRepeat:\n\t\tc.deliver(cmd, p, now)", Run: troubleRun},
	{Name: "early_delivered", File: "dnp/recvwindow.go", Old: "case n < w.next || w.has(n):\n\t\treturn n, arrivalRepeat", New: "case n < w.next:\n\t\treturn n, arrivalRepeat\n\tcase n > w.next+2:\n\t\treturn n, arrivalDue", Run: troubleRun},
	{Name: "held_value_sent", File: "dnp/hold.go", Old: "case held.undecided:\n\t\treturn true", New: "case held.undecided:\n\t\treturn false", Run: stormRun},

	// Connections of carried clients that are lost, forgotten, or take nothing.
	{Name: "late_end_takes_the_new_connection", File: "internal/edge/carrier/hub.go", Old: "if h.conns[c.addr] == c {", New: "if true {"},
	{Name: "carried_seats_are_kept", File: "internal/edge/carrier/conn.go", Old: "\tc.hub.leave(c.home)\n", New: ""},
	{Name: "carried_writable_is_not_told", File: "internal/edge/carried.go", Old: "func (r *carriage) Writable(c *carrier.Conn) {\n\tr.w.must(func(time.Time) { r.w.setReachable(c.Addr()) })", New: "func (r *carriage) Writable(c *carrier.Conn) {\n\t_ = c"},
	{Name: "carried_are_not_told_that_it_is_over", File: "internal/edge/carried.go", Old: "w.node.hub.End(client, carrier.Unknown)", New: "_ = client"},
	{Name: "carried_lost_but_reachable", File: "internal/edge/carried.go", Old: "c, room := w.node.hub.Conn(client), 0", New: "c, room := w.node.hub.Conn(client), -1"},
	{Name: "link_down_while_away", File: "dnp/repeat.go", Old: "for p.budget.crowd.room != 0 {", New: "for {"},
	{Name: "confirmed_stays_on_its_way", File: "internal/edge/carrier/flow.go", Old: "f.way, f.marked = f.way-bytes, 0", New: "f.marked = 0"},
	{Name: "carried_end_is_not_heard", File: "internal/edge/carried.go", Old: "r.w.takeover.DirectLost(now, c.Addr())\n\t\t}\n\t\tr.w.setReachable(c.Addr())", New: "r.w.takeover.DirectLost(now, c.Addr())\n\t\t}"},

	// Forged logins that take what others need.
	{Name: "login_not_greeted", File: "dnp/proof.go", Old: "case verdict == admit.Stateless:\n\t\te.greet(from, 1+len(p), now, out)", New: "case verdict == admit.Stateless:", Run: floodRun},
	{Name: "greeting_never_proves", File: "dnp/proof.go", Old: "u = e.addUnproven(from, now)\n\t}\n\tu.hello, u.number", New: "return\n\t}\n\tu.hello, u.number", Run: floodRun},
	{Name: "greetings_without_numbers", File: "dnp/proof.go", Old: "c.send.next = uint64(processed)", New: "", Run: floodRun},
	{Name: "forged_logins_take_all", File: "dnp/admit/gate.go", Old: "!g.unproven.take(t)", New: "!g.logins.take(t)", Run: floodRun},
	{Name: "strangers_asked_about", File: "internal/edge/takeover/adopt.go", Old: "!b.orphans.waiting(from) && !b.mayAsk(now, o.data)", New: "false", Run: floodRun},
}
