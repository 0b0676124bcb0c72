// Package history is what all parties of a test write down, and the judge who reads it.
//
// A history is a file with one JSON [Record] on a line: each message as it is sent and as
// it arrives, each closed session, each fault with its begin and end, and each silence of
// a client longer than 25 ms. [Check] reads such a file and nothing else. It says what was
// lost, doubled, out of order or interrupted, and how long clients received no datagram
// around each fault.
package history
