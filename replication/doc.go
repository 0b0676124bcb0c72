// Package replication keeps the network states of a space equal in many places.
//
// A space has one authority, a [Store]. Publishers and clients change it, and
// it emits batches of view records (package view). Everybody else holds a
// [Replica], which applies the batches in order, notices what it missed, asks
// the holder for repair, and tells an [Observer] what changed. Late join, lost
// messages, reconnect and a new holder are all the same path.
//
//	publish, write ──► Store ──► batches ──► Replica ──► Observer
//	                     ▲                      │
//	                     └────── repair ────────┘
//
// Both are data structures: time is an argument, bytes go in, bytes and events
// come out. Nothing here starts a goroutine, sleeps, logs, or knows what NATS
// is. The owner calls NextTimeout to learn when it must call Advance.
//
// Order is a position: the epoch says who held authority, the sequence number
// the how-manieth batch of that epoch. Per value the last writer in that order
// wins. What a state is made of travels in its Describe record, its values in
// keyframes and updates, and checksums prove that a copy is equal.
//
// How the bytes look and why each odd rule exists is in DESIGN.md beside this
// file. What payloads look like to a publisher is the business of package
// payload; here values are wire bytes or a [Literal] that can become some.
package replication
