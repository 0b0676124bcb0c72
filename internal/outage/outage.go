// Package outage tells when a service begins to fail and when it works again, for log lines.
package outage

import (
	"sync/atomic"
	"time"
)

// End is how long nothing must fail until an outage is over. A service that runs short, for instance of
// disk, still does a part of what it is asked, which does not end the outage. The value is arbitrary.
const End = 10 * time.Second

// An Outage is a time in which a service fails. Of all goroutines, one is told of its beginning
// and one of its end. The zero value is a service that works.
type Outage struct {
	on     atomic.Bool
	failed atomic.Int64 // the newest time, in Unix nanoseconds
}

// Fails notes that the service fails, and reports whether an outage begins with that.
func (o *Outage) Fails(now time.Time) bool {
	o.failed.Store(now.UnixNano())
	return !o.on.Swap(true)
}

// Works notes that the service works, and reports whether an outage is over.
func (o *Outage) Works(now time.Time) bool {
	return o.on.Load() && now.UnixNano()-o.failed.Load() >= int64(End) && o.on.CompareAndSwap(true, false)
}
