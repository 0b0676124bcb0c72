package arch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// banned are words that have no place in a file, and why. They are written in
// two halves, because this file is searched too.
var banned = []struct{ word, reason string }{
	{"/wo" + "rk/", "is the path of one machine"},
	{"/ro" + "ot/", "is the path of one machine"},
	{"../sha" + "red", "is outside of the repository, which has to stand alone"},
	{"TO" + "DO", "belongs into an issue"},
	{"FIX" + "ME", "belongs into an issue"},
}

func TestWords(t *testing.T) {
	for _, file := range files(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		report(t, checkWords(file, text))
	}
}

func checkWords(file string, text []byte) (findings []string) {
	if !utf8.Valid(text) || strings.HasSuffix(file, "go.sum") {
		return nil
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		for _, b := range banned {
			if bytes.Contains(line, []byte(b.word)) {
				findings = append(findings, fmt.Sprintf("%s:%d: %s %s", file, i+1, b.word, b.reason))
			}
		}
	}
	return findings
}

func TestWordsNotice(t *testing.T) {
	for _, b := range banned {
		if checkWords("README.md", []byte("one\ntwo "+b.word+"x\n")) == nil {
			t.Errorf("%q passes", b.word)
		}
	}
	if found := checkWords("README.md", []byte("a net"+"work/path and a framewo"+"rk/")); found != nil {
		t.Errorf("innocent words have findings: %q", found)
	}
}
