package replication

// An OpKind is what one op of a publish does.
type OpKind uint8

const (
	OpPut      OpKind = iota + 1 // make a state, or bring it to this form
	OpSet                        // change some values
	OpRemove                     // remove a state
	OpAudience                   // change who is offered it
	OpGroup                      // let a client join and leave groups
	OpKick                       // end a client's sessions
	OpClear                      // remove all states that publishers made
)

// An Op is one change that a publisher asks for.
type Op struct {
	Kind OpKind

	// Err is what the payload found wrong with the op. Such an op fails with it,
	// its other fields mean nothing. Only a publish that is not atomic has some.
	Err *Error

	Key string // put, set, remove, audience

	// Of put. What is not given keeps its value if the state exists; a state
	// that does not exist gets its key as message, no farewell, read-only
	// access, and everybody as audience.
	Message     []byte
	Farewell    []byte
	Access      Access
	Audience    Audience // also of audience, which gives it or Details
	Priority    uint8    // 1 to PriorityMax
	Details     []Detail // also of audience
	HasMessage  bool
	HasFarewell bool
	HasAccess   bool
	HasAudience bool
	HasPriority bool
	HasDetails  bool
	Values      []PutValue

	Sets []SetValue // of set

	Client string   // group, kick
	Join   []string // group
	Leave  []string
}

// A PutValue is a value's definition and its content.
type PutValue struct {
	ValueDef

	// Value is the content. nil keeps what the state has if its layout stays,
	// and is null or zero otherwise.
	Value Literal
}

// A SetValue changes one value.
type SetValue struct {
	Name  string // a name; digits are an index
	Value Literal
}

// A Publish is one message of a publisher.
type Publish struct {
	Ops    []Op
	Atomic bool   // all ops or none; otherwise each for itself, with Results
	Token  uint64 // names the waiting publisher in the Answer; 0 if nobody waits
}

// An Answer is what a publisher is told, after the batch with its changes left.
type Answer struct {
	Token      uint64
	Epoch, Seq uint64   // the position that holds the changes
	Durable    bool     // false while the durable store is silent
	Err        *Error   // of an atomic publish
	Results    []Result // one per op if the publish was not atomic
}

// A Result is what became of one op. Err is nil if it was applied.
type Result struct{ Err *Error }
