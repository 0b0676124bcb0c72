package compose

import (
	"sync/atomic"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// showWaiting shows what a node waits for at its start: NATS, and after reached the store
// behind it. The caller stops it before it shows the node itself.
func showWaiting(admin *config.Admin) (w *telemetry.Waiting, reached func(), err error) {
	var connected atomic.Bool
	w, err = telemetry.Wait(admin.HTTP, func() []string {
		if connected.Load() {
			return []string{"store"}
		}
		return []string{"nats"}
	})
	return w, func() { connected.Store(true) }, err
}
