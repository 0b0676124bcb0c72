//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// How old an accepted publish and a client's write may be until every client has to
// have them, in equal. Both are far above what the way takes on a machine with
// nothing else to do, and far below the bars.
const (
	busySlack = 150 * time.Millisecond
	lampSlack = 500 * time.Millisecond
)

// How long clients have to have everything until that counts, how often that is
// looked at, and when it is given up.
const (
	equalHold = 500 * time.Millisecond
	equalLook = 10 * time.Millisecond
	equalMost = 20 * time.Second
)

// differences says what players see that is not what the game server says; of the
// clean ones only, or of all.
func (r *run) differences(now time.Time, all bool) string {
	quiet, busy := r.game.wanted(now.Add(-busySlack))
	lamp := r.lamp.before(now.Add(-lampSlack))
	var b strings.Builder
	for _, p := range r.everybody {
		if !p.clean && !all {
			continue
		}
		for key, v := range quiet {
			if got := p.value(key); got != v {
				fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.name, key, got, v)
			}
		}
		for _, key := range busyKeys {
			if got := p.value(key); got < busy {
				fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.name, key, got, busy)
			}
		}
		if got := p.value(lampKey); p != r.lamp.player && got < lamp {
			fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.name, lampKey, got, lamp)
		}
		for _, d := range r.ledger.differences(p) {
			b.WriteString(d + "; ")
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// equalSince waits until players have everything for some time, and returns when that
// began. The error says what differs.
func (r *run) equalSince(ctx context.Context, all bool) (since time.Time, err error) {
	end := time.Now().Add(equalMost)
	for {
		now := time.Now()
		different := r.differences(now, all)
		switch {
		case different != "" && now.After(end):
			return now, fmt.Errorf("not equal after %v: %s", equalMost, different)
		case different != "":
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= equalHold:
			return since, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(equalLook):
		}
	}
}
