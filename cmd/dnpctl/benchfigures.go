package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

// benchFigures are what a bench measured. The fields are a contract with the programs that read them: fields may be added, none changes
// its meaning.
type benchFigures struct {
	Space   string  `json:"space"`
	Edge    string  `json:"edge"`
	Clients int     `json:"clients"` // that connected
	Links   int64   `json:"links"`   // of states, that all clients had when the changes began
	States  int     `json:"states"`
	Rate    int     `json:"rate"`
	Seconds float64 `json:"seconds"` // for which the states changed

	Published uint64 `json:"published"` // changes of states
	Expected  uint64 `json:"expected"`  // the same, for each client
	Delivered uint64 `json:"delivered"` // of these
	Lost      uint64 `json:"lost"`      // of these, because newer values replaced them, or no way to the client lasted
	Behind    int    `json:"behind"`    // states that a client does not show as they are, at the end

	Latency        benchLatency `json:"latency_ms"`
	BytesPerClient float64      `json:"client_bytes_per_s"` // of datagrams, without the headers of the network
	Closed         int          `json:"clients_closed"`     // connections that ended before the end
	Warnings       []string     `json:"warnings"`

	dropped uint64 // datagrams that this program was too slow for
}

// A benchLatency is in milliseconds, from when a change was due until a client had it.
type benchLatency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// benchLateMax is how late changes may be published before a warning tells it. The number is arbitrary.
const benchLateMax = 50 * time.Millisecond

// warn adds reasons to doubt the figures.
func (r *benchRun) warn(f *benchFigures) {
	f.Warnings = []string{}
	add := func(so bool, format string, args ...any) {
		if so {
			f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
		}
	}
	add(f.Clients < r.Clients, "%d of %d clients could not connect: %v", r.Clients-f.Clients, r.Clients, r.failed)
	want := int64(f.Clients * f.States)
	add(f.Links < want, "clients had %d of %d states after %v; do all of them join space %s?", f.Links, want, r.Timeout, f.Space)
	add(f.Closed > 0, "%d connections ended", f.Closed)
	if refused := r.refused.Load(); refused != nil {
		add(true, "changes were refused: %v", *refused)
	}
	add(f.Behind > 0 && f.Delivered > 0, "clients did not show the last change of %d states %v after it", f.Behind, benchSettleMax)
	add(r.late > benchLateMax, "changes were published up to %v late: this program or NATS is slow, which is part of the latencies", r.late.Round(time.Millisecond))
	add(f.dropped > 0, "this program was too slow for %d datagrams", f.dropped)
}

// fatal returns an error if nothing was measured.
func (f *benchFigures) fatal() error {
	if f.Delivered > 0 {
		return nil
	}
	return fmt.Errorf("no client received a change: do the clients of %s join space %s, and is the login theirs?", f.Edge, f.Space)
}

// print prints f.
func (f *benchFigures) print(asJSON bool) error {
	out := bufio.NewWriter(os.Stdout)
	if asJSON {
		fmt.Fprintln(out, jsonText(f))
		return out.Flush()
	}
	fmt.Fprintf(out, "%d clients of %s, %d states of space %s, %d changes a second each, for %.1f s\n", f.Clients, f.Edge, f.States, f.Space, f.Rate, f.Seconds)
	share := 0.0
	if f.Expected > 0 {
		share = 100 * float64(f.Delivered) / float64(f.Expected)
	}
	fmt.Fprintf(out, "delivered  %d of %d updates (%.2f %%), lost %d\n", f.Delivered, f.Expected, share, f.Lost)
	fmt.Fprintf(out, "latency    p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n", f.Latency.P50, f.Latency.P90, f.Latency.P99, f.Latency.Max)
	fmt.Fprintf(out, "bytes      %.1f KiB per client and second\n", f.BytesPerClient/1024)
	for _, w := range f.Warnings {
		fmt.Fprintln(out, "warning:", w)
	}
	return out.Flush() // which returns the first error
}
