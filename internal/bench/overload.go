//go:build linux

package bench

import (
	"context"
	"fmt"
)

// probes is how many windows look for the capacity; the first of them finds the
// processes cold.
const probes = 3

// Overload offers half, one, two and four times of what an edge carries. What it
// carries is found by offering more than any can.
func (r *Runner) Overload(ctx context.Context) ([]Result, error) {
	c := overloadCase()
	s, err := r.open(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("overload: %w", err)
	}
	defer s.close()
	var capacity float64
	for range probes {
		var all round
		if err := s.ours(ctx, &all, c.States); err != nil {
			return nil, fmt.Errorf("overload: %w", err)
		}
		capacity = max(capacity, float64(all.window.updates)/all.wall.Seconds())
	}
	r.cfg.Progress("capacity: %.2f M updates/s", capacity/1e6)
	var results []Result
	for _, load := range overloads {
		active := int(load * capacity / float64(c.Hz*c.Clients))
		one := c
		one.Load, one.Active = load, max(1, min(active, c.States))
		s.c = &one
		var rd round
		if err := s.ours(ctx, &rd, one.Active); err != nil {
			return nil, fmt.Errorf("overload: %w", err)
		}
		res := s.result([]round{rd})
		res.Capacity = capacity
		results = append(results, res)
	}
	return results, nil
}
