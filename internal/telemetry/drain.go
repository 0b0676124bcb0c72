package telemetry

import (
	"encoding/json"
	"net/http"
)

// What becomes of the sessions of a node that drains.
const (
	SessionsHandedOver = "handed_over" // to other nodes; those that none takes are closed
	SessionsClosed     = "closed"
)

// A Drain is what POST /drain says.
type Drain struct {
	Sessions string `json:"sessions"` // SessionsHandedOver or SessionsClosed
}

func serveDrain(drain func() Drain) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		d := drain()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(d) // the other side went away; nobody is left to tell
	}
}
