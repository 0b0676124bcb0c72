package config

import "time"

// Logging are the flags about logs. Logs go to standard error.
type Logging struct {
	LogLevel  string `default:"info" help:"Least important log lines to write: debug, info, warn or error."`
	LogFormat string `default:"text" help:"Form of log lines: text or json."`
}

// Problems lists what is wrong with l.
func (l *Logging) Problems() (list Problems) {
	list.oneOf("--log-level", l.LogLevel, "debug", "info", "warn", "error")
	list.oneOf("--log-format", l.LogFormat, "text", "json")
	return list
}

// Admin are the flags about the HTTP server for health and metrics. A command
// that embeds it says where the server is by default, as `set:"http=127.0.0.1:8413"`.
type Admin struct {
	HTTP      string `name:"http" env:"DNP_HTTP" default:"${http}" placeholder:"ADDRESS:PORT" help:"Where /livez, /readyz and /metrics are served; empty = nowhere (default ${http})."`
	HTTPToken string `name:"http-token" env:"DNP_HTTP_TOKEN" placeholder:"FILE" help:"File with a token of at least 22 bytes, which requests that change something need as Authorization: Bearer, and those for /debug/pprof; empty = only those from this machine are served."`
	Pprof     bool   `help:"Serve /debug/pprof there too. It shows the inside of the process, so keep it off public addresses."`
}

// Problems lists what is wrong with a.
func (a *Admin) Problems() (list Problems) {
	if a.HTTP != "" {
		list.hostPort("--http", a.HTTP)
	} else if a.Pprof {
		list.add("--pprof", "needs --http")
	}
	list.readable("--http-token", a.HTTPToken)
	return list
}

// NATS are the flags about the connection to NATS.
type NATS struct {
	NATSURL       string `name:"nats-url" env:"DNP_NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL,..." help:"NATS servers (default nats://127.0.0.1:4222)."`
	NATSUser      string `name:"nats-user" env:"DNP_NATS_USER" placeholder:"NAME" help:"User at NATS servers whose URL has none."`
	NATSPassword  string `name:"nats-password" env:"DNP_NATS_PASSWORD" placeholder:"PASSWORD" help:"Password of --nats-user; better by its variable, because others can see arguments."`
	NATSCreds     string `name:"nats-creds" env:"DNP_NATS_CREDS" placeholder:"FILE" help:"NATS credentials file; empty = none."`
	NATSNKey      string `name:"nats-nkey" env:"DNP_NATS_NKEY" placeholder:"FILE" help:"File with the seed of a NATS NKey; empty = none."`
	NATSCA        string `name:"nats-ca" env:"DNP_NATS_CA" placeholder:"FILE" help:"PEM file with the authorities that sign for NATS servers, for tls:// URLs; empty = those of the system."`
	NATSCert      string `name:"nats-cert" env:"DNP_NATS_CERT" placeholder:"FILE" help:"PEM file with the certificate that is shown to NATS servers; empty = none."`
	NATSKey       string `name:"nats-key" env:"DNP_NATS_KEY" placeholder:"FILE" help:"PEM file with the key of --nats-cert."`
	SubjectPrefix string `default:"dnp.v1" placeholder:"TOKENS" help:"First tokens of every NATS subject (default dnp.v1). Deployments that share a NATS account need different ones."`
}

// Problems lists what is wrong with n.
func (n *NATS) Problems() (list Problems) {
	list.natsURLs("--nats-url", n.NATSURL)
	list.readable("--nats-creds", n.NATSCreds)
	list.readable("--nats-nkey", n.NATSNKey)
	list.readable("--nats-ca", n.NATSCA)
	list.readable("--nats-cert", n.NATSCert)
	list.readable("--nats-key", n.NATSKey)
	if n.NATSCreds != "" && n.NATSNKey != "" {
		list.add("--nats-nkey", "goes not with --nats-creds")
	}
	if n.NATSUser != "" && n.NATSCreds+n.NATSNKey != "" {
		list.add("--nats-user", "goes not with --nats-creds or --nats-nkey")
	}
	if n.NATSUser == "" && n.NATSPassword != "" {
		list.add("--nats-password", "needs --nats-user")
	}
	if (n.NATSCert == "") != (n.NATSKey == "") {
		list.add("--nats-cert", "needs --nats-key, and the other way round")
	}
	list.subject("--subject-prefix", n.SubjectPrefix)
	return list
}

