package membus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
)

func tokens(subject string) []string { return strings.Split(subject, ".") }

func join(tokens []string) string { return strings.Join(tokens, ".") }

// matches reports whether subject matches pattern by the rules of NATS.
func matches(pattern, subject []string) bool {
	for i, p := range pattern {
		if p == ">" {
			return len(subject) > i
		}
		if i >= len(subject) || p != "*" && p != subject[i] {
			return false
		}
	}
	return len(pattern) == len(subject)
}

// A mapping implements the subject mappings of NATS as far as subject.Names.Mappings needs
// them: literal tokens, {{wildcard(i)}}, {{partition(n,i)}} and a last >.
type mapping struct {
	from []string
	to   []destination
}

// A destination is one token of the resulting subject.
type destination struct {
	literal  string
	token    int // index of a token of the source, -1 for a literal
	shards   int // if not 0, the token becomes its shard
	wildTail bool
}

func parseMapping(m subject.Mapping) (mapping, error) {
	out := mapping{from: tokens(m.From)}
	for _, t := range tokens(m.To) {
		d, err := out.parse(t)
		if err != nil {
			return mapping{}, fmt.Errorf("map %s to %s: %w", m.From, m.To, err)
		}
		out.to = append(out.to, d)
	}
	return out, nil
}

func (m *mapping) parse(token string) (destination, error) {
	if token == ">" {
		return destination{token: len(m.from) - 1, wildTail: true}, nil
	}
	inner, ok := strings.CutPrefix(token, "{{")
	if !ok {
		return destination{literal: token, token: -1}, nil
	}
	inner = strings.TrimSuffix(inner, ")}}")
	name, args, _ := strings.Cut(inner, "(")
	numbers := strings.Split(args, ",")
	wildcard, err := strconv.Atoi(numbers[len(numbers)-1])
	if err != nil {
		return destination{}, fmt.Errorf("token %q: %w", token, err)
	}
	d := destination{token: m.wildcard(wildcard)}
	switch {
	case d.token < 0:
		return d, fmt.Errorf("token %q: the source has no such wildcard", token)
	case name == "wildcard" && len(numbers) == 1:
		return d, nil
	case name == "partition" && len(numbers) == 2:
		d.shards, err = strconv.Atoi(numbers[0])
		if err == nil && d.shards > 0 {
			return d, nil
		}
	}
	return d, fmt.Errorf("token %q is not known", token)
}

// wildcard returns the index of the n-th * of the source, counted from 1, or -1.
func (m *mapping) wildcard(n int) int {
	for i, t := range m.from {
		if t == "*" {
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

func (m *mapping) apply(subject []string) []string {
	var out []string
	for _, d := range m.to {
		switch {
		case d.token < 0:
			out = append(out, d.literal)
		case d.wildTail:
			out = append(out, subject[d.token:]...)
		case d.shards > 0:
			out = append(out, strconv.Itoa(cluster.Shard(subject[d.token], d.shards)))
		default:
			out = append(out, subject[d.token])
		}
	}
	return out
}
