//go:build linux

package torture

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// counters are what edges count of NATS and Redis, by their metrics.
var counters = map[string]string{
	`dnp_nats_messages_total{direction="in"}`:    "NATS messages to edges",
	`dnp_nats_messages_total{direction="out"}`:   "NATS messages of edges",
	`dnp_session_log_appends_total{answer="ok"}`: "writes to session logs",
	`dnp_session_from_stored_total`:              "messages to game servers",
}

// count waits for a while in which nothing happens, and notes what edges did meanwhile.
func (r *run) count(ctx context.Context) error {
	before, began := r.operations(), time.Now()
	r.sleep(ctx, 3*time.Second)
	after := r.operations()
	for what, n := range after {
		r.note.add(Record{Kind: kindOps, Note: what, N: n - before[what], D: time.Since(began).Microseconds()})
	}
	return nil
}

// operations returns the counters of all edges together, and of Redis.
func (r *run) operations() map[string]uint64 {
	sum := map[string]uint64{}
	for _, e := range r.edges {
		answer, err := r.web.Get("http://" + e.http + "/metrics")
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if what, ok := counters[name]; ok {
				n, _ := strconv.ParseFloat(value, 64) // edges print numbers
				sum[what] += uint64(n)
			}
		}
		answer.Body.Close()
	}
	if n, err := r.redisCommands(); err == nil {
		sum["commands of Redis, those within scripts as well"] = n
	}
	return sum
}

// redisCommands returns how many commands Redis carried out.
func (d *deployment) redisCommands() (n uint64, err error) {
	c, err := net.DialTimeout("tcp", d.redisAddr, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "INFO stats\r\nQUIT\r\n"); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "total_commands_processed:")
	if !ok {
		return 0, fmt.Errorf("redis does not say how many commands it carried out")
	}
	line, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseUint(line, 10, 64)
}
