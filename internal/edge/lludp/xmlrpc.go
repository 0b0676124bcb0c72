package lludp

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of a request. Viewers send about 2 KiB.
const (
	requestMax  = 32 << 10 // bytes
	depthMax    = 12       // elements in each other
	elementsMax = 1024
	textMax     = 4 << 10 // bytes of one value
)

// Errors of parseCall. They are static, because hostile input must not cost more than needed.
var (
	errBounds    = errors.New("lludp: the XML-RPC call is too large")
	errForm      = errors.New("lludp: this is no XML-RPC call with a struct")
	errDirective = errors.New("lludp: the XML-RPC call has a document type")
)

// A call is an XML-RPC call whose first parameter is a struct: the method, and the members that are scalars, as text.
type call struct {
	method  string
	members map[string]string
}

// parseCall reads a call:
//
//	<methodCall><methodName>…</methodName><params><param><value><struct>
//	  <member><name>…</name><value><string>…</string></value></member> …
//
// A value without a type is a string. Arrays and structs in members are skipped.
func parseCall(p []byte) (call, error) {
	if len(p) > requestMax {
		return call{}, errBounds
	}
	r := &callReader{d: xml.NewDecoder(bytes.NewReader(p)), call: call{members: map[string]string{}}}
	for {
		token, err := r.d.Token()
		switch {
		case errors.Is(err, io.EOF):
			if r.call.method == "" || !r.whole {
				return call{}, errForm
			}
			return r.call, nil
		case err != nil:
			return call{}, errForm
		}
		if err := r.token(token); err != nil {
			return call{}, err
		}
	}
}

// A callReader follows the elements of a call.
type callReader struct {
	d        *xml.Decoder
	path     []string
	elements int
	text     strings.Builder
	name     string // of the member
	typed    bool   // the value of the member has a type
	whole    bool   // the struct has ended
	call     call
}

// memberDepth is how many elements are around a member of the struct, which has its own.
const memberDepth = 6

var memberPath = [memberDepth]string{"methodCall", "params", "param", "value", "struct", "member"}

// inMember reports whether the reader is in a member, below it by so many elements.
func (r *callReader) inMember(below int) bool {
	return len(r.path) == memberDepth+below && [memberDepth]string(r.path) == memberPath
}

func (r *callReader) token(token xml.Token) error {
	switch t := token.(type) {
	case xml.Directive:
		return errDirective
	case xml.StartElement:
		if r.elements++; r.elements > elementsMax || len(r.path) >= depthMax {
			return errBounds
		}
		r.path = append(r.path, t.Name.Local)
		r.text.Reset()
		r.typed = r.typed || r.inMember(2)
	case xml.CharData:
		if r.text.Len()+len(t) > textMax {
			return errBounds
		}
		r.text.Write(t)
	case xml.EndElement:
		r.end(t.Name.Local)
		r.path = r.path[:len(r.path)-1]
		r.text.Reset()
	}
	return nil
}

// end takes the end of the last element of the path.
func (r *callReader) end(element string) {
	text := r.text.String()
	switch {
	case len(r.path) == 2 && element == "methodName" && r.path[0] == "methodCall":
		r.call.method = strings.TrimSpace(text)
	case r.inMember(1) && element == "name":
		r.name, r.typed = text, false
	case r.inMember(1) && element == "value" && !r.typed:
		r.call.members[r.name] = text
	case r.inMember(2) && r.path[memberDepth] == "value" && element != "array" && element != "struct":
		r.call.members[r.name] = text
	case len(r.path) == memberDepth-1 && element == "struct":
		r.whole = true
	}
}

// A member is a member of a struct in XML-RPC, or an entry of a map in LLSD.
type member struct {
	name  string
	value any // string, int, []any or []member
}

// A notation has the tags before and behind values, and their parts.
type notation struct{ value, integer, array, members, member, name [2]string }

var xmlRPC = notation{
	value: [2]string{"<value>", "</value>"}, integer: [2]string{"<int>", "</int>"}, array: [2]string{"<array><data>", "</data></array>"},
	members: [2]string{"<struct>", "</struct>"}, member: [2]string{"<member>", "</member>"}, name: [2]string{"<name>", "</name>"},
}

// answer returns the XML-RPC answer with a struct.
func answer(members ...member) []byte {
	b := append([]byte(xml.Header), "<methodResponse><params><param>"...)
	b = xmlRPC.append(b, members)
	return append(b, "</param></params></methodResponse>\n"...)
}

func (n *notation) append(b []byte, value any) []byte {
	b = append(b, n.value[0]...)
	switch v := value.(type) {
	case int:
		b = fmt.Appendf(b, "%s%d%s", n.integer[0], v, n.integer[1])
	case string:
		b = append(escape(append(b, "<string>"...), v), "</string>"...)
	case []any:
		b = append(b, n.array[0]...)
		for _, x := range v {
			b = n.append(b, x)
		}
		b = append(b, n.array[1]...)
	case []member:
		b = append(b, n.members[0]...)
		for _, m := range v {
			b = append(append(b, n.member[0]...), n.name[0]...)
			b = append(escape(b, m.name), n.name[1]...)
			b = append(n.append(b, m.value), n.member[1]...)
		}
		b = append(b, n.members[1]...)
	default:
		panic(fmt.Sprintf("lludp: there is no form for %T", value))
	}
	return append(b, n.value[1]...)
}

// escape appends a text for XML.
func escape(b []byte, s string) []byte {
	w := bytes.NewBuffer(b)
	if err := xml.EscapeText(w, []byte(s)); err != nil {
		panic("lludp: writing to memory: " + err.Error())
	}
	return w.Bytes()
}
