package cluster_test

import (
	"flag"
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulation over every deliberate fault (a minute or two)")

// mutantSeeds is within how many seeds a fault must be noticed.
const mutantSeeds = 500

var mutantList = []mutants.Mutant{
	{Name: "store_without_chain", File: "cluster/leasehold.go", Old: "ExpectBeat: h.chain,", New: "ExpectBeat: 0,"},
	{Name: "beat_without_fence", File: "cluster/leasehold.go", Old: "Kind: ActionBeat, Expect: h.epoch,", New: "Kind: ActionBeat, Expect: 0,"},
	{Name: "taken_is_ignored", File: "cluster/leasehold.go", Old: "case a.Own.Seq > h.epoch:\n", New: "case false:\n"},
	{Name: "stale_is_ignored", File: "cluster/leasehold.go", Old: "case Stale:\n\t\th.doubt = true", New: "case Stale:\n\t\th.next = now.Add(l.cfg.Beat)"},
	{Name: "unknown_counts_as_stored", File: "cluster/leasehold.go", Old: "h.doubt = asked != ActionBeat\n\t\th.next = now", New: "l.written(now, asked, a.Seq)"},
	{Name: "any_beat_counts_as_stored", File: "cluster/leasehold.go", Old: "&& a.Beat.Write == h.storing {", New: "{"},
	{Name: "silence_never_ends_holding", File: "cluster/leasehold.go", Old: "now.Sub(l.hold.renewed) >= l.cfg.Silence", New: "now.Sub(l.hold.renewed) >= 10*l.cfg.Silence"},
	{Name: "silence_ends_holding_early", File: "cluster/leasehold.go", Old: "now.Sub(l.hold.renewed) >= l.cfg.Silence", New: "now.Sub(l.hold.renewed) >= l.cfg.Silence/3"},
	{Name: "always_durable", File: "cluster/leasehold.go", Old: "l.setDurable(now.Before(l.durableUntil()))\n}\n\nfunc (l *Lease) holdDeadline", New: "}\n\nfunc (l *Lease) holdDeadline"},
	{Name: "renews_too_late", File: "cluster/leasehold.go", Old: "l.sent, l.sent.Add(l.cfg.Beat)\n\tif", New: "l.sent, l.sent.Add(8*l.cfg.Beat)\n\tif"},
	{Name: "higher_epoch_is_ignored", File: "cluster/lease.go", Old: "epoch > l.hold.epoch {", New: "epoch > 2*l.hold.epoch { // of a million and more"},
	{Name: "no_wait", File: "cluster/leasefollow.go", Old: "f.confirmed = !l.sent.Before(f.quiet.Add(l.cfg.Wait)) &&", New: "f.confirmed = "},
	{Name: "outage_counts_as_silence", File: "cluster/leasefollow.go", Old: "f.silent, f.series = true, time.Time{}", New: "f.silent = false"},
	{Name: "reads_do_not_confirm", File: "cluster/leasefollow.go", Old: "case l.known && (l.free() || f.confirmed):", New: "case l.known && (l.free() || !now.Before(f.quiet.Add(l.cfg.Wait))):"},
	{Name: "acquire_without_beat", File: "cluster/simstore_test.go", Old: "a.Kind == cluster.ActionAcquire && a.ExpectBeat != s.beat.Seq {", New: "false {"},
	{Name: "target_waits", File: "cluster/leasefollow.go", Old: `return l.own.To == "" || l.own.To == l.cfg.Node`, New: `return l.own.To == ""`},
	{Name: "own_trace_is_foreign", File: "cluster/leasefollow.go", Old: "return l.own.Node == l.cfg.Node && l.own.ID == l.cfg.ID", New: "return false"},
	{Name: "trusts_the_past", File: "cluster/leasefollow.go", Old: "if l.known && l.inPast(now, a) {", New: "if l.known && l.inPast(now, a) && f.past.IsZero() {"},
	{Name: "free_for_everybody", File: "cluster/leasefollow.go", Old: "return l.own.Node == l.cfg.Node && l.own.ID == l.cfg.ID", New: "return l.own.ID != l.cfg.ID"},
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
