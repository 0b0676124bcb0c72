package variant

import "bytes"

// A node path is encoded as
//
//	names    uint32, with pathNew
//	subnames uint32
//	flags    uint32
//
// followed by the texts: names, subnames, and one more if pathProperty is set. Only Godot 2
// sets it; Godot 3 and 4 read that text as a further subname. A path without pathNew is one
// text.
const (
	pathNew      = 1 << 31
	pathAbsolute = 1
	pathProperty = 2
)

// A path is a decoded node path.
type path struct {
	old      []byte // the text of an old path
	isOld    bool
	names    int
	subnames int // without the property
	flags    uint32
	texts    texts
}

func (v Value) path() path {
	names := word(v.p, 4)
	if names&pathNew == 0 {
		return path{isOld: true, old: upToNUL(v.p[8 : 8+int(names)])}
	}
	p := path{
		names: int(names &^ pathNew), subnames: int(word(v.p, 8)),
		flags: word(v.p, 12), texts: texts{p: v.p, off: 16},
	}
	if p.names+p.subnames == 0 {
		p.flags &^= pathAbsolute // as the engine does
	}
	return p
}

// appendPath appends the path as Godot displays it: /home/Level:position:x.
func (v Value) appendPath(b []byte) []byte {
	p := v.path()
	if p.isOld {
		return append(b, p.old...)
	}
	if p.flags&pathAbsolute != 0 {
		b = append(b, '/')
	}
	for i := range p.names {
		if i > 0 {
			b = append(b, '/')
		}
		b = append(b, p.texts.next()...)
	}
	if p.flags&pathProperty != 0 {
		p.subnames++
	}
	for range p.subnames {
		b = append(append(b, ':'), p.texts.next()...)
	}
	return b
}

// writePath writes a path in the form of its dialect.
func (v Value) writePath(s *sink) {
	p := v.path()
	if p.isOld {
		s.pathOf(p.old)
		return
	}
	flags, property := p.flags&pathAbsolute, int(p.flags&pathProperty/pathProperty)
	subnames := p.subnames + property
	if v.d == Godot2 {
		flags, subnames = p.flags&(pathAbsolute|pathProperty), p.subnames
	}
	s.word(uint32(p.names) | pathNew)
	s.word(uint32(subnames))
	s.word(flags)
	for range p.names + p.subnames + property {
		s.text(p.texts.next(), 0)
	}
}

// pathOf writes the path in text: names between slashes, subnames behind colons. Empty ones are
// left out.
func (s *sink) pathOf(text []byte) {
	whole, rest, _ := bytes.Cut(text, []byte(":"))
	names, subnames := parts(whole, '/', nil), parts(rest, ':', nil)
	var flags uint32
	if bytes.HasPrefix(whole, []byte("/")) && names+subnames > 0 {
		flags = pathAbsolute
	}
	s.word(uint32(names) | pathNew)
	s.word(uint32(subnames))
	s.word(flags)
	parts(whole, '/', s)
	parts(rest, ':', s)
}

// parts counts the parts of text that are not empty, and writes them to s unless that is nil.
func parts(text []byte, separator byte, s *sink) (n int) {
	for len(text) > 0 {
		end := bytes.IndexByte(text, separator)
		part := text
		if text = nil; end >= 0 {
			part, text = part[:end], part[end+1:]
		}
		if len(part) == 0 {
			continue
		}
		if n++; s != nil {
			s.text(part, 0)
		}
	}
	return n
}
