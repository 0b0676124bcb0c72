package sessionlog

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/format"
)

// Errors of ParseBlock.
var (
	// ErrDamaged says that a write of a log cannot be read.
	ErrDamaged = errors.New("sessionlog: damaged log")

	// ErrFormat says that a write has a format, or a mandatory record, that this program does
	// not know. It is of another release; its session is to be left alone.
	ErrFormat = errors.New("sessionlog: a write of another format")
)

// A RecordKind is the kind of a record in a write.
type RecordKind uint8

// The kinds. The values are part of logs.
const (
	RecordOpen  RecordKind = iota + 1 // the session begins
	RecordRX                          // commands of the client
	RecordTX                          // the meaning of numbers of the edge
	RecordTXAck                       // which of them the client has
	RecordLink                        // changes of links
	RecordCkpt                        // everything that precedes, in one record
	RecordAdopt                       // another edge goes on
	RecordHand                        // the owner handed the session over
	RecordClose                       // the session ended
)

// RecordCommands has what of the client's commands was answered, beside a checkpoint. It is optional: an
// edge of a release without commands skips it, and what was answered is forgotten.
const RecordCommands = recordOptional

// RecordRepeats has which commands of the edge the client may keep, when that changes. A reader that skips it
// may deliver one of them a second time, a lap later.
const RecordRepeats = recordOptional + 1

// recordOptional is the first of the kinds that a reader skips if it does not know them. A
// lower kind that it does not know makes the write one of another format.
const recordOptional RecordKind = 128

// An ID names a session for ever.
type ID [16]byte

// An Info says who a session is. It does not change.
type Info struct {
	ID    ID
	Addr  netip.AddrPort // of the client
	About []byte         // the edge's: space, client name and so on; at most AboutMax bytes
}

// AboutMax bounds Info.About.
const AboutMax = 4096

// A Message is a reliable message of the client that is not known to have reached the game
// servers.
type Message struct {
	Number   uint64
	Previous uint64 // number of the message before, plus one; 0 for the first
	Data     []byte

	// Header is what the edge adds for game servers. It is not in the log.
	Header map[string]string
}

// A Checkpoint is all that a successor needs.
type Checkpoint struct {
	Info        Info
	Node        string // of the owner
	Snapshot    []byte // see dnp.Conn.AppendCheckpoint
	Token       uint64 // the highest token of a message that has a number
	Previous    uint64 // number of the message before the first of Undelivered, plus one
	Undelivered []Message
	Commands    command.Progress // in a record of its own
}

// A Block is the content of one write of a session: a head that places it in the chain, and
// records.
//
//	format uint8 = 1
//	epoch, owner, number, previous, delivered uvarint
//	records: kind uint8, length uvarint, body
type Block struct {
	Format    uint8  // 0 stands for the oldest
	Epoch     uint64 // of the owner: grows with each adoption
	Owner     uint64 // random, of one Session
	Number    uint64 // of this write, counted by the owner
	Previous  uint64 // sequence of the write before it
	Delivered uint64 // messages with lower numbers have reached the game servers

	Open    bool
	Changes dnp.Changes // RX, TX, TXACK and LINK
	Acks    bool        // Changes has an acknowledgement state
	Ckpt    *Checkpoint
	Adopt   *string // name of the edge
	Hand    *string // name of the edge that is to go on
	Close   *string // reason
}

// Append appends the encoded block.
func (k *Block) Append(b []byte) []byte {
	b = append(b, max(k.Format, format.Oldest))
	for _, v := range [...]uint64{k.Epoch, k.Owner, k.Number, k.Previous, k.Delivered} {
		b = binary.AppendUvarint(b, v)
	}
	if k.Open {
		b = appendRecord(b, RecordOpen, nil)
	}
	if k.Adopt != nil {
		b = appendRecord(b, RecordAdopt, []byte(*k.Adopt))
	}
	if k.Ckpt != nil {
		b = appendRecord(b, RecordCkpt, k.Ckpt.append(nil))
	}
	b = appendChanges(b, &k.Changes, k.Acks)
	if k.Hand != nil {
		b = appendRecord(b, RecordHand, []byte(*k.Hand))
	}
	if k.Close != nil {
		b = appendRecord(b, RecordClose, []byte(*k.Close))
	}
	if k.Ckpt != nil && k.Ckpt.Commands.Hello != 0 {
		var p []byte
		for _, v := range k.Ckpt.Commands.Words() {
			p = binary.AppendUvarint(p, v)
		}
		b = appendRecord(b, RecordCommands, p)
	}
	if r := &k.Changes.Repeats; r.First > 0 || len(r.NoOps) > 0 {
		p := binary.AppendUvarint(nil, r.First)
		for _, n := range r.NoOps {
			p = binary.LittleEndian.AppendUint16(p, n)
		}
		b = appendRecord(b, RecordRepeats, p)
	}
	return b
}