// Node are the flags of every node of a cluster.
type Node struct {
	Name         string        `name:"node" env:"DNP_NODE" placeholder:"NAME" help:"Name of this node in logs, events and metrics (default: POD_NAME, then the name of the host)."`
	StartTimeout time.Duration `default:"30s" help:"How long to wait for NATS at the start; 0 = for ever, also while it refuses the credentials."`
}

// Problems lists what is wrong with n. It fills in the name of the node.
func (n *Node) Problems() (list Problems) {
	list.duration("--start-timeout", n.StartTimeout, 0, 24*time.Hour)
	if n.Name == "" {
		n.Name = DefaultNode()
	}
	list.node("--node", n.Name)
	return list
}

// Sharding are the flags that every node of a deployment must have alike.
type Sharding struct {
	Shards int `default:"64" help:"Number of slices of the spaces; the same on every node, and for ever."`
}

// Problems lists what is wrong with s.
func (s *Sharding) Problems() (list Problems) {
	list.number("--shards", s.Shards, 1, 4096)
	return list
}

// Relay are the flags of what a relay does.
type Relay struct {
	Tick time.Duration `default:"10ms" help:"Least time between two batches of a space; 0 = at once."`
}

// Problems lists what is wrong with r.
func (r *Relay) Problems() (list Problems) {
	list.duration("--tick", r.Tick, 0, time.Second)
	return list
}

// RelayNATS are the flags of a relay on a NATS that is not its own.
type RelayNATS struct {
	Ingress      string        `default:"mapped" help:"How publishes reach the relay: mapped = by the subject mappings of the NATS servers, wildcard = for servers without them."`
	Replicas     int           `default:"1" help:"Copies of the streams that leases and states are stored in, when they are made; 3 in a cluster of NATS servers."`
	StoreStreams int           `default:"4" help:"Number of those streams; the same on every relay, and for ever."`
	DurableRate  int           `default:"2000" help:"Most states per second that a relay stores."`
	LeaseSilence time.Duration `default:"12s" help:"How long a relay goes on with its shards while the store does not answer; above the 4 to 9 s of an election in NATS."`
	DrainTimeout time.Duration `default:"10s" help:"Most time for handing the shards over after the first SIGTERM or SIGINT."`
}

// Problems lists what is wrong with r.
func (r *RelayNATS) Problems() (list Problems) {
	list.oneOf("--ingress", r.Ingress, "mapped", "wildcard")
	list.number("--replicas", r.Replicas, 1, 5)
	list.number("--store-streams", r.StoreStreams, 1, 64)
	list.number("--durable-rate", r.DurableRate, 1, 1_000_000)
	list.duration("--lease-silence", r.LeaseSilence, 2*time.Second, time.Hour)
	list.duration("--drain-timeout", r.DrainTimeout, 0, time.Hour)
	return list
}

// Dev are the flags of the NATS server that relay dev brings along.
type Dev struct {
	NATSListen string `name:"nats-listen" env:"DNP_NATS_LISTEN" default:"127.0.0.1:4222" placeholder:"ADDRESS:PORT" help:"Where the NATS server inside waits for game servers (default 127.0.0.1:4222)."`
	Data       string `placeholder:"DIR" help:"Folder that keeps what NATS stores; empty = a temporary one that is removed at the end."`
	Demo       bool   `negatable:"" default:"true" help:"Publish a few moving states in the space demo."`
}

// Problems lists what is wrong with d.
func (d *Dev) Problems() (list Problems) {
	list.hostPort("--nats-listen", d.NATSListen)
	return list
}
