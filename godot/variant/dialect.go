package variant

import (
	"fmt"
	"strconv"
)

// A Dialect is the encoding of one generation of Godot. The same header means
// different types in each, so it has to be known; nothing in the bytes of a bare
// value tells it. [DecodeDictionary] is the exception: no two dialects share the
// header of a Dictionary.
type Dialect uint8

const (
	Godot2 Dialect = 2 + iota // the published document; Godot 1.1 to 2.1
	Godot3
	Godot4
)

// dialects is how many there are.
const dialects = 3

// ParseDialect returns the dialect of Godot's major version: "2", "3" or "4".
func ParseDialect(version string) (d Dialect, ok bool) {
	n, err := strconv.ParseUint(version, 10, 8)
	d = Dialect(n)
	return d, err == nil && d.Valid() && version == d.Version()
}

// Valid reports whether d is one of the three.
func (d Dialect) Valid() bool { return d >= Godot2 && d <= Godot4 }

// Version returns the major version of Godot in digits.
func (d Dialect) Version() string { return strconv.Itoa(int(d)) }

// String returns "godot2", "godot3" or "godot4".
func (d Dialect) String() string { return fmt.Sprintf("godot%d", uint8(d)) }

func (d Dialect) index() int { return int(d - Godot2) }
