package dnptest

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// What all implementations have in common.
const (
	windowSize     = 10 // reliable commands in flight, and those that may arrive early
	resendTime     = 500 * time.Millisecond
	connectResend  = time.Second
	connectTimeout = 5 * time.Second
	partSize       = 1357 // bytes of one part of a long message
)

// A Behaviour is what distinguishes one implementation of DNP from another.
// The comments name the implementations that have it: C, J and P are denetwork
// a4ed3e0 in C++, Java and Python, ENG is the engine module b26e8b4b0. Line
// numbers are those of denConnection.cpp, Connection.java and connection.py.
type Behaviour struct {
	Name    string
	Profile wire.Profile // dialect of LinkUpdate

	// Numbers.

	// Modulus of the reliable numbers. 65535 in C (171, 834), J, P and ENG;
	// 65536 in the text.
	Modulus int

	// KeepsRepeats queues repeats of delivered numbers and never drops them. One lap
	// later it delivers the stale copy instead of the true one (C, J, P, ENG).
	KeepsRepeats bool

	// Sending.

	OneMore        bool          // tests the window before it queues a command, so 11 are in flight (ENG since 1.33)
	DropsTail      bool          // empties the queue when its front is first acknowledged, which skips numbers (P 1287)
	GiveUp         time.Duration // 3.0 s since the first sending of a command (all)
	ClosesOnGiveUp bool          // sends ConnectionClose then (C, J, P)
	FlushesOnClose bool          // sends updates and repeats reliables before ConnectionClose (J 786, P 769)
	KeepsNumbers   bool          // the same object continues with the old numbers of both directions after a reconnect (P 781)
	AckCodeResends int           // highest ack code that means "send again": 1 (C, J, P), 255 (ENG)

	// Connecting.

	IgnoresUnknown   bool // ack results above 2 are ignored until the timeout (J, P)
	ChecksProtocol   bool // an accept with another protocol than 0 is ignored (P)
	ChecksSource     bool // datagrams of other addresses are ignored (ENG)
	CloseAnyTime     bool // ConnectionClose ends an attempt to connect (C 779)
	MessagesAnyTime  bool // unreliable messages are delivered while connecting (C 783)
	ThrowsOnEmpty    bool // an empty message raises: it is dropped, or sticks if reliable (P, ENG)
	CrashesOnBadData bool // a datagram that does not parse ends the game (ENG)
	CrashesOnNoData  bool // a data value without bytes ends the game (ENG)

	// Long messages.

	LongMessage LongMessage
	LongLink    LongLink

	// Links.

	LinkDown          LinkDownRule
	Relinks           bool // a LinkID that went down can be linked again (ENG, the text)
	AsksAgain         bool // a repeated offer asks the application again, then stays silent (J, P)
	MismatchDown      bool // another layout is answered with LinkDown (ENG, the text); else the stream is stuck (C, J, P)
	SkipsOneID        bool // skips only one used ID when it looks for a free LinkID (J 538, P 529)
	ASCIIOnly         bool // strings with other characters raise (P)
	NoVectors         bool // offers with vectors and quaternions raise (P)
	EnforcesReadOnly  bool // neither writes nor accepts writes against the flag (the text; no implementation)
	SignedCounts      bool // counts of 128 and more in a LinkUpdate are negative (J)
	RemoteClearsLocal bool // an update overwrites a pending local change of that value (C, ENG)
	CountsTwice       bool // such a link is counted twice in the next LinkUpdate (C, ENG)

	// The frame.

	// Tick is how often the application calls the library: 16 ms (C and ENG, a
	// frame), 5 ms (J, P, a timer). Timers and LinkUpdates happen on ticks.
	Tick time.Duration

	// ReadsOnTick leaves datagrams in the socket until the next tick (C, ENG).
	ReadsOnTick bool

	// EmptyEndsTick stops reading for this tick at an empty datagram (C).
	EmptyEndsTick bool
}

// A LongMessage is what a peer does with command 10.
type LongMessage uint8

