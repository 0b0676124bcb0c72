// Package netstate holds network states: fixed lists of typed values that are
// stored, compared and forwarded as their wire bytes.
//
// A [Layout] describes the values of a state, a [State] holds them, and a [Mask] is a
// set of their indices. None of them knows what a value means; only payload codecs and
// precision filters decode.
package netstate
