package cluster

import "time"

// Times and bounds of announcements.
const (
	// AnnounceInterval is how often a relay announces itself.
	AnnounceInterval = 500 * time.Millisecond

	// announceTimeout is the silence after which a relay gets no more shards.
	announceTimeout = 3 * time.Second

	// passTime is how long a relay gets no shards after it let one pass. It is arbitrary: a
	// relay that cannot acquire shards costs a few seconds without a holder each time, and one
	// that was only slow has fewer shards for so long.
	passTime = time.Minute

	// announcedMax bounds the relays that are remembered; others count as silent.
	announcedMax = 1024
)

// Announced is what a relay knows of the others from what they do, rather than from gossip, which
// is not evidence: every edge has its key. A relay announces itself on the bus, where only relays
// may, and only while its workers turn. The zero value has heard nothing.
type Announced struct {
	heard  map[string]time.Time // when, by relay
	passed map[string]time.Time // when it let a shard pass
}

// Heard takes an announcement, and reports whether the relay had been silent.
func (a *Announced) Heard(now time.Time, relay string) (news bool) {
	at, ok := a.heard[relay]
	if !ok && len(a.heard) >= announcedMax {
		return false
	}
	if a.heard == nil {
		a.heard = make(map[string]time.Time)
	}
	a.heard[relay] = now
	return !ok || now.Sub(at) >= announceTimeout
}

// Left takes the announcement of a relay that may be given no shards any longer, and reports whether
// it could.
func (a *Announced) Left(relay string) (news bool) {
	_, news = a.heard[relay]
	delete(a.heard, relay)
	return news
}

// Passed says that a relay, self, took a shard because those that rank before it in r did not.
func (a *Announced) Passed(now time.Time, r Roster, shard int, self string) {
	if a.passed == nil {
		a.passed = make(map[string]time.Time)
	}
	for _, name := range r.Ranking(shard) {
		if name == self {
			return
		}
		a.passed[name] = now
	}
}

// Candidates returns r with only those candidates that a relay, self, may give shards to: itself,
// and those that announced themselves lately and let no shard pass. So a relay that hears nothing
// gives nothing away.
func (a *Announced) Candidates(now time.Time, r Roster, self string) Roster {
	forget(a.heard, now, announceTimeout)
	forget(a.passed, now, passTime)
	return r.only(func(name string) bool {
		_, heard := a.heard[name]
		_, passed := a.passed[name]
		return name == self || heard && !passed
	})
}

// forget removes what is older than a time.
func forget(list map[string]time.Time, now time.Time, age time.Duration) {
	for name, at := range list {
		if now.Sub(at) >= age {
			delete(list, name)
		}
	}
}
