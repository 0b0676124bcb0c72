package view

// A RefID is the short number of a view within one epoch of a space.
type RefID uint16

// NoRef says that a record names its view by EntityID. 0 is not used either.
const NoRef RefID = 0xFFFF

// An EntityID is the long number of a view: the state's number and, in the low
// byte, which of its views it is.
type EntityID uint64

// PerState is the most views of a state, because the view has one byte.
const PerState = 256

// Entity returns the id of one view of a state.
func Entity(state uint64, view int) EntityID { return EntityID(state<<8 | uint64(uint8(view))) }

// State returns the state's number.
func (e EntityID) State() uint64 { return uint64(e) >> 8 }

// View returns which of the state's views it is.
func (e EntityID) View() int { return int(uint8(e)) }
