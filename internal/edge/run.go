package edge

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/dnp/udp"
)

// batchMax is how many datagrams a worker reads with one system call.
const batchMax = 64

// loop turns a worker until ctx ends. It reads the clock once per turn.
func loop(ctx context.Context, w *Worker, socket *udp.Socket) error {
	batch := make([]udp.Datagram, batchMax)
	next := time.Now()
	for ctx.Err() == nil {
		socket.SetReadDeadline(next)
		n, err := socket.ReadBatch(batch)
		if err != nil && !errors.Is(err, udp.ErrWoken) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if next, err = w.Turn(time.Now(), batch[:n]); err != nil {
			return err
		}
	}
	w.close(time.Now())
	return w.out.Flush()
}
