package publisher

// An Op is one change: Put, Set, Remove, Audience or Group.
type Op interface {
	name() string        // as errors name it: "set tower"
	encode() (op, error) // as the payload has it
}

// Put makes a state, or brings it to this form: what clients that are offered it have a
// link to. A state with the same types of values keeps its links and sends what changed;
// another one replaces the state.
type Put struct {
	Key     string // up to 8 names of letters, digits, _ and -, joined by dots
	Message string // tells clients what it is, text or bytes; default: the key
	// Farewell is a reliable message to each client whose link ends. Applications of the
	// client libraries do not hear of the end otherwise.
	Farewell string
	Access   Access
	Audience Who
	Priority int      // 1 to 16; weight where a client's budget does not reach; default 1
	Details  []Detail // less precision or fewer updates for some; the first that fits counts
	Values   []Value
}

// A Value is one value of a state that is put.
type Value struct {
	Name      string // optional: [A-Za-z_][A-Za-z0-9_]*; without, the index in digits
	Type      string // one of the 38 types: sint8 … uint64, float16 … float64, string, data, point2s8 … quaternionf64
	Value     any    // a number, string, []byte for data, or an array or slice of numbers; nil is null
	Precision float64
	Nullable  bool
	Null      any // what clients see for null; default: zero or empty
}

// Values are the new values of a Set by name, or by index in digits.
type Values map[string]any

// Set changes values of a state. A state that this Space did not put, as one that a
// client made, has the key that the events say.
type Set struct {
	Key    string
	Values Values
}

// Remove takes a state away.
type Remove struct{ Key string }

// Audience changes who is offered a state.
type Audience struct {
	Key string
	Who Who
}

// Group lets a client join and leave groups. They are forgotten when it leaves.
type Group struct {
	Client      string
	Join, Leave []string
}

// Access says which clients may write a state. The zero value is none.
type Access struct {
	All     bool
	Writers []string // clients
}

// Who is an audience. The zero value is everybody.
type Who struct {
	Nobody  bool
	Groups  []string // only members of these,
	Clients []string // and these
}

// A Detail is what some clients get less of.
type Detail struct {
	Groups, Clients []string
	Precision       float64 // factor on the precisions, 1 to 1,000,000; 0 = 1
	Rate            float64 // changes a second at most; 0 = as many as there are
}

func (o Put) name() string      { return "put " + o.Key }
func (o Set) name() string      { return "set " + o.Key }
func (o Remove) name() string   { return "remove " + o.Key }
func (o Audience) name() string { return "audience " + o.Key }
func (o Group) name() string    { return "group " + o.Client }
