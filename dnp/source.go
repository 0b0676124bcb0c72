package dnp

import "github.com/dnprelay/dnprelay/dnp/netstate"

// A SourceConfig describes a network state that peers can be linked to.
type SourceConfig struct {
	// State holds the values. Its owner sets them and then calls Source.Changed.
	State *netstate.State

	// Message is the link message, 1 to 16,000 bytes, that tells the peer what
	// the state is. Farewell, if not empty, is sent as a reliable message when a
	// link ends. Both are kept, not copied.
	Message, Farewell []byte

	// Ref names the state in snapshots.
	Ref uint64

	// Data is the owner's.
	Data any
}

// A Source is a network state as all connections of an Endpoint share it.
type Source struct {
	cfg SourceConfig
}

// Changed says that value i of the state was set.
func (s *Source) Changed(i int) {}

// ChangedMask says that the values in m were set.
func (s *Source) ChangedMask(m netstate.Mask) {}

// SetDescription replaces the link message and the farewell of links to come and
// links to end. Both are kept, not copied.
func (s *Source) SetDescription(message, farewell []byte) {}

// Remove takes down all links, with farewell. The Source must not be used after.
func (s *Source) Remove() {}

// State returns the values.
func (s *Source) State() *netstate.State { return s.cfg.State }

// Ref returns the name of the state in snapshots.
func (s *Source) Ref() uint64 { return s.cfg.Ref }

// Data returns what the owner put into the SourceConfig.
func (s *Source) Data() any { return s.cfg.Data }

// Links returns the number of links, up or not.
func (s *Source) Links() int { return 0 }
