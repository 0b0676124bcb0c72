package replication

// A write request of a durable session is numbered by the epoch of its edge and its count in
// that epoch. The number has 8 bits of the epoch above 24 bits of the count, which is enough
// until a session has changed its edge 127 times, or one edge has made 2^24 requests. From then
// on a request has the wide number, too, with 32 bits of each. It is in a header, which costs more than the
// request.
const (
	numberCountBits = 24
	numberEpochMax  = 127 // numbers are compared as they wrap
	wideCountBits   = 32
)

// WriteNumbers returns the numbers of the n-th write request that an edge makes in an epoch of
// a durable session. wide is 0 if number says all.
func WriteNumbers(epoch uint64, n uint32) (number uint32, wide uint64) {
	if epoch > numberEpochMax || n>>numberCountBits != 0 {
		wide = epoch<<wideCountBits | uint64(n)
	}
	return uint32(epoch)<<numberCountBits + n, wide
}

// A writeNumber is what the holder has of the numbers of a request.
type writeNumber struct {
	number uint32
	wide   uint64
}

// after reports whether a request is later than another of its session.
func (a writeNumber) after(b writeNumber) bool {
	if a.wide == 0 && b.wide == 0 {
		return int32(a.number-b.number) > 0 // those of a session that is not durable wrap
	}
	return a.full() > b.full()
}

// full returns the wide number.
func (a writeNumber) full() uint64 {
	if a.wide != 0 {
		return a.wide
	}
	const countMask = 1<<numberCountBits - 1
	return uint64(a.number>>numberCountBits)<<wideCountBits | uint64(a.number&countMask)
}
