// Command pause holds the namespaces of a pod and does nothing else, until it is told
// to end. Its image is what containerd starts every pod with.
package main

import (
	"context"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
}
