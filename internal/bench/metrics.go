//go:build linux

package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// A memory is what an edge says about its own memory.
type memory struct {
	allocations float64 // since it started
	bytes       float64
	collections float64
	pauseMax    time.Duration // of the last collections
}

// scrape sums what /metrics of all edges says.
func (s *stack) scrape() (m memory, err error) {
	for _, addr := range s.http {
		if err := m.scrape("http://" + addr + "/metrics"); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m *memory) scrape(url string) error {
	answer, err := http.Get(url)
	if err != nil {
		return fmt.Errorf("metrics of an edge: %w", err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch name {
		case "go_memstats_mallocs_total":
			m.allocations += v
		case "go_memstats_alloc_bytes_total":
			m.bytes += v
		case "go_gc_duration_seconds_count":
			m.collections += v
		case `go_gc_duration_seconds{quantile="1"}`:
			m.pauseMax = max(m.pauseMax, time.Duration(v*float64(time.Second)))
		}
	}
	return lines.Err()
}

// drops returns what the edges dropped, by reason, for the reader of a failure.
func (s *stack) drops() (text string) {
	for _, addr := range s.http {
		answer, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return text + " " + err.Error()
		}
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if strings.Contains(name, "drops_total{") && value != "0" {
				_, reason, _ := strings.Cut(name, `reason="`)
				text += " " + strings.TrimSuffix(reason, `"}`) + "=" + value
			}
		}
		_ = answer.Body.Close()
	}
	return text
}

// fetch stores what is at url, for profiles.
func fetch(url, file string) error {
	answer, err := http.Get(url)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("profile: %s answers %s", url, answer.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, answer.Body); err != nil {
		_ = f.Close() // the first error says more
		return fmt.Errorf("profile: %w", err)
	}
	return f.Close()
}
