// Package backup writes and reads the file with what one space has: JSON lines, of which people can read all.
//
//	counts, err := backup.Write(w, backup.Header{…}, stored)
//
//	r, err := backup.NewReader(file)
//	for {
//		text, op, err := r.Next() // io.EOF: the file is whole
//	}
//
// The first line is the Header. Each line behind it is an op of a publish; those of one file, published in their order, make
// the space. The last line has the counts and a checksum of everything before it. INTERFACES.md promises this form.
//
// The package is pure: names of files, and what becomes of them, are the caller's.
package backup

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// version is that of the form of files. A reader refuses others.
const version = 1

// lineMax bounds a line. A state with 8,192 values and 60,000 bytes has less than a quarter of it.
const lineMax = 8 << 20

// kinds are the kinds of ops that a file has.
var kinds = []replication.OpKind{replication.OpInterest, replication.OpPut, replication.OpGroup, replication.OpEye}

// A Header says of what a file is a copy.
type Header struct {
	Version int    `json:"dnprelay_backup"`
	Space   string `json:"space"`
	Epoch   uint64 `json:"epoch"` // position of the space
	Seq     uint64 `json:"seq"`
	Time    string `json:"time"` // RFC 3339

	// Spaces is how many files were written together.
	Spaces int `json:"spaces"`
}

// Counts are what a file has.
type Counts struct {
	Ops    int `json:"ops"`
	States int `json:"states"`
}

// end returns the last line of a file.
func (c *Counts) end(sum hash.Hash) string {
	return fmt.Sprintf(`{"ops":%d,"states":%d,"sha256":"%x"}`, c.Ops, c.States, sum.Sum(nil))
}

// Write writes the file of a space.
func Write(w io.Writer, h Header, s *replication.Stored) (c Counts, err error) {
	h.Version = version
	first, err := json.Marshal(h)
	if err != nil {
		return c, err
	}
	sum, out := sha256.New(), bufio.NewWriter(w)
	both := io.MultiWriter(out, sum) // errors of out stay until Flush
	fmt.Fprintf(both, "%s\n", first)
	c.Ops, c.States = payload.WriteStored(both, s)
	fmt.Fprintln(out, c.end(sum))
	return c, out.Flush()
}

// A Reader reads a file, and checks it on the way.
type Reader struct {
	Header Header
	Counts Counts // so far

	lines *bufio.Scanner
	sum   hash.Hash
}

var (
	errEarly = errors.New("the file ends early")
	errSum   = errors.New("the file is damaged: its checksum or its counts differ")
)

// NewReader reads the header.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{lines: bufio.NewScanner(from), sum: sha256.New()}
	r.lines.Buffer(nil, lineMax)
	if !r.lines.Scan() {
		return nil, r.trouble()
	}
	fmt.Fprintf(r.sum, "%s\n", r.lines.Bytes())
	switch err := json.Unmarshal(r.lines.Bytes(), &r.Header); {
	case err != nil || r.Header.Version == 0:
		return nil, errors.New("the file is no backup of a space")
	case r.Header.Version != version:
		return nil, fmt.Errorf("the file has the format %d, this release reads %d", r.Header.Version, version)
	}
	return r, nil
}

// trouble returns why there is no further line.
func (r *Reader) trouble() error {
	if err := r.lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %d bytes", lineMax)
	}
	return cmp.Or(r.lines.Err(), errEarly)
}

// Next returns the next op and its text, which is valid until the next call. io.EOF says that the file is whole: counts and checksum agree.
// Any other error, which may come behind the last op, says that the file is not what was written.
func (r *Reader) Next() (text []byte, op replication.Op, err error) {
	if !r.lines.Scan() {
		return nil, op, r.trouble()
	}
	text = r.lines.Bytes()
	if bytes.HasPrefix(text, []byte(`{"ops":`)) {
		if string(text) != r.Counts.end(r.sum) || r.lines.Scan() {
			return nil, op, errSum
		}
		return nil, op, cmp.Or(r.lines.Err(), io.EOF)
	}
	fmt.Fprintf(r.sum, "%s\n", text)
	p, problem := payload.JSON.Parse(text, "")
	switch {
	case problem != nil:
		return nil, op, fmt.Errorf("the file is damaged: line %d: %w", r.Counts.Ops+2, problem)
	case len(p.Ops) != 1 || !slices.Contains(kinds, p.Ops[0].Kind):
		return nil, op, fmt.Errorf("the file is damaged: line %d has an op that no backup has", r.Counts.Ops+2)
	}
	r.Counts.Ops++
	if p.Ops[0].Kind == replication.OpPut {
		r.Counts.States++
	}
	return text, p.Ops[0], nil
}
