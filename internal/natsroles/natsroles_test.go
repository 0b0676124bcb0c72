package natsroles

import (
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/subject"
)

// TestRightsToAnswer checks what makes a right to answer a right to publish anywhere: a role that has it
// and can send messages to itself names any subject in such a message, and answers there.
func TestRightsToAnswer(t *testing.T) {
	for _, c := range []Config{{}, {NoLog: true}} {
		for _, r := range Table(c) {
			for _, p := range r.Publish {
				for _, s := range r.Subscribe {
					if r.Responses && overlap(p, s) {
						t.Errorf("%s may answer, publish on %s and subscribe to %s, and so publish anywhere", r.Name, p, s)
					}
				}
			}
		}
	}
}

// overlap reports whether a subject matches both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		if as[i] == ">" || bs[i] == ">" {
			return true
		}
		if as[i] != bs[i] && as[i] != "*" && bs[i] != "*" {
			return false
		}
	}
	return len(as) == len(bs)
}

// TestDirectGets checks that no role but the admin may ask for direct gets. JetStream publishes the answer, which has nothing but
// what somebody stored, wherever the request says: an edge could publish anything in the account.
func TestDirectGets(t *testing.T) {
	for _, c := range []Config{{}, {NoLog: true}} {
		for _, r := range Table(c) {
			n := 0
			for _, p := range r.Publish {
				if overlap(p, "$JS.API.DIRECT.GET.>") {
					n++
				}
			}
			if want := r.Name == "admin"; (n > 0) != want {
				t.Errorf("with %+v %s may ask for direct gets of %d streams, want some: %v", c, r.Name, n, want)
			}
		}
	}
}

// TestWithoutLog checks that edges and game servers without durable sessions have no right to
// JetStream, which would answer wherever they say.
func TestWithoutLog(t *testing.T) {
	for _, r := range Table(Config{NoLog: true}) {
		for _, p := range r.Publish {
			if (r.Name == "edge" || r.Name == "publisher") && (strings.HasPrefix(p, "$JS") || p == (subject.Names{}).LogAllShards() || p == (subject.Names{}).LogCopies()) {
				t.Errorf("%s may publish on %s", r.Name, p)
			}
		}
	}
}
