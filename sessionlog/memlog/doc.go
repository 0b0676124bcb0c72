// Package memlog is a session log in memory, for simulations. It has the habits of
// JetStream that a session has to live with: answers that are lost, writes that are
// applied seconds after they were given up, outages of some seconds, one write at a
// time per log, and reads of an old state. Everything random comes from a generator
// that the caller gives, and time from a scheduler.
package memlog
