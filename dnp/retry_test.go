package dnp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// TestRetryScheduleAgain asks for one more LinkUp while earlier ones are still scheduled,
// of this link and of others. All of them must be sent.
func TestRetryScheduleAgain(t *testing.T) {
	l := retrySchedule{steps: &linkUpSteps}
	var sent []string
	until := func(end time.Duration) {
		for l.nextTimeout() <= instant(end) {
			now := l.nextTimeout()
			m, ok := l.next(now)
			if !ok {
				t.Fatalf("nothing is due at %v, when it should be", time.Duration(now))
			}
			sent = append(sent, fmt.Sprintf("%d@%v", m.link, time.Duration(now)))
		}
	}
	l.start(retry{link: 1})
	until(20 * time.Millisecond)
	l.again(wire.LinkID(1), instant(24*time.Millisecond)) // it is scheduled already
	until(3 * time.Second)
	l.start(retry{link: 2, start: instant(3 * time.Second)})
	until(4100 * time.Millisecond)                          // only the last step of 2 is left
	l.again(wire.LinkID(1), instant(4200*time.Millisecond)) // which must not delay 1
	until(time.Minute)
	want := []string{"1@0s", "1@250ms", "1@500ms", "1@1s", "1@2s", "2@3s", "2@3.25s", "2@3.5s", "2@4s", "1@4.2s", "2@5s"}
	if !slices.Equal(sent, want) {
		t.Errorf("sent %v\nwant %v", sent, want)
	}
}
