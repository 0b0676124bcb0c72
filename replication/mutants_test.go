package replication

import (
	"flag"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the tests of bounds against every deliberate fault")

// mutantList contains the deliberate faults in the bounds of clients' writes. internal/systest
// has those of the rest of the package, which tests of whole systems must notice.
var mutantList = []mutants.Mutant{
	{Name: "min_is_exclusive", File: "replication/bounds.go", Old: "case b.Min != nil && !atLeast(kind, c, b.Min):", New: "case b.Min != nil && atLeast(kind, b.Min, c):"},
	{Name: "max_is_exclusive", File: "replication/bounds.go", Old: "case b.Max != nil && !atLeast(kind, b.Max, c):", New: "case b.Max != nil && atLeast(kind, c, b.Max):"},
	{Name: "first_component_only", File: "replication/bounds.go", Old: "for ; len(enc) > 0; enc = enc[width:] {", New: "for ; len(enc) > 0; enc = nil {"},
	{Name: "signed_as_unsigned", File: "replication/bounds.go", Old: "return Int(a) >= Int(b)", New: "return Uint(a) >= Uint(b)"},
	{Name: "infinity_is_finite", File: "replication/bounds.go", Old: "return !math.IsNaN(x) && !math.IsInf(x, 0)", New: "return !math.IsNaN(x)"},
	{Name: "finite_only_with_bounds", File: "replication/bounds.go", Old: "(b == nil || !b.Infinite)", New: "(b != nil && !b.Infinite)"},
	{Name: "infinite_lets_everything_through", File: "replication/bounds.go", Old: "case b == nil:\n\t\tcase b.Min", New: "case b == nil || b.Infinite:\n\t\tcase b.Min"},
	{Name: "bounds_not_stored", File: "replication/durable.go", Old: "appendStoredDescribe(nil, e.st.Desc)", New: "appendDescribe(nil, e.st.Desc)"},
	{Name: "bounds_told_to_replicas", File: "replication/description.go", Old: "return appendDefs(b, d.Values, d.ValueMax)\n}", New: "return appendBounds(appendDefs(b, d.Values, d.ValueMax), d.Values)\n}"},
	{Name: "schemas_without_bounds", File: "replication/schema.go", Old: "appendBounds(appendDefs(c.scratch[:0], defs, valueMax), defs)", New: "appendDefs(c.scratch[:0], defs, valueMax)"},
	{Name: "one_bad_value_takes_all", File: "replication/clients.go", Old: "\ts.edit.values = allowed\n", New: "\tif s.edit.values = allowed; len(refused) > 0 {\n\t\ts.edit.values = nil\n\t}\n"},
	{Name: "refused_is_applied", File: "replication/clients.go", Old: "\ts.edit.values = allowed\n", New: ""},
	{Name: "repetition_is_charged", File: "replication/clients.go", Old: "string(st.Values.Value(v.index)) == string(enc) {", New: "false {"},
	{Name: "refused_is_charged", File: "replication/clients.go", Old: "if p.full-now > step*time.Duration(atOnce-1) {\n\t\treturn false", New: "if p.full-now > step*time.Duration(atOnce-1) {\n\t\tp.full += step\n\t\treturn false"},
	{Name: "one_too_many_at_once", File: "replication/clients.go", Old: "step*time.Duration(atOnce-1)", New: "step*time.Duration(atOnce)"},
	{Name: "idle_saves_up", File: "replication/clients.go", Old: "p.full = max(p.full, now) + step", New: "p.full += step"},
	{Name: "rate_shared_by_values", File: "replication/clients.go", Old: "return v.index == i })", New: "return true })"},
	{Name: "events_without_end", File: "replication/clients.go", Old: "if !r.pace.allow(", New: "if r.pace.allow(s.clock.age(now), refusedPause, refusedAtOnce); false && !r.pace.allow("},
	{Name: "missed_never_forgotten", File: "replication/clients.go", Old: "\tr.missed = 0\n", New: "", Run: "Paced"},
	{Name: "moves_uncounted", File: "replication/writenumber.go", Old: "epoch > numberEpochMax || n>>", New: "n>>", Run: "WriteOrder"},
	{Name: "many_writes_uncounted", File: "replication/writenumber.go", Old: "epoch > numberEpochMax || n>>numberCountBits != 0 {", New: "epoch > numberEpochMax {", Run: "WriteOrder"},
	{Name: "wide_number_ignored", File: "replication/writenumber.go", Old: "if a.wide == 0 && b.wide == 0 {", New: "if true {", Run: "WriteOrder"},
	{Name: "again_says_ok", File: "replication/clients.go", Old: "if m.refused && m.last == number {", New: "if false {"},
	{Name: "groups_of_other_clients", File: "replication/clients.go", Old: "\t\treturn WriteBusy\n\t}\n\tif len(w.Join)", New: "\t}\n\tif len(w.Join)", Run: "TestStoreWritesOfSessions"},
	{Name: "groups_without_limits", File: "replication/clients.go", Old: "\tif len(groups) > s.limits.Groups {", New: "\tif false {", Run: "TestStoreWritesOfSessions"},
	{Name: "set_of_a_state_that_is_gone", File: "replication/publish.go", Old: "!last.follower.dead && ", New: "", Run: "TestSetOrder"},
	{Name: "set_of_what_followed", File: "replication/publish.go", Old: " && last.follower.Desc.Key == key {", New: " {", Run: "TestSetOrder"},
	{Name: "gone_states_follow", File: "replication/publish.go", Old: "\tst.follower = nil\n", New: "", Run: "TestSetOrder"},
	{Name: "ttl_not_renewed", File: "replication/expiry.go", Old: "\t\t\te.begin(now, st)\n", New: "\t\t\tif !st.expires() {\n\t\t\t\te.begin(now, st)\n\t\t\t}\n", Run: "TTL"},
	{Name: "ttl_never_removed", File: "replication/expiry.go", Old: "\t\t\te.heap.Remove(st)\n\t\tdefault", New: "\t\tdefault", Run: "TTL"},
	{Name: "ttl_not_shortened", File: "replication/expiry.go", Old: "x.place == 0 || x.until.Before(x.due)", New: "x.place == 0", Run: "TTL"},
	{Name: "ttl_not_longer_than_first", File: "replication/expiry.go", Old: "if !now.Before(x.until) {", New: "if true {", Run: "TTL"},
	{Name: "ttl_of_restored_is_over", File: "replication/expiry.go", Old: "\t\t\tx.until = now.Add(st.Desc.TTL)\n\t\t}\n\t\tif", New: "\t\t\tx.until = now\n\t\t}\n\t\tif", Run: "TTL"},
	{Name: "ttl_of_restored_never_ends", File: "replication/durable.go", Old: "\ts.expiries.restore(st)\n", New: "", Run: "TTL"},
	{Name: "ttl_renewed_by_rolled_back", File: "replication/publish.go", Old: "s.expiries.rollback()", New: "s.expiries.commit(now)", Run: "TTL"},
	{Name: "ttl_lost_by_rollback", File: "replication/publish.go", Old: "\t\tif expires {", New: "\t\tif expires && false {", Run: "TTL"},
	{Name: "ttl_alone_not_stored", File: "replication/publish.go", Old: "desc.TTL == old.TTL && ", New: "", Run: "TTL"},
	{Name: "ttl_wakes_late", File: "replication/store.go", Old: "expires && (!ok || at.Before(next))", New: "expires && !ok", Run: "TTL"},
	{Name: "ttl_all_end_at_once", File: "replication/expiry.go", Old: "for s.expiries.ended < expiredMax {", New: "for {", Run: "TTL"},
	{Name: "ttl_ends_no_more", File: "replication/emit.go", Old: "\ts.expiries.ended = 0\n", New: "", Run: "TTL"},
	{Name: "ttl_ends_in_silence", File: "replication/expiry.go", Old: "\t\ts.batch.send(", New: "\t\t_ = (", Run: "TTL"},
	{Name: "set_does_not_renew", File: "replication/publish.go", Old: "\ts.expiries.mention(st)\n\treturn nil\n}\n\nfunc (s *Store) remove", New: "\treturn nil\n}\n\nfunc (s *Store) remove", Run: "TTL"},
	{Name: "interest_changed_uncounted", File: "replication/publish.go", Old: "\ts.records.use(desc.Interest, 1)\n\ts.records.use(old.Interest, -1)\n", New: "", Run: "Interest"},
	{Name: "interest_rollback_uncounted", File: "replication/publish.go", Old: "\t\t}\n\t\ts.records.use(st.Desc.Interest, 1)\n", New: "\t\t}\n", Run: "^TestStoreInterest$"},
	{Name: "interest_restored_uncounted", File: "replication/durable.go", Old: "\ts.records.use(st.Desc.Interest, 1)\n", New: "", Run: "Interest"},
	{Name: "inline_interests_stay", File: "replication/emit.go", Old: "\ts.records.dropUnused()\n", New: "", Run: "Interest"},
	{Name: "clear_keeps_interests", File: "replication/publish.go", Old: "!st.dead && firstToken(st.Desc.Key) == interestToken", New: "false", Run: "Interest"},
	{Name: "interest_lost_by_put", File: "replication/publish.go", Old: "if op.HasInterest {", New: "if desc.Interest = \"\"; true {", Run: "Interest"},
	{Name: "interest_shown_as_level", File: "replication/description.go", Old: "\td.takeInterest()\n", New: "", Run: "Interest"},
	{Name: "interests_without_limit", File: "replication/interest.go", Old: "if n >= InterestsMax {", New: "if false {", Run: "Interest"},
	{Name: "interest_unfit_for_new_values", File: "replication/publish.go", Old: "\tif err := s.records.checkInterest(d); err != nil {", New: "\tif err := s.records.checkInterest(d); false {", Run: "Interest"},
	{Name: "eyes_outlive_client", File: "replication/clients.go", Old: "{groupsKey(client), eyesKey(client)}", New: "{groupsKey(client)}", Run: "Eyes"},
	{Name: "eyes_outlive_holder", File: "replication/limits.go", Old: "return strings.CutPrefix(key, eyesToken+\".\")", New: "return \"\", false", Run: "Interest"},
	{Name: "every_eye_in_empty_spaces", File: "replication/interest.go", Old: "r.store.cfg.Eye.Key != \"\" && len(r.store.sessions) > 0", New: "r.store.cfg.Eye.Key != \"\"", Run: "Eye"},
	{Name: "events_not_kept", File: "replication/interest.go", Old: "flags |= interestEvents", New: "flags |= 0", Run: "Interest"},
	{Name: "unknown_hints_refused", File: "replication/interest.go", Old: "flags%interestEvents > interestUnlink", New: "flags > interestUnlink|interestEvents", Run: "Interest"},
	{Name: "unknown_rules_ignored", File: "replication/interest.go", Old: "flags%interestEvents > interestUnlink || ", New: "", Run: "Interest"},
	{Name: "infinite_states_made", File: "replication/clients.go", Old: "refused := s.dropInfinite(c)", New: "var refused []EventValue"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("needs -mutants, because every fault is compiled")
	}
	mutants.Run(t, mutants.Config{Run: "Bounds|Refused|Infinite|Pace|TestStoreWrites", Args: []string{"-seed", "1"}}, mutantList)
}
