// Package zerocode is the run length code of LLUDP packets, in which only zero
// bytes have runs:
//
//	00 k        k zeros, k = 1 … 255
//	00 00 … k   256 more for each 00 after the first; nobody writes this
//	00          at the very end, without a count: as if k were 1
//	anything else stands for itself
//
// A lone zero grows to two bytes, so a sender codes only what shrinks:
// [AppendShorter] gives up as soon as it does not. Expansion is measured before
// a byte is written ([Expanded]), because 1,200 bytes can stand for 300,000.
package zerocode
