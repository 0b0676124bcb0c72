package sessionlog

import (
	"errors"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/format"
)

// errTorn says that the entries do not follow one another: some were deleted while they were
// read, or the answer is outdated. The log is to be read again.
var errTorn = errors.New("sessionlog: torn log")

// A chain is what a log says about its session.
type chain struct {
	empty     bool
	tail      uint64 // sequence of the last write
	last      Block
	closed    bool
	ckpt      *Checkpoint
	changes   []dnp.Changes // behind ckpt
	delivered uint64
	token     uint64
	writes    int // since the checkpoint
	bytes     int
	owner     string // node, as the newest ADOPT has it
}

// readChain reads the entries of a log. What precedes the last checkpoint, or the end of the
// session, does not matter; ErrFormat says that something else has another format.
func readChain(entries []Entry) (chain, error) {
	if len(entries) == 0 {
		return chain{empty: true}, nil
	}
	c := chain{tail: entries[len(entries)-1].Seq}
	other := false // a write of another format is among those that matter
	for i := range entries {
		k, err := ParseBlock(entries[i].Data)
		if err == ErrFormat {
			other, c.closed = true, false
			continue
		}
		if err != nil {
			return c, err
		}
		if k.Ckpt != nil {
			c = chain{tail: c.tail, ckpt: k.Ckpt, token: k.Ckpt.Token, owner: k.Ckpt.Node}
			other = snapshotOfOtherFormat(k.Ckpt.Snapshot)
		} else if i > 0 && c.ckpt != nil && k.Previous != entries[i-1].Seq {
			return c, errTorn
		}
		c.add(k, len(entries[i].Data))
	}
	switch {
	case c.closed:
		return c, nil
	case other:
		return c, ErrFormat
	case c.ckpt == nil:
		return c, errTorn
	}
	return c, nil
}

// snapshotOfOtherFormat reports whether the snapshot of a connection is of another release.
func snapshotOfOtherFormat(snapshot []byte) bool {
	return len(snapshot) > 0 && !dnp.KnownSnapshot(snapshot) && format.Other(snapshot[0])
}

// numbers returns the next number that is expected of the client, and the next number of the
// edge.
func (c *chain) numbers() (received, sent uint64) {
	if c.ckpt == nil {
		return 0, 0
	}
	return dnp.LoggedNumbers(c.ckpt.Snapshot, c.changes)
}

// add adds the next write.
func (c *chain) add(k Block, size int) {
	c.last, c.closed = k, k.Close != nil
	c.writes++
	c.bytes += size
	c.delivered = max(c.delivered, k.Delivered)
	if k.Adopt != nil {
		c.owner = *k.Adopt
	}
	for i := range k.Changes.Sent {
		c.token = max(c.token, k.Changes.Sent[i].Token)
	}
	if k.Acks || len(k.Changes.Received)+len(k.Changes.Sent)+len(k.Changes.Links) > 0 {
		c.changes = append(c.changes, k.Changes)
	}
}
