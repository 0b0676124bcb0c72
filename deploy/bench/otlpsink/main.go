// Command otlpsink is a collector that takes everything over OTLP/HTTP and keeps nothing. It
// is what `make bench-trace` sends spans to.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: otlpsink ADDRESS:PORT")
		os.Exit(2)
	}
	err := http.ListenAndServe(os.Args[1], http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // who does not send to the end is not answered
	}))
	fmt.Fprintln(os.Stderr, "otlpsink:", err)
	os.Exit(1)
}