const (
	LongWorks   LongMessage = iota // C, P, ENG
	LongSticks                     // J: the first part is acknowledged, then the stream is stuck; the probe is invisible, and it sends command 10 itself
	LongUnknown                    // ignored, not acknowledged, not sent: library < 1.2, engine < 1.24, the text
)

// A LongLink is what a peer does with command 11, which no implementation sends.
type LongLink uint8

const (
	LongLinkWorks   LongLink = iota // ENG
	LongLinkSingle                  // C: takes bit 2 for "last", so that only a single part works
	LongLinkSticks                  // J: acknowledged, then stuck
	LongLinkUnknown                 // P, and older peers: never acknowledged
)

// A LinkDownRule says in which phases LinkDown affects a link.
type LinkDownRule uint8

const (
	DownWhileUp        LinkDownRule = iota // C 984, J 1278, P 1101: a refusal is ignored
	DownWhileListening                     // ENG: a link that is up stays up
	DownAlways                             // the text
)

// Cpp returns the behaviour of the C++ library.
func Cpp() Behaviour {
	b := library("cpp")
	b.CloseAnyTime = true
	b.MessagesAnyTime = true
	b.LongLink = LongLinkSingle
	b.RemoteClearsLocal = true
	b.CountsTwice = true
	b.Tick = 16 * time.Millisecond
	b.ReadsOnTick = true
	b.EmptyEndsTick = true
	return b
}

// Java returns the behaviour of the Java library.
func Java() Behaviour {
	b := library("java")
	b.FlushesOnClose = true
	b.IgnoresUnknown = true
	b.LongMessage = LongSticks
	b.LongLink = LongLinkSticks
	b.AsksAgain = true
	b.SkipsOneID = true
	b.SignedCounts = true
	return b
}

// Python returns the behaviour of the Python library.
func Python() Behaviour {
	b := library("python")
	b.DropsTail = true
	b.FlushesOnClose = true
	b.KeepsNumbers = true
	b.IgnoresUnknown = true
	b.ChecksProtocol = true
	b.ThrowsOnEmpty = true
	b.LongLink = LongLinkUnknown
	b.AsksAgain = true
	b.SkipsOneID = true
	b.ASCIIOnly = true
	b.NoVectors = true
	return b
}

// Engine returns the behaviour of the engine module.
func Engine() Behaviour {
	b := library("engine")
	b.OneMore = true
	b.ClosesOnGiveUp = false
	b.AckCodeResends = 255
	b.ChecksSource = true
	b.ThrowsOnEmpty = true
	b.CrashesOnBadData = true
	b.CrashesOnNoData = true
	b.LinkDown = DownWhileListening
	b.Relinks = true
	b.MismatchDown = true
	b.RemoteClearsLocal = true
	b.CountsTwice = true
	b.Tick = 16 * time.Millisecond
	b.ReadsOnTick = true
	return b
}

// SpecText returns the behaviour of a client written from the text alone. Its window
// rule is the text's own, which says 65535 where the rest of the text says 65536.
func SpecText() Behaviour {
	b := library("spec")
	b.Profile = wire.Spec
	b.Modulus = 65536
	b.KeepsRepeats = false
	b.LongMessage = LongUnknown
	b.LongLink = LongLinkUnknown
	b.LinkDown = DownAlways
	b.Relinks = true
	b.MismatchDown = true
	b.EnforcesReadOnly = true
	return b
}

// Presets returns all existing behaviours, in a fixed order.
func Presets() []Behaviour {
	return []Behaviour{Cpp(), Java(), Python(), Engine(), SpecText()}
}

// library returns what the denetwork libraries have in common.
func library(name string) Behaviour {
	return Behaviour{
		Name:           name,
		Profile:        wire.Denetwork,
		Modulus:        65535,
		KeepsRepeats:   true,
		GiveUp:         3 * time.Second,
		ClosesOnGiveUp: true,
		AckCodeResends: 1,
		Tick:           5 * time.Millisecond,
	}
}
