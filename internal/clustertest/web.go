//go:build linux

package clustertest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// webPort is where nodes serve health and metrics.
const webPort = 8413

// A health is what a node says of itself.
type health struct {
	live, ready bool
	missing     []string
}

// newWeb returns a client that asks from a namespace.
func newWeb(from *netns) *http.Client {
	return &http.Client{
		Timeout: time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true, // nodes die and come back
			DialContext:       func(_ context.Context, network, addr string) (net.Conn, error) { return from.Dial(network, addr) },
		},
	}
}

// ask returns how a node is; not live if it does not answer.
func ask(web *http.Client, h *host) (s health) {
	_, s.live = get(web, h, "/livez")
	body, ready := get(web, h, "/readyz")
	s.ready = ready
	var a struct{ Missing []string }
	if json.Unmarshal(body, &a) == nil {
		s.missing = a.Missing
	}
	return s
}

func (s health) lacks(what string) bool { return slices.Contains(s.missing, what) }

func get(web *http.Client, h *host, path string) (body []byte, ok bool) {
	answer, err := web.Get("http://" + h.at(webPort) + path)
	if err != nil {
		return nil, false
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return body, err == nil && answer.StatusCode == http.StatusOK
}
