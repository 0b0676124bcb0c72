package replication

// An OutputKind says which field of an Output is set.
type OutputKind uint8

const (
	OutputBatch  OutputKind = iota + 1 // Data: to everybody who follows the space
	OutputAnswer                       // Answer: to a publisher
	OutputWrite                        // Write: to the edge that asked
	OutputEvent                        // Event: to game servers
	OutputKick                         // Client: to the edges
)

// An Output is one thing that a Store wants sent.
type Output struct {
	Kind   OutputKind
	Data   []byte // immutable for ever, may be shared
	Answer Answer
	Write  WriteResult
	Event  *Event
	Client string
}
