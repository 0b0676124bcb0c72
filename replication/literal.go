package replication

import "github.com/dnprelay/dnprelay/dnp/wire"

// A Literal is a value as a payload wrote it. It becomes wire bytes only when
// the type of the value that it is meant for is known.
type Literal interface {
	// AppendValue appends the literal, encoded as t, to b. If the literal is
	// null it returns b as it was and true. An error is always an *Error and
	// leaves what was appended undefined.
	AppendValue(b []byte, t wire.ValueType) (enc []byte, null bool, err error)
}

// Null is the literal for an absent value.
type Null struct{}

// AppendValue reports null.
func (Null) AppendValue(b []byte, _ wire.ValueType) ([]byte, bool, error) { return b, true, nil }

// Encoded is a literal that already is wire bytes.
type Encoded struct {
	Type  wire.ValueType
	Value []byte
}

// AppendValue appends the bytes if they are a value of type t.
func (e Encoded) AppendValue(b []byte, t wire.ValueType) ([]byte, bool, error) {
	if e.Type != t {
		return b, false, Errorf(CodeTypeMismatch, "want %v, got %v", t, e.Type)
	}
	if !wire.CheckValue(t, e.Value) {
		return b, false, Errorf(CodeTypeMismatch, "%d bytes are not a value of type %v", len(e.Value), t)
	}
	return append(b, e.Value...), false, nil
}
