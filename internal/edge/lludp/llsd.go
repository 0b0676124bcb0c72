package lludp

import "bytes"

// LLSD is what capabilities speak: XML with types of its own. The edge writes it and reads nothing of it, because no answer depends
// on what a viewer asks, but for whether it wants no more events.

// llsdType is the type of such bodies.
const llsdType = "application/llsd+xml"

var llsdNotation = notation{
	integer: [2]string{"<integer>", "</integer>"}, array: [2]string{"<array>", "</array>"},
	members: [2]string{"<map>", "</map>"}, name: [2]string{"<key>", "</key>"},
}

func llsd(value any) []byte {
	return append(llsdNotation.append([]byte("<llsd>"), value), "</llsd>\n"...)
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
