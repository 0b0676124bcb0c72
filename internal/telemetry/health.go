package telemetry

import (
	"encoding/json"
	"io"
	"net/http"
)

// A Health is what /readyz says.
type Health struct {
	// Ready decides between 200 and 503, that is, whether a load balancer sends
	// traffic here.
	Ready bool `json:"ready"`
	// Missing names what the node would need to do all of its work, as "nats". A
	// node can be ready although something is missing.
	Missing []string `json:"missing"`
}

func serveLive(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok\n")
}

func serveReady(health func() Health) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := health()
		if h.Missing == nil {
			h.Missing = []string{}
		}
		w.Header().Set("Content-Type", "application/json")
		if !h.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h) // the other side went away; nobody is left to tell
	}
}
