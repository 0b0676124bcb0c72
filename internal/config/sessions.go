package config

import (
	"net/url"
	"time"
)

// Sessions are the flags about sessions that outlive their edge.
type Sessions struct {
	SessionDurability string        `default:"none" help:"What becomes of sessions when this edge ends or dies: none = they end, log = other edges go on with them, from a log in JetStream."`
	SessionReplicas   int           `default:"1" help:"Copies of the streams of that log and of the messages of clients, when they are made; 3 in a cluster of NATS servers."`
	Redis             string        `env:"DNP_REDIS" placeholder:"URL" help:"Redis that says which edge serves which session: redis://[user:password@]host:port[/db], or rediss:// for TLS. Empty = the log alone says so, and silent clients of a dead edge are not looked after."`
	DrainTimeout      time.Duration `default:"55s" help:"Most time for handing sessions over after the first SIGTERM or SIGINT."`
	DrainLinger       time.Duration `default:"3s" help:"For how long datagrams are forwarded when all sessions are handed over."`
	AnswerOnly        bool          `help:"Send to the client of a session that came here only when something came from the client: for balancers that track connections, as those of Kubernetes do. Otherwise it has 3 s to say something."`
}

// Problems lists what is wrong with s.
func (s *Sessions) Problems() (list Problems) {
	list.oneOf("--session-durability", s.SessionDurability, "none", "log")
	list.number("--session-replicas", s.SessionReplicas, 1, 5)
	list.duration("--drain-timeout", s.DrainTimeout, 5*time.Second, time.Hour)
	list.duration("--drain-linger", s.DrainLinger, 0, time.Minute)
	if s.Redis == "" {
		return list
	}
	if u, err := url.Parse(s.Redis); err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" {
		list.add("--redis", "want redis://[user:password@]host:port[/db], or rediss:// for TLS") // it may have a password
	}
	if s.SessionDurability != "log" {
		list.add("--redis", "needs --session-durability log")
	}
	return list
}
