package wire

// A Seq is the number of a reliable command as it stands on the wire.
//
// Connections count reliable commands in a uint64 that never wraps; a Seq is
// that count modulo [Profile.Modulus].
type Seq uint16

// Seq returns the wire number of the n-th reliable command of a connection.
func (p Profile) Seq(n uint64) Seq { return Seq(n % p.Modulus()) }

// Unwrap returns the count that s stands for, which is the one nearest to near.
// It reports false for a number that the profile does not use (65535 in
// profile denetwork) and for counts below zero.
func (p Profile) Unwrap(s Seq, near uint64) (n uint64, ok bool) {
	m := p.Modulus()
	if uint64(s) >= m {
		return 0, false
	}
	forward := (uint64(s) + m - near%m) % m
	if forward <= m/2 {
		return near + forward, true
	}
	back := m - forward
	return near - back, back <= near
}
