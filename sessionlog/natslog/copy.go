package natslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/sessionlog"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Copies is how many copies of a log there are, if there is more than one. The streams of a copy lie on the one server with the tag
// [CopyTag], without replicas, so that writes and reads need no agreement of servers. What is in two copies
// is certain: package quorumlog makes one log of three copies.
const Copies = 3

// copyStreams is the number of streams of a copy by default. All lie on one server, so they share nothing
// among servers.
const copyStreams = 4

// CopyTag returns the tag (server_tags) of the NATS server that holds a copy.
func CopyTag(copy int) string { return "dnprelay-log-" + strconv.Itoa(copy) }

// CopyStreamName returns the name of the g-th stream of a copy.
func CopyStreamName(copy, g int) string { return fmt.Sprintf("DNP_LOG_C%d_%d", copy, g) }

func (c *Config) streamName(g int) string {
	if c.Copy == 0 {
		return StreamName(g)
	}
	return CopyStreamName(c.Copy, g)
}

// subject returns the subject of a log in log shard n, and subjects the pattern of all of them.
func (c *Config) subject(n int, log string) string {
	if c.Copy == 0 {
		return c.Subjects.Log(n, log)
	}
	return c.Subjects.LogCopy(c.Copy, n, log)
}

func (c *Config) subjects(n int) string { return c.subject(n, "*") }

// copies returns how many copies of each log the deployment has.
func (c *Config) copies() int {
	if c.Copy == 0 {
		return 1
	}
	return Copies
}

// A CopiesError says that a stream was made for another number of copies than the configured one.
type CopiesError struct {
	Stream string
	Has    string // as its metadata say
	Want   int
}

// Error says what to do. Edges move no log from one copy to three, or back.
func (e *CopiesError) Error() string {
	noun := "copies"
	if e.Has == "1" {
		noun = "copy"
	}
	return fmt.Sprintf("stream %s was made for %s %s of each session log, this edge is configured for %d. To change the number, which ends all sessions: "+
		"stop all edges, run `nats stream ls --names | grep ^DNP_LOG_ | xargs -n 1 nats stream rm --force` as admin, and start the edges", e.Stream, e.Has, noun, e.Want)
}

// Is reports that the error is a jetstream.ErrDeployment.
func (e *CopiesError) Is(target error) bool { return target == jetstream.ErrDeployment }

// checkCopies returns a CopiesError if a stream was made for another number of copies. Without a number it was made
// for one copy.
func (c *Config) checkCopies(got natsjs.StreamConfig) error {
	if has := cmp.Or(got.Metadata[metaCopies], "1"); has != strconv.Itoa(c.copies()) {
		return &CopiesError{Stream: got.Name, Has: has, Want: c.copies()}
	}
	return nil
}

// secretTimeout is how long one stream may take to tell the secret.
const secretTimeout = time.Second

// findSecret returns the secret. The stream DNP_LOG_0 has it, also if there are three copies: JetStream makes
// one stream of this name, so two edges that begin at once get the same secret, and the same number of copies. It has
// three replicas then, and no logs. The first stream of each copy
// has the secret, too, for the time in which DNP_LOG_0 has no leader, or if it was deleted. findSecret makes
// DNP_LOG_0 if none of the four exists.
func (c *Config) findSecret(ctx context.Context) (secret string, err error) {
	js, err := natsjs.New(c.Conn)
	if err != nil {
		return "", fmt.Errorf("JetStream: %w", err)
	}
	names := []string{StreamName(0)}
	for i := range Copies {
		names = append(names, CopyStreamName(i+1, 0))
	}
	absent, unknown := 0, error(nil)
	for _, name := range names {
		secret, err := c.secretOf(ctx, js, name)
		switch {
		case err == nil || errors.Is(err, jetstream.ErrDeployment):
			return secret, err
		case errors.Is(err, natsjs.ErrStreamNotFound):
			absent++
		case unknown == nil:
			unknown = err
		}
	}
	if absent < len(names) {
		return "", fmt.Errorf("find the secret of the session log: %w", unknown)
	}
	s, err := jetstream.OpenStream(ctx, c.Conn, StreamName(0), c.first)
	if err != nil {
		return "", err
	}
	made := s.CachedInfo().Config // perhaps by another edge
	return made.Metadata[metaSecret], c.checkCopies(made)
}

// first returns the configuration with which the stream DNP_LOG_0 is made.
func (c *Config) first() natsjs.StreamConfig {
	one := *c
	if c.Copy > 0 {
		one.Copy, one.Streams = 0, 0
		one = one.withDefaults()
	}
	logs := one.logs()
	logs.Config.Replicas, logs.Config.Metadata[metaCopies] = c.copies(), strconv.Itoa(c.copies())
	return logs.Stream(0, time.Now(), 0)
}

// secretOf returns the secret that a stream has in its metadata, if it was made for as many copies as configured.
func (c *Config) secretOf(ctx context.Context, js natsjs.JetStream, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return "", fmt.Errorf("stream %s: %w", name, err)
	}
	is := s.CachedInfo().Config
	secret := is.Metadata[metaSecret]
	if secret == "" {
		return "", fmt.Errorf("%w: stream %s has no secret", jetstream.ErrDeployment, name)
	}
	return secret, c.checkCopies(is)
}

// seen takes note of the server that holds a stream of the copy. A failed look leaves it as it was.
func (l *Log) seen(g int, is *natsjs.StreamInfo) {
	if is.Cluster == nil || is.Cluster.Leader == "" {
		return
	}
	l.servers[g].Store(&is.Cluster.Leader)
	if g == 0 {
		l.connection.setHome(is.Cluster.Leader)
	}
}

// forgot takes note that the server of a stream lost writes.
func (l *Log) forgot(g int, had, has uint64) {
	l.counts.forgot.Add(1)
	l.cfg.Log.Warn("a stream lacks writes that it had, because its server lost them; the other copies have them", "stream", l.cfg.streamName(g), "last_sequence", has, "before", had)
	l.tell(g)
}

// tell tells the caller which logs lack writes in this copy.
func (l *Log) tell(g int) {
	if l.cfg.Forgot != nil {
		l.cfg.Forgot(l.cfg.Copy, func(log string) bool { return sessionlog.Shard(log, l.cfg.Shards)%l.cfg.Streams == g })
	}
}

// Servers returns the names of the servers that hold the streams of a copy, without repetitions: one, unless
// several have the tag of the copy; none while none is known. Two copies on one server are no more than one.
func (l *Log) Servers() (names []string) {
	for i := range l.servers {
		if name := l.servers[i].Load(); name != nil && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	return names
}