func appendRecord(b []byte, kind RecordKind, body []byte) []byte {
	return appendBytes(append(b, byte(kind)), body)
}

func appendBytes(b, p []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

func appendChanges(b []byte, ch *dnp.Changes, acks bool) []byte {
	if len(ch.Received) > 0 {
		var p []byte
		for _, r := range ch.Received {
			p = append(binary.AppendUvarint(p, r.Number), byte(r.Command))
			p = appendBytes(p, r.Body)
		}
		b = appendRecord(b, RecordRX, p)
	}
	if len(ch.Sent) > 0 {
		var p []byte
		for i := range ch.Sent {
			p = appendSent(p, &ch.Sent[i])
		}
		b = appendRecord(b, RecordTX, p)
	}
	if acks {
		p := binary.AppendUvarint(nil, ch.Acked)
		b = appendRecord(b, RecordTXAck, binary.AppendUvarint(p, uint64(ch.AckedAhead)))
	}
	if len(ch.Links) > 0 {
		var p []byte
		for _, l := range ch.Links {
			p = append(binary.LittleEndian.AppendUint16(p, uint16(l.Link)), byte(l.What))
		}
		b = appendRecord(b, RecordLink, p)
	}
	return b
}

// Bits of a sent command.
const (
	sentTakeDown = 1 << iota
	sentReadOnly
	sentHasRef
)

func appendSent(b []byte, s *dnp.SentCommand) []byte {
	var flags byte
	for i, on := range [...]bool{s.TakeDown, s.ReadOnly, s.HasRef} {
		if on {
			flags |= 1 << i
		}
	}
	b = append(binary.AppendUvarint(b, s.Number), byte(s.Kind), byte(s.Flags), flags)
	b = binary.AppendUvarint(b, uint64(s.Link))
	b = binary.AppendUvarint(b, s.Ref)
	b = binary.AppendUvarint(b, s.Token)
	return appendBytes(b, s.Data)
}

func (c *Checkpoint) append(b []byte) []byte {
	b = append(b, c.Info.ID[:]...)
	addr, _ := c.Info.Addr.MarshalBinary() // never fails
	b = appendBytes(b, addr)
	b = appendBytes(b, c.Info.About)
	b = appendBytes(b, []byte(c.Node))
	b = appendBytes(b, c.Snapshot)
	b = binary.AppendUvarint(b, c.Token)
	b = binary.AppendUvarint(b, c.Previous)
	for _, m := range c.Undelivered {
		b = appendBytes(binary.AppendUvarint(b, m.Number), m.Data)
	}
	return b
}

// ParseBlock parses a write. Its slices alias p. It skips optional records that it does not
// know. The error is ErrFormat for a write of another release, otherwise ErrDamaged.
func ParseBlock(p []byte) (Block, error) {
	r := newReader(p)
	if f := r.Uint8(); f != format.Oldest { // the only format that exists
		if format.Other(f) {
			return Block{}, ErrFormat
		}
		return Block{}, ErrDamaged
	}
	k := Block{Epoch: r.uint(), Owner: r.uint(), Number: r.uint(), Previous: r.uint(), Delivered: r.uint()}
	last := -1
	for r.more() {
		kind, body := RecordKind(r.Uint8()), newReader(r.Counted())
		place := slices.Index(order[:], kind)
		switch {
		case r.Err() != nil:
			return Block{}, ErrDamaged
		case kind == RecordCommands && k.Ckpt != nil:
			if k.Ckpt.Commands = body.progress(); body.Err() != nil || body.more() {
				return Block{}, ErrDamaged
			}
			continue
		case kind == RecordRepeats:
			if k.Changes.Repeats = body.repeats(); body.Err() != nil {
				return Block{}, ErrDamaged
			}
			continue
		case kind >= recordOptional:
			continue
		case place < 0 && kind > 0:
			return Block{}, ErrFormat
		case place <= last:
			return Block{}, ErrDamaged
		}
		last = place
		if k.parseRecord(kind, &body); body.Err() != nil || body.more() {
			return Block{}, ErrDamaged
		}
	}
	if r.Err() != nil {
		return Block{}, ErrDamaged
	}
	return k, nil
}

// order is the order of the records in a block. Each comes at most once.
var order = [...]RecordKind{
	RecordOpen, RecordAdopt, RecordCkpt, RecordRX, RecordTX, RecordTXAck, RecordLink, RecordHand, RecordClose,
}

func (k *Block) parseRecord(kind RecordKind, r *reader) {
	switch kind {
	case RecordOpen:
		k.Open = true
	case RecordAdopt:
		k.Adopt = r.name()
	case RecordHand:
		k.Hand = r.name()
	case RecordClose:
		k.Close = r.name()
	case RecordRX:
		for r.more() {
			k.Changes.Received = append(k.Changes.Received, dnp.ReceivedCommand{Number: r.uint(), Command: wire.Command(r.Uint8()), Body: r.Counted()})
		}
	case RecordTX:
		for r.more() {
			k.Changes.Sent = append(k.Changes.Sent, r.sent())
		}
	case RecordTXAck:
		k.Acks = true
		k.Changes.Acked, k.Changes.AckedAhead = r.uint(), uint32(r.Uvarint(1<<32-1))
	case RecordLink:
		for r.more() {
			k.Changes.Links = append(k.Changes.Links, dnp.LinkChange{Link: wire.LinkID(r.Uint16()), What: dnp.LinkFate(r.Uint8())})
		}
	case RecordCkpt:
		k.Ckpt = r.checkpoint()
	}
}

// A reader reads the fields of records. The first failure sticks and turns all later fields
// into zeros.
type reader struct{ wire.Reader }

func newReader(p []byte) reader { return reader{wire.NewReader(p)} }

// more reports whether something follows.
func (r *reader) more() bool { return len(r.Rest()) > 0 }

func (r *reader) uint() uint64 { return r.Uvarint(1<<64 - 1) }

// name reads the rest as a string.
func (r *reader) name() *string {
	s := string(r.Bytes(len(r.Rest())))
	return &s
}

func (r *reader) progress() command.Progress {
	return command.Restore([3]uint64{r.uint(), r.uint(), r.uint()})
}

func (r *reader) repeats() (kept dnp.Repeats) {
	for kept.First = r.uint(); r.more() && r.Err() == nil; {
		kept.NoOps = append(kept.NoOps, r.Uint16())
	}
	return kept
}

func (r *reader) sent() dnp.SentCommand {
	s := dnp.SentCommand{Number: r.uint(), Kind: dnp.CommandKind(r.Uint8()), Flags: wire.PartFlags(r.Uint8())}
	flags := r.Uint8()
	s.TakeDown, s.ReadOnly, s.HasRef = flags&sentTakeDown != 0, flags&sentReadOnly != 0, flags&sentHasRef != 0
	if flags >= sentHasRef<<1 || s.Kind > dnp.SentFrozen {
		r.Fail(ErrDamaged)
	}
	s.Link, s.Ref, s.Token, s.Data = wire.LinkID(r.Uvarint(0xFFFF)), r.uint(), r.uint(), r.Counted()
	return s
}

func (r *reader) checkpoint() *Checkpoint {
	c := &Checkpoint{}
	copy(c.Info.ID[:], r.Bytes(len(c.Info.ID)))
	if c.Info.Addr.UnmarshalBinary(r.Counted()) != nil {
		r.Fail(ErrDamaged)
	}
	c.Info.About = r.Counted()
	c.Node = string(r.Counted())
	if len(c.Info.About) > AboutMax {
		r.Fail(ErrDamaged)
	}
	c.Snapshot, c.Token, c.Previous = r.Counted(), r.uint(), r.uint()
	previous := c.Previous
	for r.more() {
		m := Message{Number: r.uint(), Previous: previous, Data: r.Counted()}
		if m.Number < previous {
			r.Fail(ErrDamaged)
		}
		previous = m.Number + 1
		c.Undelivered = append(c.Undelivered, m)
	}
	return c
}
