package edge

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
)

// reofferInterval is the least time between two looks at what clients lack that
// have as many links as they may. Each look costs a search per state.
const reofferInterval = time.Second

// A shortage is states that clients should see and were not offered, because they
// had as many links as they may have. Which ones is not kept: when links ended,
// everything is offered to those clients again.
type shortage struct {
	ended bool // a link ended since the last look
	next  time.Time
}

// advanceShortage looks, if it may help, and returns when that has to be done.
func (s *space) advanceShortage(now, next time.Time) time.Time {
	if !s.shortage.ended {
		return next
	}
	if now.Before(s.shortage.next) {
		return earlier(next, s.shortage.next)
	}
	s.shortage = shortage{next: now.Add(reofferInterval)}
	for _, session := range s.sessions {
		if session.short {
			session.short = false
			s.offerAll(session)
		}
	}
	return next
}

// decline remembers that the client does not want a state, so that it is not
// offered again whenever something else about it changes. The sources of states
// that end are taken out, so there are no more than the space has states.
func (s *session) decline(source *dnp.Source) {
	if s.declined == nil {
		s.declined = make(map[*dnp.Source]struct{})
	}
	s.declined[source] = struct{}{}
}
