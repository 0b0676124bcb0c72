//go:build linux

package clustertest

import (
	"fmt"
	"time"
)

// failMost is how long a publish may take to fail without NATS. It takes a moment; the
// bound leaves room for a machine that is busy, and is far below any timeout.
const failMost = time.Second

// natsNoticed is how long nodes may take to say that NATS is missing. A connection to
// a process that died ends at once.
const natsNoticed = 3 * time.Second

// checkWithoutNATS wants nodes and publishers to be as they should without NATS:
// edges serve and say what is missing, relays are not ready, publishers get errors at
// once.
func (s *scene) checkWithoutNATS(since time.Duration) {
	note := func(format string, args ...any) {
		s.violations = append(s.violations, fmt.Sprintf("%.0f s without NATS: ", since.Seconds())+fmt.Sprintf(format, args...))
	}
	if since < natsNoticed {
		return
	}
	for _, n := range s.edges {
		if h := ask(s.web, n.host); !h.live || !h.ready || !h.lacks("nats") {
			note("%s is live: %v, ready: %v, missing: %q", n.name, h.live, h.ready, h.missing)
		}
	}
	for _, n := range s.relays {
		if h := ask(s.web, n.host); !h.live || h.ready || !h.lacks("nats") {
			note("%s is live: %v, ready: %v, missing: %q", n.name, h.live, h.ready, h.missing)
		}
	}
	s.game.mu.Lock()
	defer s.game.mu.Unlock()
	if s.game.failed == 0 || s.game.slowest > failMost {
		note("%d publishes failed at once, the slowest after %v", s.game.failed, s.game.slowest)
	}
}
