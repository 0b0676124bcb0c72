package cluster_test

import (
	"flag"
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulation over every deliberate fault (a minute or two)")

// mutantSeeds is the number of seeds within which a fault must be noticed.
const mutantSeeds = 500

var mutantList = []mutants.Mutant{
	{Name: "store_without_chain", File: "cluster/leasehold.go", Old: "ExpectHeartbeat: h.chain,", New: "ExpectHeartbeat: 0,"},
	{Name: "renewal_without_fence", File: "cluster/leasehold.go", Old: "Kind: ActionRenew, ExpectHolder: h.epoch,", New: "Kind: ActionRenew, ExpectHolder: 0,"},
	{Name: "taken_is_ignored", File: "cluster/leasehold.go", Old: "case a.Holder.Seq > h.epoch:\n", New: "case false:\n"},
	{Name: "stale_is_ignored", File: "cluster/leasehold.go", Old: "case fence.Stale:\n\t\th.revalidate = true", New: "case fence.Stale:\n\t\th.next = now.Add(renewInterval)"},
	{Name: "unknown_counts_as_stored", File: "cluster/leasehold.go", Old: "h.revalidate = asked != ActionRenew\n\t\th.next = now", New: "l.written(now, asked, a.Seq)"},
	{Name: "any_heartbeat_counts_as_stored", File: "cluster/leasehold.go", Old: "&& a.Heartbeat.Write == h.storing {", New: "{"},
	{Name: "silence_never_ends_the_lease", File: "cluster/leasehold.go", Old: "now.Sub(l.hold.renewed) >= l.cfg.Silence", New: "now.Sub(l.hold.renewed) >= 10*l.cfg.Silence"},
	{Name: "silence_ends_the_lease_early", File: "cluster/leasehold.go", Old: "now.Sub(l.hold.renewed) >= l.cfg.Silence", New: "now.Sub(l.hold.renewed) >= l.cfg.Silence/3"},
	{Name: "always_durable", File: "cluster/leasehold.go", Old: "l.setDurable(now.Before(l.durableUntil()))\n}\n\nfunc (l *Lease) holdDeadline", New: "}\n\nfunc (l *Lease) holdDeadline"},
	{Name: "renews_too_late", File: "cluster/leasehold.go", Old: "l.sent, l.sent.Add(renewInterval)\n\tif", New: "l.sent, l.sent.Add(8*renewInterval)\n\tif"},
	{Name: "higher_epoch_is_ignored", File: "cluster/lease.go", Old: "epoch > l.hold.epoch {", New: "epoch > 2*l.hold.epoch { // of a million and more"},
	{Name: "no_wait", File: "cluster/leasefollow.go", Old: "f.confirmed = !l.sent.Before(l.challengeEnd()) &&", New: "f.confirmed = "},
	{Name: "outage_counts_as_silence", File: "cluster/leasefollow.go", Old: "f.silent, f.series = true, time.Time{}", New: "f.silent = false"},
	{Name: "reads_do_not_confirm", File: "cluster/leasefollow.go", Old: "if !l.known || l.follow.confirmed {", New: "if !l.known || l.follow.confirmed || !l.told.Before(l.challengeEnd()) {"},
	{Name: "acquire_without_heartbeat", File: "cluster/simstore_test.go", Old: "a.Kind == cluster.ActionAcquire && a.ExpectHeartbeat != s.heartbeat.Seq {", New: "false {"},
	{Name: "target_waits", File: "cluster/leasefollow.go", Old: "return l.holder.To == l.cfg.Node", New: "return false"},
	{Name: "own_trace_is_foreign", File: "cluster/leasefollow.go", Old: "return l.holder.Node == l.cfg.Node && l.holder.ID == l.cfg.ID", New: "return false", Run: "^TestSpareTrace$"},
	{Name: "trusts_the_past", File: "cluster/leasefollow.go", Old: "if l.known && l.inPast(now, a) {", New: "if l.known && l.inPast(now, a) && f.past.IsZero() {"},
	{Name: "other_format_is_read", File: "cluster/lease.go", Old: "json.Unmarshal(p, &h) != nil || h.Format > format.Newest", New: "json.Unmarshal(p, &h) != nil", Run: "^TestHolderOfOtherFormat$"},
	{Name: "ghosts_get_shards", File: "cluster/announced.go", Old: "name == self || heard && !passed", New: "name == self || (heard || true) && !passed"},
	{Name: "gives_again_to_who_let_it_pass", File: "cluster/announced.go", Old: "name == self || heard && !passed", New: "name == self || heard && (!passed || true)"},
	{Name: "who_let_it_pass_is_forgotten", File: "cluster/announced.go", Old: "passTime = time.Minute", New: "passTime = 20 * time.Second"},
	{Name: "announcement_lasts", File: "cluster/announced.go", Old: "announceTimeout = 3 * time.Second", New: "announceTimeout = 10 * time.Second"},
	{Name: "never_a_spare", File: "cluster/lease.go", Old: "return 1500 * time.Millisecond", New: "return time.Hour"},
	{Name: "spares_do_not_wait", File: "cluster/lease.go", Old: "case 1:\n\t\treturn time.Second", New: "case 1:\n\t\treturn 0"},
	{Name: "spare_is_not_told", File: "cluster/leasefollow.go", Old: "return l.rank > 0", New: "return false"},
	{Name: "trace_is_no_spare", File: "cluster/leasefollow.go", Old: "return !l.holder.Released && l.follow.spare", New: "return false", Run: "^TestSpareTrace$"},
	{Name: "successor_counts_as_spare", File: "cluster/leasefollow.go", Old: "return !l.holder.Released && l.follow.spare", New: "return l.rank > 0"},
	{Name: "target_may_wait_for_ever", File: "cluster/lease.go", Old: "targetWait = 2 * time.Second", New: "targetWait = time.Hour"},
	{Name: "target_has_no_time", File: "cluster/lease.go", Old: "targetWait = 2 * time.Second", New: "targetWait = 0"},
	{Name: "hung_worker_keeps_the_shard", File: "cluster/leasehold.go", Old: "if l.hung(now) {", New: "if false {"},
	{Name: "hung_worker_waits_for_the_store", File: "cluster/leasehold.go", Old: "case h.releasing && (h.hung || !h.waiting):", New: "case h.releasing && !h.waiting:", Run: "^TestHungWithBatch$"},
	{Name: "hung_worker_acquires", File: "cluster/lease.go", Old: "} else if l.rank >= 0 && l.hung(now) {", New: "} else if false {"},
	{Name: "worker_hangs_too_soon", File: "cluster/lease.go", Old: "wantTimeout = 3 * time.Second", New: "wantTimeout = 400 * time.Millisecond"},
	{Name: "free_for_all_relays", File: "cluster/leasefollow.go", Old: "return l.holder.Node == l.cfg.Node && l.holder.ID == l.cfg.ID", New: "return l.holder.ID != l.cfg.ID"},
	{Name: "wiped_store_is_not_taken", File: "cluster/lease.go", Old: "l.holder, l.heartbeat, l.known, l.rank = Holder{}, Heartbeat{}, true, 0", New: "l.rank = 0", Run: "^TestWiped$"},
	{Name: "other_holder_is_forgotten", File: "cluster/leasehold.go", Old: "if h.Seq > f.epoch && h.ID != id {", New: "if false {"},
	{Name: "own_trace_is_another_holder", File: "cluster/leasehold.go", Old: "if h.Seq > f.epoch && h.ID != id {", New: "if h.Seq > f.epoch {", Run: "^TestWiped$"},
	{Name: "wiped_store_has_everything", File: "cluster/leasehold.go", Old: "f.wiped = f.wiped || h.Seq < f.epoch", New: "", Run: "^TestWiped$"},
	{Name: "released_shard_is_former", File: "cluster/leasehold.go", Old: "if reason == ReasonSilence || reason == ReasonWiped {", New: "if true {", Run: "^TestWiped$"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{
		Run: "^TestSimulation$", Args: []string{"-seeds", strconv.Itoa(mutantSeeds)}, Rounds: mutants.FirstSeed,
	}, mutantList)
}
