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
	textMax     = 4 << 10 // bytes of a text between tags
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
	var c struct {
		XMLName xml.Name `xml:"methodCall"`
		Method  string   `xml:"methodName"`
		Struct  *struct {
			Members []struct {
				Name  string `xml:"name"`
				Value struct {
					Text  string `xml:",chardata"`
					Typed *struct {
						XMLName xml.Name
						Text    string `xml:",chardata"`
					} `xml:",any"`
				} `xml:"value"`
			} `xml:"member"`
		} `xml:"params>param>value>struct"`
	}
	d := xml.NewTokenDecoder(&boundedTokens{d: xml.NewDecoder(bytes.NewReader(p))})
	err := d.Decode(&c)
	for err == nil {
		_, err = d.Token() // what follows has to be XML, too
	}
	switch {
	case errors.Is(err, errBounds), errors.Is(err, errDirective):
		return call{}, err
	case !errors.Is(err, io.EOF), c.Method == "", c.Struct == nil:
		return call{}, errForm
	}
	all := call{strings.TrimSpace(c.Method), map[string]string{}}
	for _, m := range c.Struct.Members {
		if v := m.Value.Typed; v == nil {
			all.members[m.Name] = m.Value.Text
		} else if t := v.XMLName.Local; t != "array" && t != "struct" {
			all.members[m.Name] = v.Text
		}
	}
	return all, nil
}

// boundedTokens are the tokens of a call within the bounds.
type boundedTokens struct {
	d               *xml.Decoder
	depth, elements int
}

// Token implements xml.TokenReader.
func (b *boundedTokens) Token() (xml.Token, error) {
	token, err := b.d.Token()
	switch t := token.(type) {
	case xml.Directive:
		return nil, errDirective
	case xml.StartElement:
		b.depth++
		b.elements++
	case xml.EndElement:
		b.depth--
	case xml.CharData:
		if len(t) > textMax {
			return nil, errBounds
		}
	}
	if b.depth > depthMax || b.elements > elementsMax {
		return nil, errBounds
	}
	return token, err
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
