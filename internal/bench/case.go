//go:build linux

package bench

import (
	"fmt"
	"time"
)

// A Case is one point of the sweep.
type Case struct {
	Name    string        // what it shows
	States  int           // in the space
	Hz      int           // ticks of the publisher in a second
	Clients int           // over all edges
	Edges   int           // processes
	Links   int           // per client; 0 means all states. States/Links groups share the states out
	Active  int           // states that the publisher changes; 0 means all, negative none
	Model   Model         // what changes in a tick
	Half    bool          // values are half floats instead of floats
	Rounds  int           // windows; 0 means those of the run
	Alone   bool          // without the baselines
	Window  time.Duration // how long a window takes; 0 means that of the run
	Load    float64       // in units of capacity, of the overload series; 0 elsewhere
}

// String names the case by its numbers.
func (c *Case) String() string {
	s := fmt.Sprintf("%d×%dHz×%d", c.States, c.Hz, c.Clients)
	if c.Links > 0 {
		s += fmt.Sprintf("/%dlinks", c.Links)
	}
	if c.Edges > 1 {
		s += fmt.Sprintf("/%dedges", c.Edges)
	}
	if c.Model != ModelAll {
		s += "/" + c.Model.String()
	}
	if c.Half {
		s += "/f16"
	}
	return s
}

func (c *Case) linksPerClient() int {
	if c.Links > 0 {
		return c.Links
	}
	return c.States
}

func (c *Case) groups() int {
	if c.Links == 0 {
		return 0
	}
	return (c.States + c.Links - 1) / c.Links
}

// group returns the group that state s belongs to, if there are groups.
func (c *Case) group(s int) int { return s / c.Links }

// offered returns how many updates a second there are for the clients, if the first
// active states change in every tick.
func (c *Case) offered(active int) float64 {
	n := c.groups()
	if n == 0 {
		return float64(active * c.Hz * c.Clients)
	}
	links := 0
	for s := range active {
		g := c.group(s)
		links += (c.Clients + n - 1 - g) / n // client i is in group i modulo n
	}
	return float64(links * c.Hz)
}

func (c *Case) active() int {
	if c.Active != 0 {
		return max(0, c.Active)
	}
	return c.States
}

func (c *Case) period() time.Duration { return time.Second / time.Duration(c.Hz) }

// Sweep returns the cases that users compare.
func Sweep() []Case {
	return []Case{
		{Name: "sweep", States: 50, Hz: 20, Clients: 100, Edges: 1},
		{Name: "sweep", States: 100, Hz: 20, Clients: 200, Edges: 1},
		{Name: "sweep", States: 100, Hz: 20, Clients: 200, Edges: 2},
		{Name: "sweep", States: 200, Hz: 60, Clients: 50, Edges: 1},
		{Name: "sweep", States: 1000, Hz: 10, Clients: 100, Edges: 2, Links: 50},
		{Name: "sweep", States: 1, Hz: 60, Clients: 1000, Edges: 2},
		{Name: "half", States: 100, Hz: 20, Clients: 200, Edges: 1, Half: true},
		{Name: "model", States: 100, Hz: 20, Clients: 200, Edges: 1, Model: ModelTenth},
		{Name: "model", States: 100, Hz: 20, Clients: 200, Edges: 1, Model: ModelSine},
	}
}

// Idle returns the case in which nothing changes: what clients cost by being there.
func Idle() []Case {
	return []Case{{Name: "idle", States: 10, Hz: 10, Clients: 1000, Edges: 1, Active: -1, Alone: true, Rounds: 3, Window: 5 * time.Second}}
}

// Quick returns the cases of a run of less than a minute.
func Quick() []Case {
	return []Case{
		{Name: "sweep", States: 50, Hz: 20, Clients: 100, Edges: 1, Rounds: 4},
		{Name: "sweep", States: 100, Hz: 20, Clients: 200, Edges: 1, Rounds: 4},
		{Name: "half", States: 100, Hz: 20, Clients: 200, Edges: 1, Half: true, Rounds: 4},
	}
}

// Growth returns series in which one number grows and the others stay.
func Growth() (all []Case) {
	for _, n := range []int{100, 1000, 3000, 10_000} {
		all = append(all, Case{Name: "clients", States: 10, Hz: 10, Clients: n, Edges: 1, Rounds: 3, Alone: true})
	}
	for _, n := range []int{1, 100, 1000, 10_000, 50_000} {
		all = append(all, Case{
			Name: "states", States: n, Hz: 10, Clients: 50, Edges: 1, Links: min(n, 50), Active: min(n, 1000), Rounds: 3, Alone: true,
		})
	}
	for _, n := range []int{1, 10, 100, 1000} {
		all = append(all, Case{Name: "links", States: 1000, Hz: 10, Clients: 100, Edges: 1, Links: n, Rounds: 3, Alone: true})
	}
	return all
}

// overloads are the loads of the overload series, in units of capacity. The first
// window is beyond all capacity and finds it.
var overloads = []float64{0.5, 1, 2, 4}

// overloadCase has room for four times the capacity of a core that carries 8 M
// updates a second.
func overloadCase() Case {
	return Case{Name: "overload", States: 2000, Hz: 50, Clients: 400, Edges: 1, Rounds: 1, Alone: true, Window: 5 * time.Second}
}

// Validate returns an error that names what no edge or client can have.
func (c *Case) Validate() error {
	switch {
	case c.linksPerClient() > linksMax || c.Links > c.States:
		return fmt.Errorf("%d links per client: want at most %d, and no more than states", c.linksPerClient(), linksMax)
	case c.Clients > clientsMax:
		return fmt.Errorf("%d clients: want at most %d", c.Clients, clientsMax)
	case c.Edges > edgesMax:
		return fmt.Errorf("%d edges: want at most %d", c.Edges, edgesMax)
	}
	return nil
}

// Bounds of a case: an edge gives a session 4,096 links; the others keep a machine
// from being buried under processes.
const (
	linksMax   = 4096
	clientsMax = 50_000
	edgesMax   = 16
)
