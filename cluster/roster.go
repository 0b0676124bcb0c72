package cluster

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/dnprelay/dnprelay/internal/format"
)

// A Roster is the members of a cluster, sorted by name. It never changes, so goroutines may share
// it. The zero Roster is empty.
//
// It is a hint: see the package comment.
type Roster struct {
	members    []Member
	candidates []candidate // members that may be given shards
}

// NewRoster returns the roster of members, whose slice it does not keep. Of two members with the
// same name the later incarnation counts.
func NewRoster(members []Member) Roster {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(b.Incarnation, a.Incarnation))
	})
	r := Roster{members: slices.CompactFunc(sorted, func(a, b Member) bool { return a.Name == b.Name })}
	for _, m := range r.members {
		if m.CanHold() {
			r.candidates = append(r.candidates, newCandidate(m.Name))
		}
	}
	return r
}

// Len returns the number of members.
func (r Roster) Len() int { return len(r.members) }

// All yields the members in the order of their names. Their addresses must not be
// changed.
func (r Roster) All() iter.Seq[Member] { return slices.Values(r.members) }

// Member returns the member with a name.
func (r Roster) Member(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(r.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return r.members[i], true
}

// Format returns the lowest format that all members read, which is the one to write; see package
// format. For an empty Roster it is the oldest.
func (r Roster) Format() uint8 {
	if len(r.members) == 0 {
		return format.Oldest
	}
	lowest := r.members[0].format()
	for _, m := range r.members[1:] {
		lowest = min(lowest, m.format())
	}
	return lowest
}

// A Difference is the members that are in only one of two rosters, in the order of names. A member
// that was restarted is in Left as it was and in Joined as it is, because the former process has
// gone with everything that it held.
type Difference struct {
	Joined, Left []Member
}

// Since returns the difference from old to r.
func (r Roster) Since(old Roster) (d Difference) {
	for _, was := range old.members {
		if is, ok := r.Member(was.Name); !ok || is.Incarnation != was.Incarnation {
			d.Left = append(d.Left, was)
		}
	}
	for _, is := range r.members {
		if was, ok := old.Member(is.Name); !ok || was.Incarnation != is.Incarnation {
			d.Joined = append(d.Joined, is)
		}
	}
	return d
}
