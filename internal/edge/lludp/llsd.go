package lludp

import (
	"bytes"
	"fmt"
)

// LLSD is what capabilities speak: XML with types of its own. The edge writes it and reads nothing of it, because no answer depends
// on what a viewer asks, but for whether it wants no more events.

// llsdType is the type of such bodies.
const llsdType = "application/llsd+xml"

// A pair is an entry of a map.
type pair struct {
	key   string
	value any // string, int, []any or []pair
}

func llsd(value any) []byte {
	return append(appendLLSD([]byte("<llsd>"), value), "</llsd>\n"...)
}

func appendLLSD(b []byte, value any) []byte {
	switch v := value.(type) {
	case int:
		return fmt.Appendf(b, "<integer>%d</integer>", v)
	case string:
		return append(escape(append(b, "<string>"...), v), "</string>"...)
	case []any:
		b = append(b, "<array>"...)
		for _, x := range v {
			b = appendLLSD(b, x)
		}
		return append(b, "</array>"...)
	case []pair:
		b = append(b, "<map>"...)
		for _, p := range v {
			b = append(escape(append(b, "<key>"...), p.key), "</key>"...)
			b = appendLLSD(b, p.value)
		}
		return append(b, "</map>"...)
	}
	panic(fmt.Sprintf("lludp: LLSD has no form for %T", value))
}

// wantsNoMore reports whether a request for events is the last one. Viewers write it in different ways.
func wantsNoMore(body []byte) bool {
	_, rest, ok := bytes.Cut(body, []byte("<key>done</key>"))
	if !ok {
		return false
	}
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return bytes.HasPrefix(rest, []byte("<boolean>true<")) || bytes.HasPrefix(rest, []byte("<boolean>1<"))
}
