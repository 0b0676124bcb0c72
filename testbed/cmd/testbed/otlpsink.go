//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
)

// otlpSink is a collector of traces over OTLP/HTTP that drops everything; `make
// bench-trace` sends spans to it.
func otlpSink(_ context.Context, args []string) error {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: testbed otlpsink ADDRESS:PORT")
		return errUsage
	}
	return http.ListenAndServe(args[0], http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an exporter that does not finish its request gets no answer
	}))
}
