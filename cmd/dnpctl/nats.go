package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// NATSFlags are the flags of commands that act as a game server.
type NATSFlags struct {
	NATSLogin
	Timeout time.Duration `default:"5s" want:">0" help:"How long to wait for NATS and for an answer."`
}

// connect connects to NATS. The caller closes the connection.
func (f *NATSFlags) connect() (*nats.Conn, error) { return f.NATSLogin.connect(f.Timeout) }

// NATSLogin are the flags that say where NATS is, and as whom to connect.
type NATSLogin struct {
	config.NATS
	Context string `placeholder:"NAME" help:"Context of the command nats with the NATS servers and credentials. Default: the one that nats context select chose, unless --nats-url or its variable names servers."`
}

// AfterApply takes what no argument and no variable says from a context. Servers that are named have
// nothing of a context: its credentials are for its own servers.
func (f *NATSLogin) AfterApply(ctx *kong.Context) error {
	said := func(name string) bool {
		for _, p := range ctx.Path {
			if p.Flag != nil && p.Flag.Name == name {
				return true
			}
		}
		return os.Getenv("DNP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))) != ""
	}
	if said("nats-url") {
		if f.Context != "" {
			return fmt.Errorf("--context: conflicts with --nats-url")
		}
		return nil
	}
	c, ok, err := findContext(f.Context)
	if err != nil || !ok {
		return err
	}
	f.NATSURL = cmp.Or(c.URL, f.NATSURL)
	if !said("nats-user") && !said("nats-creds") && !said("nats-nkey") {
		f.NATSUser, f.NATSPassword, f.NATSCreds, f.NATSNKey = c.User, c.Password, c.Creds, c.NKey
	}
	if !said("nats-ca") {
		f.NATSCA = c.CA
	}
	if !said("nats-cert") && !said("nats-key") {
		f.NATSCert, f.NATSKey = c.Cert, c.Key
	}
	return nil
}

// Problems lists what is wrong with f.
func (f *NATSLogin) Problems() (list config.Problems) {
	list = f.NATS.Problems()
	compose.NATSProblems(&list, &f.NATS)
	return list
}

// SpaceFlags are the argument and the flags of commands about a space. A command that embeds
// them sets the help of the argument, as `set:"space=Space of the state."`.
type SpaceFlags struct {
	Space string `arg:"" want:"token" help:"${space}"`

	NATSFlags `group:"NATS"`
}

func (f *NATSLogin) subjects() subject.Names { return subject.Names{Prefix: f.SubjectPrefix} }

// connect connects to NATS within a time. The caller closes the connection.
func (f *NATSLogin) connect(timeout time.Duration) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("dnpctl"), nats.Timeout(timeout), nats.MaxReconnects(-1)}
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

// request sends one request and returns the answer. The server says separately that a user may not ask; then
// request does not wait for an answer.
func (f *NATSFlags) request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	nc, err := f.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			refuse(errRefused)
		}
	})
	m, err := nc.RequestWithContext(ctx, subject, data)
	switch {
	case context.Cause(ctx) == errRefused:
		return nil, fmt.Errorf("%w publish on %s; --nats-user, --nats-creds or --context name another user", errRefused, subject)
	case err != nil:
		return nil, err
	}
	return m.Data, nil
}

// errRefused begins what people read when the server refuses a request.
var errRefused = errors.New("the NATS user may not")

// askHolder sends one request to the relay that holds the space.
func (f *SpaceFlags) askHolder(ctx context.Context, subject string, data []byte) ([]byte, error) {
	answer, err := f.request(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no relay holds space %s: none is running, they start and do not hold it yet (some 10 s after a cold start), or the NATS server lacks the subject mapping", f.Space)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer about space %s within %v", f.Space, f.Timeout)
	}
	return answer, err
}
