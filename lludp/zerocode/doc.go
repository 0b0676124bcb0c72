// Package zerocode is the run length code of LLUDP packets, in which only zero bytes have runs:
//
//	00 k        k zeros, k = 1 … 255
//	00 00 … k   256 more for each 00 after the first; read, never written
//	00          at the very end, without a count: as if k were 1
//	other bytes stand for themselves
//
// A lone zero grows to two bytes, so a sender codes only data that shrinks: [AppendShorter] stops as
// soon as it does not. [Expanded] measures the result before a byte is written, because 1,200 bytes
// can stand for 300,000.
package zerocode
