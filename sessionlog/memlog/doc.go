// Package memlog is a session log in memory, for simulations. It has the habits of JetStream with which a
// session must cope: answers that are lost, writes that are applied seconds after they were given up,
// outages of some seconds, one write at a time per log, and reads of an old state. Randomness comes from a
// generator of the caller, and time from a scheduler.
package memlog
