package natslog

import (
	"sync/atomic"
	"time"
)

// outageQuiet is for how long nothing has to be refused until an outage is over. A store
// that is nearly full takes some writes and refuses others. It is arbitrary.
const outageQuiet = 10 * time.Second

// An outage is a while in which the store refuses writes. Its beginning and its end are
// reported once each, to whichever goroutine notices.
type outage struct {
	on      atomic.Bool
	refusal atomic.Int64 // when the newest was, in Unix nanoseconds
}

// refused notes a refusal, and reports whether an outage begins with it.
func (o *outage) refused(now time.Time) bool {
	o.refusal.Store(now.UnixNano())
	return !o.on.Swap(true)
}

// taken notes a write that was stored, and reports whether an outage is over.
func (o *outage) taken(now time.Time) bool {
	return o.on.Load() && now.UnixNano()-o.refusal.Load() >= int64(outageQuiet) && o.on.CompareAndSwap(true, false)
}
