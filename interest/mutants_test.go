package interest

import (
	"flag"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the tests against every deliberate fault")

// mutantList contains the deliberate faults in grids and bands.
var mutantList = []mutants.Mutant{
	{Name: "no_hysteresis", File: "interest/rule.go", Old: "square <= r.leave[was] {", New: "false {"},
	{Name: "hysteresis_inwards", File: "interest/rule.go", Old: "if was < to && int(was)", New: "if was != to && int(was)"},
	{Name: "border_is_outside", File: "interest/rule.go", Old: "if square <= r.enter[i] {", New: "if square < r.enter[i] {"},
	{Name: "all_axes_count", File: "interest/rule.go", Old: "if a&AxisY == 0 {\n\t\tp.Y = 0", New: "if a == 0 {\n\t\tp.Y = 0"},
	{Name: "infinity_is_a_place", File: "interest/rule.go", Old: "return p.X-p.X == 0 &&", New: "return p.X == p.X &&"},
	{Name: "moved_within_old_cell", File: "interest/grid.go", Old: "\to.cell = cell\n", New: ""},
	{Name: "cell_never_left", File: "interest/grid.go", Old: "if cell == o.cell {", New: "if o.state == placed {"},
	{Name: "last_spot_keeps_its_place", File: "interest/grid.go", Old: "\tall[o.place].object.place = o.place\n", New: ""},
	{Name: "move_within_a_cell_is_lost", File: "interest/grid.go", Old: "\t\t\t(*g.bucket(cell))[o.place].at = to\n", New: ""},
	{Name: "buckets_remember_crowds", File: "interest/grid.go", Old: "last < cap(all)/4 {", New: "false {", Run: "Bounds"},
	{Name: "nowhere_stays", File: "interest/grid.go", Old: "\tif !ok {\n\t\tg.unlink(o)\n", New: "\tif !ok {\n"},
	{Name: "reach_without_hysteresis", File: "interest/rule.go", Old: "r.most * (1 + hysteresis) * (1 + 1e-9)", New: "r.most"},
	{Name: "reach_of_first_rule", File: "interest/grid.go", Old: "l.reach, l.least = max(l.reach, r.reach()), min(l.least, r.least)", New: "_ = 0", Run: "Layer"},
	{Name: "cells_overflow", File: "interest/grid.go", Old: "int64(max(-cellMost, min(cellMost, n)))", New: "int64(n)"},
	{Name: "cells_culled", File: "interest/grid.go", Old: "d := max(low-v, v-(low+l.size), 0)", New: "d := max(low-v, v-low, 0)"},
	{Name: "layers_forgotten_early", File: "interest/grid.go", Old: "if l.objects--; l.objects > 0 {", New: "if l.objects--; l.objects > 1 {"},
	{Name: "removed_is_told", File: "interest/bander.go", Old: "if k.object.state == removed {\n\t\t\tcontinue", New: "if false {\n\t\t\tcontinue"},
	{Name: "last_eye_counts", File: "interest/bander.go", Old: "k.square = min(k.square, h.square)", New: "k.square = h.square"},
	{Name: "index_of_another_sight", File: "interest/bander.go", Old: "s.known[o.index].object == o {", New: "true {"},
	{Name: "jumps_wait", File: "interest/bander.go", Old: "!(square(from, to) <= limit*limit) {", New: "limit < 0 {"},
	{Name: "every_step_is_a_jump", File: "interest/bander.go", Old: "!(square(from, to) <= limit*limit) {", New: "limit >= 0 {"},
	{Name: "jumps_from_last_step", File: "interest/bander.go", Old: "from := s.lookedAt[eye]", New: "from := s.eyes[eye]"},
	{Name: "jumps_without_pause", File: "interest/bander.go", Old: "at := s.jumpedAt.Add(jumpPause)", New: "at := s.jumpedAt"},
	{Name: "looks_together", File: "interest/bander.go", Old: "phase: time.Duration(part * float64(lookInterval))", New: "phase: time.Duration(part)"},
	{Name: "looks_drift", File: "interest/bander.go", Old: "return now.Add(lookInterval - since)", New: "return now.Add(lookInterval)"},
	{Name: "eyes_gone_unnoticed", File: "interest/bander.go", Old: "if len(s.eyes)+len(s.known) == 0 {", New: "if len(s.eyes) == 0 {"},
	{Name: "lost_inside", File: "interest/bander.go", Old: "if o.rule.band(k.band, out) != Beyond {", New: "if false {"},
	{Name: "lost_twice", File: "interest/bander.go", Old: "k.object != o || k.band == Beyond {", New: "k.object != o {"},
	{Name: "jumps_add_up_to_nothing", File: "interest/grid.go", Old: "\t}\n\t*o.anchor = at\n", New: "\t}\n"},
	{Name: "crowds_remembered", File: "interest/bander.go", Old: "\ts.shrink()\n", New: ""},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("needs -mutants, because every fault is compiled")
	}
	mutants.Run(t, mutants.Config{Run: "Hysteresis|Eyes|Nowhere|Rule|Jump|Spread|Bounds|Layer|Model", Args: []string{"-seed", "1", "-steps", "200000"}}, mutantList)
}
