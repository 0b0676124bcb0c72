package wire

import "slices"

// A Profile is one of the two dialects of DNP. A single datagram does not tell which,
// so a listener has one profile.
type Profile uint8

const (
	// Denetwork is the dialect of every deployed client (denetwork libraries and the
	// engine module): numbers modulo 65535, short LinkUpdate, commands 10 and 11.
	Denetwork Profile = iota

	// Spec is the published document as written: numbers modulo 65536, typed
	// LinkUpdate values without an index, no commands 10 and 11.
	Spec
)

var profileNames = [...]string{Denetwork: "denetwork", Spec: "spec"}

// String returns the name of p in a listener URL.
func (p Profile) String() string {
	if int(p) < len(profileNames) {
		return profileNames[p]
	}
	return "profile?"
}

// ParseProfile returns the profile with this name.
func ParseProfile(name string) (p Profile, ok bool) {
	i := slices.Index(profileNames[:], name)
	return Profile(max(i, 0)), i >= 0
}

// Modulus returns after how many commands the reliable numbers start again.
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

// A Command is the first byte of a datagram.
type Command uint8

const (
	CommandConnectionRequest     Command = 0
	CommandConnectionAck         Command = 1
	CommandConnectionClose       Command = 2
	CommandMessage               Command = 3
	CommandReliableMessage       Command = 4
	CommandReliableLinkState     Command = 5
	CommandReliableAck           Command = 6
	CommandLinkUp                Command = 7
	CommandLinkDown              Command = 8
	CommandLinkUpdate            Command = 9
	CommandReliableMessageLong   Command = 10
	CommandReliableLinkStateLong Command = 11
)

var commandNames = [...]string{
	CommandConnectionRequest:     "ConnectionRequest",
	CommandConnectionAck:         "ConnectionAck",
	CommandConnectionClose:       "ConnectionClose",
	CommandMessage:               "Message",
	CommandReliableMessage:       "ReliableMessage",
	CommandReliableLinkState:     "ReliableLinkState",
	CommandReliableAck:           "ReliableAck",
	CommandLinkUp:                "LinkUp",
	CommandLinkDown:              "LinkDown",
	CommandLinkUpdate:            "LinkUpdate",
	CommandReliableMessageLong:   "ReliableMessageLong",
	CommandReliableLinkStateLong: "ReliableLinkStateLong",
}

// String returns the protocol's name for c.
func (c Command) String() string {
	if int(c) < len(commandNames) {
		return commandNames[c]
	}
	return "Command?"
}

// A Seq is the number of a reliable command on the wire.
//
// Connections count reliable commands in a uint64 that never wraps; a Seq is
// that count modulo [Profile.Modulus].
type Seq uint16

// Numbered returns the command of a datagram, and the number of a reliable command or of the one
// that it acknowledges. It reports false for other datagrams and those that are too short.
func Numbered(p []byte) (cmd Command, seq Seq, ok bool) {
	r := NewReader(p)
	cmd, seq = Command(r.Uint8()), Seq(r.Uint16())
	switch cmd {
	case CommandReliableAck, CommandReliableMessage, CommandReliableLinkState, CommandReliableMessageLong, CommandReliableLinkStateLong:
		return cmd, seq, r.Err() == nil
	}
	return cmd, 0, false
}

// Seq returns the wire number of the n-th reliable command of a connection.
func (p Profile) Seq(n uint64) Seq {
	if p == Spec {
		return Seq(n % 65536)
	}
	return Seq(n % 65535) // a constant divides faster than Modulus
}

// Unwrap returns the count that s stands for: the one nearest to near.
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
