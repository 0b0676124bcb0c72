package wire

// A Profile says which of the two dialects of DNP a listener speaks. One
// datagram cannot tell them apart, so a profile belongs to a listener.
type Profile uint8

const (
	// Denetwork is what every deployed client speaks (denetwork libraries and
	// the engine module): numbers modulo 65535, short LinkUpdate, commands 10
	// and 11.
	Denetwork Profile = iota

	// Spec is the published document as written: numbers modulo 65536, typed
	// LinkUpdate values without an index, no commands 10 and 11.
	Spec
)

var profileNames = [...]string{Denetwork: "denetwork", Spec: "spec"}

// String returns the name of p as it stands in a listener URL.
func (p Profile) String() string {
	if int(p) < len(profileNames) {
		return profileNames[p]
	}
	return "profile?"
}

// ParseProfile returns the profile with this name.
func ParseProfile(name string) (p Profile, ok bool) {
	for i, n := range profileNames {
		if n == name {
			return Profile(i), true
		}
	}
	return 0, false
}

// Modulus returns how many reliable numbers there are before they start again.
//
// The document says both 65'536 and "% 65535"; every implementation counts
// modulo 65535, so that 65535 never appears on the wire.
func (p Profile) Modulus() uint64 {
	if p == Spec {
		return 65536
	}
	return 65535
}

// Long reports whether p has commands 10 and 11.
func (p Profile) Long() bool { return p == Denetwork }
