// Package conform is a scripted edge that proves clients of DNP: it goes through the rules of
// dnp/PROTOCOL.md step by step, at the level of datagrams, and says which ones a client keeps.
//
// [Run] waits for one client on a socket. The program of the client obeys messages of this edge, such as
// "echo hello"; clients/CONFORMANCE.md lists them. The package shares the codec with the product and
// nothing else: an edge made of package dnp would be as right or wrong as a client that is made of it.
package conform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Config says how to prove a client.
type Config struct {
	// Patience is how long the edge waits for anything that a client has to do; default 5 s.
	Patience time.Duration

	// Token is what the client has to log in with; empty if it does not log in.
	Token string

	// Quick leaves out the steps that take many seconds.
	Quick bool

	// quiet is how long the edge watches for repetitions that must not come; default 2 s.
	quiet time.Duration

	// At, if set, is called with each step when it begins, how many have ended, and how many there are.
	At func(step string, done, total int)

	// Report, if set, is called with each step when it ends.
	Report func(r Result)
}

// A Result is the outcome of a step.
type Result struct {
	Name string
	Rule string // of dnp/PROTOCOL.md: a section, or a rule by its name
	Err  error  // nil if the client keeps the rule
	Note string // why the step was not tried; empty if it was
}

// String returns the line of a report.
func (r Result) String() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("FAIL  %-20s %v  [%s]", r.Name, r.Err, r.Rule)
	case r.Note != "":
		return fmt.Sprintf("SKIP  %-20s %s  [%s]", r.Name, r.Note, r.Rule)
	}
	return fmt.Sprintf("PASS  %-20s [%s]", r.Name, r.Rule)
}

// errNotOffered is the error of a step for something that a client need not have.
var errNotOffered = errors.New("the client does not offer it")

// A step proves one rule. It calls fail with what the client did and what it should do.
type step struct {
	name, rule string
	run        func(*peer)
	slow       bool
}

// Run proves the client that connects to the socket first, and returns a result for each step. The
// error is that of ctx, or of the socket.
func Run(ctx context.Context, socket *net.UDPConn, cfg Config) (results []Result, err error) {
	cfg.Patience, cfg.quiet = cmp.Or(cfg.Patience, 5*time.Second), cmp.Or(cfg.quiet, 2*time.Second)
	p := newPeer(ctx, socket, cfg)
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	lost := ""
	all := steps()
	for i, s := range all {
		if cfg.At != nil {
			cfg.At(s.name, i, len(all))
		}
		r := Result{Name: s.name, Rule: s.rule}
		switch {
		case lost != "":
			r.Note = "not tried: the connection did not survive " + lost
		case s.slow && cfg.Quick:
			r.Note = "not tried: it takes long"
		default:
			r.Err = p.try(s)
			if errors.Is(r.Err, errNotOffered) {
				r.Err, r.Note = nil, errNotOffered.Error()
			}
			if p.broken != nil {
				return results, p.broken
			}
			if r.Err != nil && (i < connectSteps || p.sync() != nil) {
				lost = s.name
			}
		}
		results = append(results, r)
		if cfg.Report != nil {
			cfg.Report(r)
		}
	}
	return results, nil
}

// try runs a step. What the client did wrong meanwhile counts, whatever the step is about.
func (p *peer) try(s step) (err error) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case stepError:
			err = failed.error
			if p.part != "" {
				err = fmt.Errorf("%s: %w", p.part, err)
			}
		default:
			panic(failed)
		}
	}()
	p.begin()
	s.run(p)
	if len(p.faults) > 0 {
		return errors.New(p.faults[0])
	}
	return nil
}
