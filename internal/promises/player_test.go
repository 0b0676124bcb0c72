package promises

import (
	"context"
	"errors"

	"github.com/dnprelay/dnprelay/client"
)

// A player is a client of one of the libraries, which a test may ask whatever all of them can do. Its methods do what those of
// client.Client do.
type player interface {
	Await(ctx context.Context, key string) (state, error)
	State(key string) state // nil if it has none
	States() []state
	Until(ctx context.Context, reached func() bool) error
	Offer(message string, fields ...client.Field) (state, error)
	Withdraw(own state)
	Send(data []byte) error
	Done() <-chan struct{}
	Err() error
	Close() error
}

// A state is what a player has of one. Its methods do what those of client.State do.
type state interface {
	Key() string
	Message() []byte
	Name(index int) string
	ReadOnly() bool
	At(index int) client.Value
	Value(name string) client.Value
	Set(name string, v any) error
	SetAt(index int, v any) error
	SetConfirmed(ctx context.Context, name string, v any) error
	Command(ctx context.Context, name string, body []byte) (answer []byte, err error)
}

// ears hear what happens to a player, one thing after the other. Each may be nil.
type ears struct {
	see     func(s state, changed []int) // a link came, or values changed; nil stands for all of them
	unlink  func(s state)
	refused func(name, code string) // of a value that the player set
	message func(data []byte)
}

// goPlayer is a client of package client.
type goPlayer struct{ *client.Client }

// config has client.Config call the ears.
func (e ears) config(cfg client.Config) client.Config {
	if e.see != nil {
		cfg.Link = func(_ *client.Client, s *client.State) { e.see(s, nil) }
		cfg.Change = func(_ *client.Client, s *client.State, changed []int) { e.see(s, changed) }
	}
	if e.unlink != nil {
		cfg.Unlink = func(_ *client.Client, s *client.State) { e.unlink(s) }
	}
	if e.refused != nil {
		cfg.Refused = func(_ *client.Client, _ *client.State, err *client.WriteError) { e.refused(err.Name, err.Code) }
	}
	if e.message != nil {
		cfg.Message = func(_ *client.Client, m client.Message) { e.message(m.Data) }
	}
	return cfg
}

func (p goPlayer) Await(ctx context.Context, key string) (state, error) {
	s, err := p.Client.Await(ctx, key)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p goPlayer) State(key string) state {
	if s := p.Client.State(key); s != nil {
		return s
	}
	return nil
}

func (p goPlayer) States() (list []state) {
	for _, s := range p.Client.States() {
		list = append(list, s)
	}
	return list
}

func (p goPlayer) Offer(message string, fields ...client.Field) (state, error) {
	s, err := p.Client.Offer(message, fields...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p goPlayer) Withdraw(own state) { p.Client.Withdraw(own.(*client.State)) }

// endedBy returns why a player ended; empty if it has not.
func endedBy(p player) client.Reason {
	if end, ok := errors.AsType[*client.EndError](p.Err()); ok {
		return end.Reason
	}
	return ""
}
