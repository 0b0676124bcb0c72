package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
)

// A putOp is the JSON of a publish that makes a state, a setOp of one that
// changes values. The key is in the subject.
type putOp struct {
	Op       string       `json:"op"`
	Message  *string      `json:"message,omitempty"`
	Farewell *string      `json:"farewell,omitempty"`
	Access   any          `json:"access,omitempty"`
	Audience *audience    `json:"audience,omitempty"`
	Values   []typedValue `json:"values,omitempty"`
}

type setOp struct {
	Op     string                     `json:"op"`
	Values map[string]json.RawMessage `json:"values"`
}

type audience struct {
	All     bool     `json:"all,omitempty"`
	Groups  []string `json:"groups,omitempty"`
	Clients []string `json:"clients,omitempty"`
}

// op returns what to publish, or every problem with it.
func (c *publishCommand) op() (op any, problems config.Problems) {
	typed := slices.ContainsFunc(c.Values, isTyped)
	who, err := parseAudience(c.Audience)
	if err != nil {
		problems = append(problems, err.Error())
	}
	switch {
	case typed:
		put := putOp{Op: "put", Message: escape(c.Message), Farewell: escape(c.Farewell), Audience: who}
		if c.Access != "" {
			put.Access = parseAccess(c.Access)
		}
		put.Values, problems = parseTyped(c.Values, problems)
		op = put
	case len(c.Values) > 0 && c.describes():
		problems = append(problems, "--message, --farewell, --access and --audience need values with types, as hp:float32=1")
	case len(c.Values) > 0:
		set := setOp{Op: "set"}
		set.Values, problems = parseUntyped(c.Values, problems)
		op = set
	case who != nil && c.Message == nil && c.Farewell == nil && c.Access == "":
		op = putOp{Op: "audience", Audience: who}
	default:
		problems = append(problems, "NAME:TYPE=VALUE: is missing, as hp:float32=93.5")
	}
	return op, problems
}

func parseAudience(words []string) (*audience, error) {
	if len(words) == 0 {
		return nil, nil
	}
	who := &audience{}
	for _, w := range words {
		kind, name, _ := strings.Cut(w, "=")
		switch {
		case w == "all":
			who.All = true
		case w == "nobody":
		case kind == "group" && subject.ValidToken(name):
			who.Groups = append(who.Groups, name)
		case kind == "client" && subject.ValidToken(name):
			who.Clients = append(who.Clients, name)
		default:
			return nil, fmt.Errorf("--audience: want all, nobody, group=NAME or client=NAME, got %q", w)
		}
	}
	if len(words) > 1 && (who.All || slices.Contains(words, "nobody")) {
		return nil, fmt.Errorf("--audience: all and nobody stand alone")
	}
	return who, nil
}

// parseAccess returns the JSON form: a word, or the clients that may write.
func parseAccess(text string) any {
	if text == "read-only" || text == "read-write" {
		return text
	}
	return map[string][]string{"writers": strings.Split(text, ",")}
}

// escape keeps text that looks like a prefix of the JSON payload from being one,
// except base64:, which is the way to write bytes here too.
func escape(text *string) *string {
	if text != nil && strings.HasPrefix(*text, "text:") {
		escaped := "text:" + *text
		return &escaped
	}
	return text
}
