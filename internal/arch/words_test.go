package arch

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
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

// private are words of a former vocabulary, with the terms of the field that replaced them;
// "Words" in DESIGN.md explains these. A word counts wherever it is a part of an identifier,
// in the singular or the plural.
var private = map[string]string{
	"bequest": "inherited claim", "climber": "retry", "cure": "recovery", "heir": "successor",
	"howmanieth": "sequence number", "hush": "stop serving", "keeper": "takeover", "solitude": "no candidate for successor",
	"stray": "orphan datagram", "tariff": "rate",
}

// clumsy are phrases of sentences without an actor. A sentence names who does what.
var clumsy = regexp.MustCompile(`(?i)\bnobody (has|is|was|will|would|can|could|may|must|else|asked|[a-z]+s)\b|\bwhose who\b|\bgoes not\b|\bhow-manieth\b|\bas long as it goes\b`)

// vocabulary are the files that may name private words: this one, and what tells users
// about names that changed.
var vocabulary = []string{"internal/arch/words_test.go", "CHANGELOG.md", "DESIGN.md"}

func TestVocabulary(t *testing.T) {
	for _, file := range files(t) {
		if slices.Contains(vocabulary, file) || !slices.Contains([]string{".go", ".md", ".yaml", ".json", ".tpl", ".txt", ""}, path.Ext(file)) || strings.Contains(file, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		report(t, checkVocabulary(file, string(text)))
	}
}

func checkVocabulary(file, text string) (findings []string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if found := clumsy.FindString(line); found != "" {
			findings = append(findings, fmt.Sprintf("%s:%d: %q: name the actor", file, number, found))
		}
		for _, word := range words(line) {
			if term, ok := private[strings.TrimSuffix(word, "s")]; ok {
				findings = append(findings, fmt.Sprintf("%s:%d: %q is a private word; the term is %q", file, number, word, term))
			}
		}
	}
	return findings
}

// words returns the words of a line in lower case, with identifiers taken apart where their
// case changes.
func words(line string) (all []string) {
	for _, run := range strings.FieldsFunc(strings.ReplaceAll(line, "-", ""), func(r rune) bool { return !unicode.IsLetter(r) }) {
		begin := 0
		for i := 1; i < len(run); i++ {
			if run[i] >= 'A' && run[i] <= 'Z' && run[i-1] >= 'a' && run[i-1] <= 'z' {
				all = append(all, strings.ToLower(run[begin:i]))
				begin = i
			}
		}
		all = append(all, strings.ToLower(run[begin:]))
	}
	return all
}

func TestVocabularyNotice(t *testing.T) {
	for _, text := range []string{"type keeper struct{}", "// Strays wait.", "const strayTime = 1", "theHeirs", "the how-manieth batch", "// Nobody waits."} {
		if checkVocabulary("dnp/x.go", text) == nil {
			t.Errorf("%q passes", text)
		}
	}
	if found := checkVocabulary("dnp/x.go", "their values are kept, a secure astray procurement"); found != nil {
		t.Errorf("innocent words have findings: %q", found)
	}
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
