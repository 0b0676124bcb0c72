// Package bus is the interface through which the nodes of a cluster exchange messages. Package
// natsbus implements it over NATS, and package membus in memory for simulations. Both pass the suite
// in conformance_test.go, so that results of simulations hold for NATS.
//
//	unsubscribe, err := b.Subscribe("dnp.v1.live.demo", func(m bus.Msg) { … })
//	err = b.Publish(bus.Msg{Subject: "dnp.v1.live.demo", Data: batch})
//	b.Request(bus.Msg{Subject: "dnp.v1.get.demo"}, time.Second, func(answer bus.Msg, err error) { … })
//
// A Bus delivers at most once and stores nothing. The subjects are those of package subject.
package bus

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Errors of a Bus on which callers branch.
var (
	// ErrNoResponders says that the subject of a request has no subscription.
	ErrNoResponders = errors.New("no responders")
	// ErrTimeout says that no answer arrived in time. The request may have been received and
	// carried out all the same.
	ErrTimeout = errors.New("no answer in time")
	// ErrDisconnected says that the message was dropped because the bus is not connected.
	ErrDisconnected = errors.New("not connected to the bus")
	// ErrClosed says that the owner closed the bus.
	ErrClosed = errors.New("the bus is closed")
	// ErrBusy says that the message was dropped because the outgoing queue is full.
	ErrBusy = errors.New("the outgoing queue of the bus is full")
	// ErrMessageSize says that the message is larger than the bus carries.
	ErrMessageSize = errors.New("the message is larger than the bus carries")
)

// Headers with a meaning for the bus itself, as in NATS.
const (
	// HeaderStatus with the value StatusNoResponders marks the empty message that arrives at
	// the reply subject if the subject of the request has no subscription.
	HeaderStatus       = "Status"
	StatusNoResponders = "503"
)

// A Msg is one message on the bus.
type Msg struct {
	Subject string
	Reply   string            // subject for answers; empty if none is wanted
	Header  map[string]string // nil if there is none; a header costs far more than the same bytes in Data
	Data    []byte
}

// JSON returns a message with v as JSON. It panics if JSON cannot express v, which depends on
// the type of v only.
func JSON(subject string, v any) Msg {
	data, err := json.Marshal(v)
	if err != nil {
		panic("bus: a value that JSON cannot express: " + err.Error())
	}
	return Msg{Subject: subject, Data: data}
}

// NoResponders reports whether m is the bus's notice that the subject of a request has no
// subscription.
func (m *Msg) NoResponders() bool {
	return len(m.Data) == 0 && m.Header[HeaderStatus] == StatusNoResponders
}

// Ask sends a request over b and waits for the answer, or until ctx ends.
func Ask(ctx context.Context, b Bus, m Msg, timeout time.Duration) (Msg, error) {
	type result struct {
		answer Msg
		err    error
	}
	done := make(chan result, 1)
	b.Request(m, timeout, func(answer Msg, err error) { done <- result{answer, err} })
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return Msg{}, ctx.Err()
	}
}

// A Bus carries messages between the nodes of a cluster. Only shells use it; the packages with
// the rules do not know it.
//
// A message arrives at most once. Messages of one publisher arrive at one subscription in the
// order of publishing. A receiver that cannot tolerate loss needs numbered messages, and asks
// for those that are missing.
//
// All methods may be called from any goroutine. No method blocks on the network.
type Bus interface {
	// Publish sends m to all subscriptions of its subject, including those of this node. The
	// bus then owns Data and Header, and the caller must not change them. An error means that
	// the message was dropped and counted; without an error it may still be lost.
	Publish(m Msg) error

	// Subscribe calls handle for each message whose subject matches. The subject may contain
	// the wildcards of NATS: * for one token, a last > for one or more. The calls for one
	// subscription are sequential. handle must not block, because later messages wait in a
	// bounded queue; the bus drops and counts what exceeds it. Subscriptions share the message:
	// handle may keep it but must not change it. After unsubscribe returns no call begins,
	// except one that was already under way.
	Subscribe(subject string, handle func(Msg)) (unsubscribe func(), err error)

	// SubscribeShared is Subscribe for thousands of subscriptions with few messages each. All
	// of a node share one queue and wait for each other, so that a subscription costs no
	// goroutine.
	SubscribeShared(subject string, handle func(Msg)) (unsubscribe func(), err error)

	// Request publishes m with a reply subject of its own and calls handle exactly once: with
	// the first answer, or with ErrNoResponders, ErrTimeout, ErrClosed or an error of Publish.
	// m.Reply may name the inbox for the answer, if the implementation has several.
	// The call may come before Request returns, and from any goroutine.
	Request(m Msg, timeout time.Duration, handle func(Msg, error))

	// Connected reports whether the bus is connected.
	Connected() bool

	// OnChange calls f each time Connected changes. Messages that others sent in between are
	// lost, so f is the moment to ask for them. f must not block.
	OnChange(f func(connected bool))
}
