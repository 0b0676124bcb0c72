package telemetry

import (
	"fmt"
	"strconv"
	"strings"
)

// defaultRatio is the part of the publishes without a trace of their own that is traced
// if nothing is said. The standard's default is all of them, which would cost a relay more than
// its work does.
const defaultRatio = 0.01

// A sampler decides which updates are traced. It says the same as the SDK's sampler of
// that name would, but before anything was made for a span, which is a hundred times
// cheaper.
type sampler struct {
	parentBased bool   // the sender decides, if the message has one that traces
	bound       uint64 // of 2^63; a trace is sampled if its id is below
}

// parseSampler reads OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG. With an error it
// returns the default.
func parseSampler(name, arg string) (sampler, error) {
	usual := sampler{parentBased: true, bound: ratioBound(defaultRatio)}
	name = strings.ToLower(strings.TrimSpace(name))
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	switch kind {
	case "":
		if parentBased {
			break
		}
		return usual, nil
	case "always_on":
		return sampler{parentBased, ratioBound(1)}, nil
	case "always_off":
		return sampler{parentBased, 0}, nil
	case "traceidratio":
		ratio, err := parseRatio(arg)
		if err != nil {
			return usual, err
		}
		return sampler{parentBased, ratioBound(ratio)}, nil
	}
	return usual, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is none of always_on, always_off, traceidratio, with or without parentbased_ before it", name)
}

func parseRatio(arg string) (float64, error) {
	arg = strings.TrimSpace(arg)
	if arg == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: want a number from 0 to 1, got %q", arg)
	}
	return ratio, nil
}

func ratioBound(ratio float64) uint64 { return uint64(ratio * (1 << 63)) }

// samples reports whether a message is traced that has this traceparent, or none.
// random decides about one that belongs to no trace.
func (s sampler) samples(parent string, random uint64) bool {
	if parent == "" {
		return random>>1 < s.bound
	}
	id, sampled, ok := peek(parent)
	switch {
	case !ok:
		return random>>1 < s.bound
	case s.parentBased:
		return sampled
	}
	return id>>1 < s.bound
}
