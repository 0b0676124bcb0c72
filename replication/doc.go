// Package replication keeps the network states of a space equal in many places.
//
// A space has one authority, a [Store]. Publishers and clients change the Store, and the Store
// emits batches of view records (package view). Every other node holds a [Replica], which
// applies the batches in order, notices gaps, asks the holder for repair, and tells an
// [Observer] what changed. Late join, lost messages, reconnect and a new holder all use the
// same repair.
//
//	publish, write ──► Store ──► batches ──► Replica ──► Observer
//	                     ▲                      │
//	                     └────── repair ────────┘
//
// Both are data structures: time is an argument, bytes go in, bytes and events come out. The
// package starts no goroutine, does not sleep or log, and does not know NATS. The owner asks
// NextTimeout when it must call Advance.
//
// A position orders all changes: the epoch identifies the holder, the sequence number counts
// the batches of that epoch. For each value the last writer in this order wins. A Describe
// record says what a state consists of, keyframes and updates carry its values, and checksums
// prove that a copy is equal.
//
// DESIGN.md beside this file describes the bytes and the reason for each odd rule. Package
// payload converts what publishers send; here a value is wire bytes or a [Literal] that can
// become wire bytes.
package replication
