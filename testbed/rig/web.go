//go:build linux

package rig

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
)

// WebTimeout bounds one request to a node.
const WebTimeout = 2 * time.Second

// A Web asks the HTTP servers of nodes.
type Web struct{ client *http.Client }

// NewWeb returns a Web that asks from a host; nil means this process. timeout bounds a request.
func NewWeb(from *Host, timeout time.Duration) Web {
	dial := func(_ context.Context, network, addr string) (net.Conn, error) { return from.Dial(network, addr) }
	return Web{&http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}} // nodes die and come back
}

// Get asks the server at ADDRESS:PORT. Without an answer the status is 0 and the body says
// why.
func (w Web) Get(addr, path string) (body string, status int) {
	answer, err := w.client.Get("http://" + addr + path)
	if err != nil {
		return err.Error(), 0
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error(), 0
	}
	return string(b), answer.StatusCode
}

// A Health is what a node says of itself.
type Health struct {
	Live, Ready bool
	Missing     []string
	Text        string // status and body of /readyz
}

// Health asks a node how it is.
func (w Web) Health(addr string) (h Health) {
	_, live := w.Get(addr, "/livez")
	body, ready := w.Get(addr, "/readyz")
	h.Live, h.Ready, h.Text = live == http.StatusOK, ready == http.StatusOK, strconv.Itoa(ready)+" "+strings.TrimSpace(body)
	_ = json.Unmarshal([]byte(body), &h) // a body that is not JSON lists nothing
	return h
}

// Metrics returns the samples of a node's /metrics by their names with labels; none if it
// does not answer.
func (w Web) Metrics(addr string) map[string]float64 {
	all, _ := proc.Metrics(context.Background(), w.client, addr)
	return all
}

// Metric returns the sum of a metric of a node over its labels, and whether it has it.
func (w Web) Metric(addr, metric string) (sum float64, ok bool) {
	for name, v := range w.Metrics(addr) {
		if name, _, _ = strings.Cut(name, "{"); name == metric {
			sum, ok = sum+v, true
		}
	}
	return sum, ok
}

// Lacks reports whether the node says that it misses something.
func (h Health) Lacks(what string) bool { return slices.Contains(h.Missing, what) }
