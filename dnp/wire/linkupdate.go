package wire

import (
	"encoding/binary"
	"errors"
)

// Errors of a LinkUpdate that does not fit its links.
var (
	ErrIndex     = errors.New("dnp/wire: value index out of range")
	ErrValueKind = errors.New("dnp/wire: value of another type than the link's")
)

// A LinkUpdate carries new values of linked states. In profile denetwork:
//
//	command uint8 = 9
//	links   uint8
//	link    uint16, values uint8, {index uint16, data} × values    × links
//
// and in profile spec, where values 0 to values-1 follow in order:
//
//	command uint8 = 9
//	links   uint16
//	link    uint16, values uint16, {type uint8, data} × values     × links

// UpdateHeadSize returns the bytes before the first link of a LinkUpdate.
func (p Profile) UpdateHeadSize() int { return 1 + p.countSize() }

// UpdateLinkSize returns the bytes before the first value of a link.
func (p Profile) UpdateLinkSize() int { return 2 + p.countSize() }

// UpdateValueSize returns the bytes that a value of size bytes takes.
func (p Profile) UpdateValueSize(size int) int {
	if p == Spec {
		return 1 + size
	}
	return 2 + size
}

func (p Profile) countSize() int {
	if p == Spec {
		return 2
	}
	return 1
}

// AppendUpdateHead appends a LinkUpdate up to its first link.
func (p Profile) AppendUpdateHead(b []byte, links int) []byte {
	return p.AppendUpdateCount(append(b, byte(CommandLinkUpdate)), links)
}

// PutUpdateLinks sets the link count of the LinkUpdate that starts at b.
func (p Profile) PutUpdateLinks(b []byte, links int) { p.PutUpdateCount(b[1:], links) }

// AppendUpdateLink appends the head of a link.
func (p Profile) AppendUpdateLink(b []byte, link LinkID, values int) []byte {
	return p.AppendUpdateCount(binary.LittleEndian.AppendUint16(b, uint16(link)), values)
}

// AppendUpdateCount appends a number of links, or of values, which follows a LinkID.
func (p Profile) AppendUpdateCount(b []byte, n int) []byte {
	if p == Spec {
		return binary.LittleEndian.AppendUint16(b, uint16(n))
	}
	return append(b, byte(n))
}

// PutUpdateCount sets the number that starts at b.
func (p Profile) PutUpdateCount(b []byte, n int) {
	if p == Spec {
		binary.LittleEndian.PutUint16(b, uint16(n))
		return
	}
	b[0] = byte(n)
}

// AppendUpdateValue appends value number index of a link.
func (p Profile) AppendUpdateValue(b []byte, index int, t ValueType, value []byte) []byte {
	if p == Spec {
		return AppendTypedValue(b, t, value)
	}
	return append(binary.LittleEndian.AppendUint16(b, uint16(index)), value...)
}

// An UpdateReader reads a LinkUpdate: the caller calls NextLink, and after each NextValue
// until it reports false. A copy of an UpdateReader reads the same links again.
type UpdateReader struct {
	r       Reader
	profile Profile
	links   int // links to come
	values  int // values of this link to come
	index   int // of the next value, in profile spec
}

// UpdateReader returns a reader of a LinkUpdate after its command byte.
func (p Profile) UpdateReader(b []byte) UpdateReader {
	u := UpdateReader{r: NewReader(b), profile: p}
	u.links = u.count()
	return u
}

// KeepAlive reports whether nothing was read yet of a LinkUpdate without links, which is a sign of
// life and nothing else. One with bytes behind the count is malformed.
func (u *UpdateReader) KeepAlive() bool {
	return u.links == 0 && u.r.Err() == nil && len(u.r.Rest()) == 0
}

// NextLink returns the next link. It reports false after the last one and after
// an error. The caller must have read the values of the previous link.
func (u *UpdateReader) NextLink() (link LinkID, ok bool) {
	if u.links == 0 || u.r.Err() != nil {
		return 0, false
	}
	u.links--
	link = LinkID(u.r.Uint16())
	u.values, u.index = u.count(), 0
	return link, u.r.Err() == nil
}

// NextValue returns the next value of the link, whose layout is types. The
// value aliases the datagram. It reports false after the last one and after an
// error.
func (u *UpdateReader) NextValue(types []ValueType) (index int, value []byte, ok bool) {
	if u.values == 0 || u.r.Err() != nil {
		return 0, nil, false
	}
	u.values--
	index = u.readIndex(types)
	if u.r.Err() != nil {
		return 0, nil, false
	}
	value = u.r.Value(types[index])
	return index, value, u.r.Err() == nil
}

// Err returns the error that ended the reading.
func (u *UpdateReader) Err() error { return u.r.Err() }

// readIndex reads the bytes before a value and returns the value's index.
func (u *UpdateReader) readIndex(types []ValueType) int {
	if u.profile == Denetwork {
		index := int(u.r.Uint16())
		if index >= len(types) {
			u.r.Fail(ErrIndex)
		}
		return index
	}
	index := u.index
	u.index++
	t := ValueType(u.r.Uint8())
	switch {
	case index >= len(types):
		u.r.Fail(ErrIndex)
	case t != types[index]:
		u.r.Fail(ErrValueKind)
	}
	return index
}

func (u *UpdateReader) count() int {
	if u.profile == Spec {
		return int(u.r.Uint16())
	}
	return int(u.r.Uint8())
}
