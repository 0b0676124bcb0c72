// Package proc reads the metrics of a running process.
package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// metricsMax bounds the metrics of a process; an edge has about 50 KiB.
const metricsMax = 4 << 20

// Metrics returns the samples that a process serves on /metrics at ADDRESS:PORT, by name
// with labels.
func Metrics(ctx context.Context, client *http.Client, addr string) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s/metrics answers %s", addr, answer.Status)
	}
	all := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(answer.Body, metricsMax))
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			all[line[:at]] = v
		}
	}
	return all, lines.Err()
}
