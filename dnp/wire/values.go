package wire

// Values is a list of typed values, checked when it was parsed:
//
//	{type uint8, data} × n
//
// It aliases the datagram.
type Values struct {
	n int
	p []byte
}

// ParseValues parses a uint16 count and that many typed values.
func ParseValues(p []byte) (Values, error) {
	r := NewReader(p)
	v := readValues(&r)
	return v, r.Err()
}

// Len returns how many values there are.
func (v Values) Len() int { return v.n }

// Size returns the bytes that the values and their types take.
func (v Values) Size() int { return len(v.p) }

// Next splits the first value from the rest. It must not be called on an empty
// list.
func (v Values) Next() (t ValueType, value []byte, rest Values) {
	t = ValueType(v.p[0])
	r := NewReader(v.p[1:])
	value = r.Value(t)
	return t, value, Values{n: v.n - 1, p: r.Rest()}
}

func readValues(r *Reader) Values {
	v := Values{n: int(r.Uint16())}
	start := r.Rest()
	for range v.n {
		r.Value(ValueType(r.Uint8()))
		if r.Err() != nil { // a count beyond the datagram ends here, not 65,535 turns later
			return Values{}
		}
	}
	v.p = start[:len(start)-len(r.Rest())]
	return v
}
