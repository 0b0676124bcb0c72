// Package netstate holds network states: fixed lists of typed values that are
// kept, compared and forwarded as their wire bytes.
//
// A [Layout] is what a state is made of, a [State] the values, and a [Mask] a
// set of values. None of them knows what a value means; only payload codecs and
// precision filters decode.
package netstate
