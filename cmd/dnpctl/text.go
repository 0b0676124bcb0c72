package main

import (
	"encoding/base64"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// messageText returns the bytes of a message as the JSON payload writes them:
// text as it is, and bytes that are no text in base64 behind a prefix.
func messageText(b []byte) string {
	text := string(b)
	switch {
	case !utf8.Valid(b):
		return "base64:" + base64.StdEncoding.EncodeToString(b)
	case strings.HasPrefix(text, "base64:"), strings.HasPrefix(text, "text:"):
		return "text:" + text
	}
	return text
}

// harmless returns text for a terminal. What came from the network must not move
// the cursor.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, text)
}

// valueText returns value i for people.
func valueText(s *netstate.State, i int) string {
	return harmless(string(payload.AppendValue(nil, s.Layout().Type(i), s.Value(i))))
}
