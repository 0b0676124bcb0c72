package replication

import "github.com/dnprelay/dnprelay/dnp/wire"

// A WriteKind is what an edge asks for in the name of a client.
type WriteKind uint8

const (
	WriteValues WriteKind = 1 // the client changed values of a state
	WriteAssert WriteKind = 2 // the client offers a state of its own, or still does in a new epoch
	WriteDrop   WriteKind = 3 // the client took its state back
)

// A Write is one request of an edge to the holder.
type Write struct {
	Kind    WriteKind
	Session string
	Client  string
	Space   string
	State   uint64 // state number, of WriteValues
	Epoch   uint64 // that the edge follows

	// Number counts up per session and state, with every change of what is
	// written. A write whose number is not above the last one of its session was
	// applied already or overtaken: it is answered ok and ignored.
	Number uint32

	Values []WriteValue // WriteValues: by index. WriteAssert: all, in order

	// Of WriteAssert and WriteDrop.
	Link     uint16       // the client's LinkId
	ReadOnly bool         // game servers may not write the state either
	Audience AudienceKind // AudienceNobody, or AudienceAllBut: everybody but the client
	Message  []byte

	Token uint64 // names the request in its WriteResult; does not travel
}

// A WriteValue is one encoded value.
type WriteValue struct {
	Index int
	Type  wire.ValueType
	Value []byte
}

// A WriteCode is the holder's verdict on a Write.
type WriteCode uint8

const (
	WriteOK         WriteCode = 0 // in the batch that just left, or was there before
	WriteRefused    WriteCode = 1 // will never be applied
	WriteNoState    WriteCode = 2 // no state has that number
	WriteBusy       WriteCode = 3 // try again
	WriteWrongEpoch WriteCode = 4 // try again when the epoch in the answer is reached
	WritePartly     WriteCode = 5 // as ok, but for the values in Refused
)

// A WriteResult answers a Write.
type WriteResult struct {
	Token uint64 // does not travel
	Code  WriteCode
	Epoch uint64
	Seq   uint64 // a replica that is there has what was written, or something newer
	State uint64 // state number; of WriteAssert the one that the state got

	Refused []uint16 // of WritePartly: indices of the values that will never be applied
}
