package nearby

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Band is a range of distances, and how well clients see what is in it.
type Band struct {
	Within    float64 `json:"within"`
	Rate      float64 `json:"rate,omitempty"`      // changes a second; 0 means all
	Precision float64 `json:"precision,omitempty"` // a factor; 0 means 1
}

// A Load says what is played.
type Load struct {
	States  int
	Clients int
	Hz      int     // ticks per second
	Side    float64 // of the square
	Bands   []Band
	AtOnce  bool // all states change at the begin of a tick, instead of evenly over it
	Seed    uint64
}

// Bounds of a load. A client and an object take 2 bytes of this process, and 24 more if the client ever has it in sight, so both together are
// bounded. Numbers of objects fit into 16 bits.
const (
	statesMax  = 60_000
	clientsMax = 5_000
	pairsMax   = 20_000_000
	bandsMax   = 8
	hzMax      = 60
)

// ParseBands reads WITHIN[:RATE[:PRECISION]],… with distances that ascend.
func ParseBands(list []string) (bands []Band, err error) {
	for _, text := range list {
		var b Band
		parts := strings.Split(text, ":")
		fields := []*float64{&b.Within, &b.Rate, &b.Precision}
		wrong := len(parts) > len(fields)
		for i := 0; i < len(parts) && !wrong; i++ {
			*fields[i], err = strconv.ParseFloat(parts[i], 64)
			wrong = err != nil || !(*fields[i] >= 0)
		}
		if wrong || b.Within == 0 || len(bands) > 0 && b.Within <= bands[len(bands)-1].Within {
			return nil, fmt.Errorf("band %q: want WITHIN[:RATE[:PRECISION]], the nearest first", text)
		}
		bands = append(bands, b)
	}
	if len(bands) == 0 || len(bands) > bandsMax {
		return nil, fmt.Errorf("%d bands: want 1 to %d", len(bands), bandsMax)
	}
	return bands, nil
}

// Validate returns an error for numbers that are beyond the bounds.
func (l *Load) Validate() error {
	switch {
	case l.States < 1 || l.States > statesMax:
		return fmt.Errorf("%d states: want 1 to %d", l.States, statesMax)
	case l.Clients < 1 || l.Clients > clientsMax || l.Clients > l.States:
		return fmt.Errorf("%d clients: want 1 to %d, and no more than states", l.Clients, clientsMax)
	case l.States*l.Clients > pairsMax:
		return fmt.Errorf("%d states × %d clients: want at most %d", l.States, l.Clients, pairsMax)
	case l.Hz < 1 || l.Hz > hzMax:
		return fmt.Errorf("%d ticks per second: want 1 to %d", l.Hz, hzMax)
	case !(l.Side >= 1 && l.Side <= 20_000):
		return fmt.Errorf("a field of %v: want 1 to 20000, which half floats can tell", l.Side)
	}
	return nil
}

func (l *Load) period() time.Duration { return time.Second / time.Duration(l.Hz) }

// ticks returns how many ticks fit into a time, at least one.
func (l *Load) ticks(d time.Duration) uint32 { return uint32(max(1, d/l.period())) }

// partsMax is the number of messages into which a tick is divided, as if so many game servers published a part each.
const partsMax = 20

func (l *Load) parts() int { return min(partsMax, l.States) }

// partOf returns the part of a tick in which a state changes.
func (l *Load) partOf(state int) int { return state * l.parts() / l.States }

// span returns the states of a part: first up to, not including, end.
func (l *Load) span(part int) (first, end int) {
	n := l.parts()
	return (part*l.States + n - 1) / n, ((part+1)*l.States + n - 1) / n
}

// after returns when in a tick a part is due.
func (l *Load) after(part int) time.Duration {
	if l.AtOnce {
		return 0
	}
	return l.period() * time.Duration(part) / time.Duration(l.parts())
}

// band returns the band of an object at a distance, of which it gets the square, that was in the band was. A band begins at its
// border and ends a tenth outside.
func (l *Load) band(was uint8, square float64) uint8 {
	to := slices.IndexFunc(l.Bands, func(b Band) bool { return square <= b.Within*b.Within })
	if to < 0 {
		to = beyond
	}
	if int(was) < min(to, len(l.Bands)) {
		if leave := l.Bands[was].Within * (1 + hysteresis); square <= leave*leave {
			return was
		}
	}
	return uint8(to)
}

// cycle is after how many ticks the number in a rotation begins again: half floats are exact for smaller integers.
const cycle = 2048

const (
	beyond     = 255 // the band of what is out of sight
	hysteresis = 0.1
)

// reach returns the distance beyond which nothing is in sight.
func (l *Load) reach() float64 { return l.Bands[len(l.Bands)-1].Within * (1 + hysteresis) }

// fresh returns how many ticks old a value may be that shows an object in a band: those in a period of its rate.
func (l *Load) fresh(band uint8) uint32 {
	r := l.Bands[band].Rate
	if r <= 0 {
		return 0
	}
	return uint32(min(float64(l.Hz)/r, cycle/2))
}

// ageMax returns how old the value that a client shows of an object in a band may be: the period of the band, that of the publisher,
// and the latency.
func (l *Load) ageMax(band int) time.Duration {
	d := l.period() + latencyMax
	if r := l.Bands[band].Rate; r > 0 {
		d += time.Duration(float64(time.Second) / r)
	}
	return d
}

// What is asked for of the default load of the command.
const (
	kibMax      = 96
	coresMax    = 2
	latencyMax  = 25 * time.Millisecond
	crossingMax = 300 * time.Millisecond
	ratioMax    = 0.01
	shareMax    = 0.001 // of what is out of sight and sent, or in sight and not linked: what is on its way while the truth changes
)
