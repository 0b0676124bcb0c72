package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Metrics of an edge that tell how far it is. The first is of the process, and differs
// for one that was started at the same address meanwhile.
const (
	metricStarted  = "process_start_time_seconds"
	metricSessions = "dnp_edge_sessions"
)

// drainPause is between two looks at an edge that drains.
const drainPause = 200 * time.Millisecond

// metricsMax is how much of an answer is read. That of an edge has about 50 KiB.
const metricsMax = 4 << 20

// A drainLook is what can be seen of an edge. What it does not say is empty.
type drainLook struct {
	started, sessions string
	err               error // it did not answer
}

// gone reports whether the process that was seen before is not there any more.
func (l drainLook) gone(before drainLook) bool {
	return errors.Is(l.err, syscall.ECONNREFUSED) || errors.Is(l.err, syscall.EHOSTUNREACH) ||
		l.err == nil && l.started != before.started
}

// follow waits until the process is gone, and prints how many sessions it has when that
// changes.
func (c *drainCommand) follow(ctx context.Context, before drainLook) error {
	over := time.After(c.Timeout)
	tick := time.NewTicker(drainPause)
	defer tick.Stop()
	for last := ""; ; {
		l := c.look(ctx)
		if l.gone(before) {
			fmt.Println("it is gone")
			return nil
		}
		if l.err == nil && l.sessions != last {
			fmt.Println("sessions:", l.sessions)
			last = l.sessions
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			if l.err != nil {
				return fmt.Errorf("it was not seen to end within %v: %w", c.Timeout, l.err)
			}
			return fmt.Errorf("it is still there after %v, sessions: %s", c.Timeout, l.sessions)
		case <-tick.C:
		}
	}
}

// look reads the metrics of the edge.
func (c *drainCommand) look(ctx context.Context) (l drainLook) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host()+"/metrics", nil)
	if err != nil {
		return drainLook{err: err}
	}
	r.Close = true // an edge that ends waits for connections
	answer, err := drainClient.Do(r)
	if err != nil {
		return drainLook{err: err}
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return drainLook{err: fmt.Errorf("%s/metrics answers %s", c.host(), answer.Status)}
	}
	lines := bufio.NewScanner(io.LimitReader(answer.Body, metricsMax))
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), " "); name {
		case metricStarted:
			l.started = value
		case metricSessions:
			l.sessions = value
		}
	}
	l.err = lines.Err()
	return l
}
