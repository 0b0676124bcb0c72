package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Carrier is how the clients of a case bring their datagrams.
type Carrier uint8

const (
	UDP Carrier = iota
	WebSocket
	WebTransport
)

var carrierNames = []string{"udp", "websocket", "webtransport"}

// String returns the name of c.
func (c Carrier) String() string { return carrierNames[c] }

// ParseCarriers reads names of carriers, UDP for none.
func ParseCarriers(names []string) (list []Carrier, err error) {
	for _, name := range names {
		i := slices.Index(carrierNames, name)
		if i < 0 || slices.Contains(list, Carrier(i)) {
			return nil, fmt.Errorf("-carrier: want %s, each once, got %q", strings.Join(carrierNames, ", "), name)
		}
		list = append(list, Carrier(i))
	}
	if len(list) == 0 {
		list = []Carrier{UDP}
	}
	return list, nil
}

// A Case is one point of the sweep.
type Case struct {
	Name    string        // of its series
	States  int           // of the space
	Hz      int           // ticks of the publisher per second
	Clients int           // over all edges
	Edges   int           // processes
	Spaces  []string      // that the clients of each edge join; those of further edges join Space
	Links   int           // per client; 0 means all states. States/Links groups share the states
	Active  int           // states that the publisher changes; 0 means all, negative none
	Model   Model         // the values that change in a tick
	Half    bool          // values are half floats instead of floats
	Carrier Carrier       // how clients come; all but UDP have no baselines
	Rounds  int           // windows; 0 means those of the run
	Alone   bool          // no baselines
	Window  time.Duration // length of a window; 0 means that of the run
	Load    float64       // in units of capacity; 0 except in the overload series
}

// Flags are the flags of every benchmark.
type Flags struct {
	Rounds  int           // windows per case, each with its baselines
	Window  time.Duration // how long one takes
	Workers int           // of each edge
	Tick    time.Duration // of the relay
	Flush   time.Duration // interval of the edges
	Pin     bool          // edges on core 0, everything else on core 1
	Bin     string        // folder of the programs nats-server, relay and edge
}

// Validate returns an error for numbers that are beyond the bounds.
func (f *Flags) Validate() error {
	switch {
	case f.Rounds < 1 || f.Rounds > 99:
		return fmt.Errorf("-rounds: want 1 to 99, got %d", f.Rounds)
	case f.Window < 100*time.Millisecond || f.Window > time.Minute:
		return fmt.Errorf("-window: want 100ms to 1m, got %v", f.Window)
	case f.Workers < 1 || f.Workers > 64:
		return fmt.Errorf("-workers: want 1 to 64, got %d", f.Workers)
	}
	return nil
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
	if c.Carrier != UDP {
		s += "/" + c.Carrier.String()
	}
	return s
}

func (c *Case) linksPerClient() int { return cmp.Or(c.Links, c.States) }

// space returns the space of the clients of an edge.
func (c *Case) space(edge int) string {
	if edge < len(c.Spaces) {
		return c.Spaces[edge]
	}
	return Space
}

func (c *Case) groups() int {
	n := c.linksPerClient()
	return (c.States + n - 1) / n
}

// group returns the group that state s belongs to. All are in one if each client is linked to all.
func (c *Case) group(s int) int { return s / c.linksPerClient() }

// offered returns the updates per second for all clients, if the first active states
// change in every tick.
func (c *Case) offered(active int) float64 {
	links, n := 0, c.groups()
	for s := range active {
		links += (c.Clients + n - 1 - c.group(s)) / n // client i is in group i modulo n
	}
	return float64(links * c.Hz)
}

func (c *Case) active() int { return max(0, cmp.Or(c.Active, c.States)) }

func (c *Case) period() time.Duration { return time.Second / time.Duration(c.Hz) }

// Sweep returns the cases that show what a deployment carries.
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

// Quick returns the cases of a run of less than a minute.
func Quick() []Case {
	return []Case{
		{Name: "sweep", States: 50, Hz: 20, Clients: 100, Edges: 1, Rounds: 4},
		{Name: "sweep", States: 100, Hz: 20, Clients: 200, Edges: 1, Rounds: 4},
		{Name: "half", States: 100, Hz: 20, Clients: 200, Edges: 1, Half: true, Rounds: 4},
	}
}

// Idle returns the case that shows what clients cost that are connected and linked to a few states of which none changes.
func Idle(clients int) Case {
	return Case{Name: "idle", States: 5, Hz: 10, Clients: clients, Edges: 1, Active: -1, Alone: true, Rounds: 3, Window: 5 * time.Second}
}

// ByCarriers returns a case for each carrier, to be measured side by side.
func ByCarriers(c Case, carriers []Carrier) (list []Case) {
	for _, one := range carriers {
		c.Carrier = one
		c.Alone = c.Alone || one != UDP || len(carriers) > 1
		list = append(list, c)
	}
	return list
}

// ParseCase reads STATES,HZ,CLIENTS,EDGES[,LINKS] and the name of a model.
func ParseCase(text, model string) (c Case, err error) {
	c.Name = "case"
	fields := []*int{&c.States, &c.Hz, &c.Clients, &c.Edges, &c.Links}
	parts := strings.Split(text, ",")
	wrong := len(parts) < 4 || len(parts) > len(fields)
	for i := 0; i < len(parts) && !wrong; i++ {
		*fields[i], err = strconv.Atoi(strings.TrimSpace(parts[i]))
		wrong = err != nil || *fields[i] < 1
	}
	if wrong {
		return c, fmt.Errorf("-case: want STATES,HZ,CLIENTS,EDGES[,LINKS], got %q", text)
	}
	m := slices.Index(modelNames, model)
	if m < 0 {
		return c, fmt.Errorf("-model: want all, tenth or sine, got %q", model)
	}
	c.Model = Model(m)
	return c, nil
}

// Validate returns an error for numbers that are beyond the bounds.
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

// Bounds of a case: an edge gives a session at most 4,096 links; the others protect the
// machine.
const (
	linksMax   = 4096
	clientsMax = 50_000
	edgesMax   = 16
)
