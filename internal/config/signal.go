package config

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// drainOnSignal returns a context that ends at the first SIGINT or SIGTERM. A
// second one ends the process at once, for people whose drain takes too long.
func drainOnSignal(log *slog.Logger, name string, stderr io.Writer) (context.Context, func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		first, ok := <-signals
		if ok {
			log.Info("leaving; a second signal ends the process at once", "signal", first.String())
			cancel()
			if second, ok := <-signals; ok {
				fmt.Fprintf(stderr, "%s: ended at once by a second signal (%s)\n", name, second)
				os.Exit(ExitFailed)
			}
		}
		close(done)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel()
	}
}
