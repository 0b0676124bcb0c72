package publisher

import "fmt"

// An Op is one change: Put, Set, Remove, Audience or Group.
type Op interface {
	name() string        // as errors name it: "set tower"
	encode() (op, error) // as the payload has it
}

// Put makes a state, or brings it to this form. Clients that are offered the state have a
// link to it. A state with the same types of values keeps its links and sends what
// changed; a state with other types is replaced.
type Put struct {
	Key     string // up to 8 names of letters, digits, _ and -, joined by dots
	Message string // tells clients what the state is, text or bytes; default: the key
	// Farewell is a reliable message to each client whose link ends. Without it,
	// applications of the client libraries do not learn of the end.
	Farewell string
	Access   Access
	Audience Who
	Priority int      // 1 to 16; weight when a client's budget does not suffice; default 1
	Details  []Detail // less precision or fewer updates for some; the first that matches counts
	Values   []Value
}

// A Value is one value of a state that is put.
type Value struct {
	Name      string // optional: [A-Za-z_][A-Za-z0-9_]*; default: the index in digits
	Type      string // one of the 38 types: sint8 … uint64, float16 … float64, string, data, point2s8 … quaternionf64
	Value     any    // a number, string, []byte for data, or an array or slice of numbers; nil is null
	Precision float64
	Nullable  bool
	Null      any // what clients see for null; default: zero or empty
}

// Values are the new values of a Set by name, or by index in digits.
type Values map[string]any

// Set changes values of a state. A state that another program put, or a client made, has
// the key that the events name.
type Set struct {
	Key    string
	Values Values
}

// Remove removes a state.
type Remove struct{ Key string }

// Audience changes which clients are offered a state.
type Audience struct {
	Key string
	Who Who
}

// Group lets a client join and leave groups. The relay forgets them when the client leaves.
type Group struct {
	Client      string
	Join, Leave []string
}

// Access says which clients may write a state. The zero value is none.
type Access struct {
	All     bool
	Writers []string // clients
}

// Who is an audience. The zero value is every client.
type Who struct {
	Nobody  bool
	Groups  []string // only members of these,
	Clients []string // and these
}

// A Detail reduces what some clients receive.
type Detail struct {
	Groups, Clients []string
	Precision       float64 // factor on the precisions, 1 to 1,000,000; 0 = 1
	Rate            float64 // most changes a second; 0 = unlimited
}

func (o Put) name() string      { return "put " + o.Key }
func (o Set) name() string      { return "set " + o.Key }
func (o Remove) name() string   { return "remove " + o.Key }
func (o Audience) name() string { return "audience " + o.Key }
func (o Group) name() string    { return "group " + o.Client }

// An Error is a change that this package or the relay refused.
type Error struct {
	Op      string // "set tower"
	Code    string // bad_request, type_mismatch, out_of_range, unknown_state, unknown_client, too_large or not_authorised
	Message string // names the value and what is expected
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Op, e.Code, e.Message) }
