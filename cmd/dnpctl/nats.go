package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// NATSFlags are the flags of commands that act as a game server.
type NATSFlags struct {
	config.NATS
	Timeout time.Duration `default:"5s" help:"How long to wait for NATS and for an answer."`
}

// Problems lists what is wrong with f.
func (f *NATSFlags) Problems() (list config.Problems) {
	list = f.NATS.Problems()
	compose.NATSProblems(&list, &f.NATS)
	if f.Timeout <= 0 {
		list.Add("--timeout", "want more than 0, got %v", f.Timeout)
	}
	return list
}

// SpaceFlags are the argument and the flags of commands about a space. A command that embeds
// them sets the help of the argument, as `set:"space=Space of the state."`.
type SpaceFlags struct {
	Space string `arg:"" help:"${space}"`

	NATSFlags `group:"NATS"`
}

// Problems lists what is wrong with f.
func (f *SpaceFlags) Problems() (list config.Problems) {
	if !subject.ValidToken(f.Space) {
		list.Add("SPACE", "want 1 to 64 letters, digits, _ or -, got %q", f.Space)
	}
	return list
}

func (f *NATSFlags) subjects() subject.Names { return subject.Names{Prefix: f.SubjectPrefix} }

// connect connects to NATS. The caller closes the connection.
func (f *NATSFlags) connect() (*nats.Conn, error) {
	options := []nats.Option{nats.Name("dnpctl"), nats.Timeout(f.Timeout), nats.MaxReconnects(-1)}
	options = append(options, compose.Security(&f.NATS).Options()...)
	nc, err := nats.Connect(f.NATSURL, options...)
	switch {
	case errors.Is(err, nats.ErrNoServers):
		return nil, fmt.Errorf("no NATS server answers at %s; is `relay dev` running? (--nats-url chooses another)", natsbus.Redacted(f.NATSURL))
	case err != nil:
		return nil, fmt.Errorf("connect to NATS at %s: %w", natsbus.Redacted(f.NATSURL), err)
	}
	return nc, nil
}

// request sends one request and returns the answer.
func (f *NATSFlags) request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	nc, err := f.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// askHolder sends one request to the relay that holds the space.
func (f *SpaceFlags) askHolder(ctx context.Context, subject string, data []byte) ([]byte, error) {
	answer, err := f.request(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no relay holds space %s: none is running, or the NATS server lacks the subject mapping", f.Space)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer about space %s within %v", f.Space, f.Timeout)
	}
	return answer, err
}
