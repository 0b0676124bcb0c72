package telemetry

import (
	"net"
	"net/http"
)

// Waiting is what a node shows while it waits for what it cannot start without: alive,
// not ready, and what is missing. Give the port back with Stop before Listen takes it.
type Waiting struct {
	http *http.Server
	end  chan struct{} // closed when the server has ended
}

// Wait opens addr and serves /livez and /readyz there until Stop; for an empty address
// it does nothing. missing is asked at each request, from any goroutine. The error is one
// line for the operator.
func Wait(addr string, missing func() []string) (*Waiting, error) {
	if addr == "" {
		return &Waiting{}, nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError(addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", serveLive)
	mux.HandleFunc("GET /readyz", serveReady(func() Health { return Health{Missing: missing()} }))
	w := &Waiting{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, MaxHeaderBytes: headerBytesMax},
		end:  make(chan struct{}),
	}
	go func() {
		defer close(w.end)
		_ = w.http.Serve(listener) // ends with Stop
	}()
	return w, nil
}

// Stop frees the port. It may be called more than once.
func (w *Waiting) Stop() {
	if w == nil || w.http == nil {
		return
	}
	_ = w.http.Close() // whoever is being answered asks again
	<-w.end
}
