package cluster

import (
	"strconv"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// An ActionKind is what a Lease wants from the store, or says to its relay.
type ActionKind uint8

// The first five ask something of the store. Of them one is under way at a time,
// and each must be answered by one call of Answer.
const (
	// ActionRead asks the store's leader for Own and Beat. The two need not be of
	// one instant, but Own must be read first.
	ActionRead ActionKind = iota + 1

	// ActionAcquire writes Beat and Own, both or none, if the last Own has the
	// sequence Expect and the last Beat has the sequence ExpectBeat.
	ActionAcquire

	// ActionBeat writes Beat if the last Own has the sequence Expect.
	ActionRenew

	// ActionStore writes, all or nothing, the keyframes of the batch Token and
	// Beat, if the last Own has the sequence Expect and the last Beat has the
	// sequence ExpectBeat.
	ActionStore

	// ActionRelease writes Own if the last Own has the sequence Expect.
	ActionRelease

	// ActionAcquired says that this relay holds the shard in Epoch.
	ActionAcquired

	// ActionLost says that the holding of Epoch ended, for Reason. Batches that
	// were not reported stored are not; one that was under way may be.
	ActionLost

	// ActionDurable says whether what this relay accepts is stored.
	ActionDurable

	// ActionStored says that the batch Token is stored.
	ActionStored
)

// An Action is one word of a Lease.
type Action struct {
	Kind ActionKind

	ExpectHolder, ExpectHeartbeat uint64
	Holder                        Holder
	Heartbeat                     Heartbeat
	Token                         uint64

	Epoch   uint64
	Reason  Reason
	Durable bool
}

// A Reason is why a holding ended.
type Reason uint8

// The reasons.
const (
	ReasonReleased Reason = iota + 1 // this relay gave it up
	ReasonTaken                      // the store says that another has it
	ReasonEpoch                      // a higher epoch was seen on the bus
	ReasonSilence                    // the store was silent for too long
)

var reasons = [...]string{ReasonReleased: "released", ReasonTaken: "taken", ReasonEpoch: "higher epoch", ReasonSilence: "store silent"}

func (r Reason) String() string {
	if int(r) < len(reasons) && reasons[r] != "" {
		return reasons[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// An Answer is what became of an action.
type Answer struct {
	Verdict   fence.Verdict
	Seq       uint64    // of the Own or Beat that was written; of the Own, if both were
	Holder    Holder    // of ActionRead
	Heartbeat Heartbeat // of ActionRead, and with its Seq of ActionAcquire
}
