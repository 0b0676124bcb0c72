// Package lab measures what is beyond `dnpctl bench`, with the same package bench: series
// in which one number grows, overload, clients that disturb others, floods of forged
// datagrams, and profiles of an edge.
package lab
