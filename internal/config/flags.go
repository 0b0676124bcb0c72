package config

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// Logging are the flags about logs. Logs go to standard error.
type Logging struct {
	LogLevel  string `default:"info" want:"~debug,info,warn,error" help:"Lowest level of log lines to write: debug, info, warn or error."`
	LogFormat string `default:"text" want:"text,json" help:"Form of log lines: text or json."`
}

// Logger returns a logger that writes to w in the form and from the level that l names.
func (l Logging) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // fails only for a problem of the flag
	options := &slog.HandlerOptions{Level: level}
	if l.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Admin are the flags about the HTTP server for health and metrics. A command that embeds
// it sets the default address, as `set:"http=127.0.0.1:8413"`.
type Admin struct {
	HTTP      string `name:"http" env:"DNP_HTTP" default:"${http}" placeholder:"ADDRESS:PORT" help:"Address to serve /livez, /readyz and /metrics on; empty = do not serve them (default ${http})."`
	HTTPToken string `name:"http-token" env:"DNP_HTTP_TOKEN" placeholder:"FILE" want:"file" help:"File with a token of at least 22 bytes. Requests that change something and requests for /debug must carry it as Authorization: Bearer; empty = such requests are served only from this machine."`
	Pprof     bool   `help:"Serve /debug/pprof on --http. It exposes the process's memory and call stacks, so keep it off public addresses."`
}

// Problems lists what is wrong with a.
func (a *Admin) Problems() (list Problems) {
	if a.HTTP != "" {
		list.hostPort("--http", a.HTTP)
	} else if a.Pprof {
		list.Add("--pprof", "needs --http")
	}
	return list
}

// NATS are the flags about the connection to NATS.
type NATS struct {
	NATSURL       string `name:"nats-url" env:"DNP_NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL,..." help:"NATS servers (default nats://127.0.0.1:4222)."`
	NATSUser      string `name:"nats-user" env:"DNP_NATS_USER" placeholder:"NAME" help:"User for NATS servers whose URL names none."`
	NATSPassword  string `name:"nats-password" env:"DNP_NATS_PASSWORD" placeholder:"PASSWORD" help:"Password of --nats-user. Prefer the variable: other users of the machine can see arguments."`
	NATSCreds     string `name:"nats-creds" env:"DNP_NATS_CREDS" placeholder:"FILE" want:"file" help:"NATS credentials file, or a file with the line USER:PASSWORD, read again for each connection; empty = none."`
	NATSNKey      string `name:"nats-nkey" env:"DNP_NATS_NKEY" placeholder:"FILE" want:"file" help:"File with the seed of a NATS NKey; empty = none."`
	NATSCA        string `name:"nats-ca" env:"DNP_NATS_CA" placeholder:"FILE" want:"file" help:"PEM file with the authorities that sign the certificates of NATS servers, for tls:// URLs; empty = the authorities of the system."`
	NATSCert      string `name:"nats-cert" env:"DNP_NATS_CERT" placeholder:"FILE" want:"file" help:"PEM file with the certificate to present to NATS servers; empty = none."`
	NATSKey       string `name:"nats-key" env:"DNP_NATS_KEY" placeholder:"FILE" want:"file" help:"PEM file with the key of --nats-cert."`
	SubjectPrefix string `default:"dnp.v1" placeholder:"TOKENS" want:"subject" help:"First tokens of every NATS subject (default dnp.v1). Deployments that share a NATS account need different prefixes."`
}

// Problems lists what is wrong with n.
func (n *NATS) Problems() (list Problems) {
	list.natsURLs("--nats-url", n.NATSURL)
	list.AddIf(n.NATSCreds != "" && n.NATSNKey != "", "--nats-nkey", "conflicts with --nats-creds")
	list.AddIf(n.NATSUser != "" && n.NATSCreds+n.NATSNKey != "", "--nats-user", "conflicts with --nats-creds and --nats-nkey")
	list.AddIf(n.NATSUser == "" && n.NATSPassword != "", "--nats-password", "needs --nats-user")
	list.AddIf((n.NATSCert == "") != (n.NATSKey == ""), "--nats-cert", "needs --nats-key, and --nats-key needs --nats-cert")
	return list
}

// Node are the flags of every node of a cluster.
type Node struct {
	Name         string        `name:"node" env:"DNP_NODE" placeholder:"NAME" help:"Name of this node in logs, events and metrics (default: POD_NAME, then the host name)."`
	StartTimeout time.Duration `default:"30s" want:"0s..24h" help:"How long to wait for NATS at the start; 0 = without limit, even while NATS refuses the credentials."`
}

// Problems lists what is wrong with n. It sets the name of the node if there is none.
func (n *Node) Problems() (list Problems) {
	n.Name = cmp.Or(n.Name, DefaultNode())
	list.wantText("--node", "node", n.Name)
	return list
}

// Cluster are the flags of a node that belongs to a cluster.
type Cluster struct {
	NATS
	Node
	Gossip
	Sharding
}

// Gossip are the flags about finding the other nodes of a cluster.
type Gossip struct {
	GossipBind      string   `default:"127.0.0.1:7946" placeholder:"[ADDRESS]:PORT" help:"Address for gossip with the other nodes, TCP and UDP (default 127.0.0.1:7946); without an address = all, IPv4 and IPv6; port 0 = any free port."`
	GossipAdvertise string   `placeholder:"ADDRESS[:PORT]" help:"Address at which the other nodes reach this one (default: that of --gossip-bind, or else a private address of the machine)."`
	GossipJoin      []string `placeholder:"HOST[:PORT]" help:"Other nodes, by name or address (default port 7946). A name may have several addresses, and may not resolve at the start. Empty = run without gossip."`
	GossipKeyFile   string   `placeholder:"FILE" help:"Keys of the cluster: one per line, 16, 24 or 32 bytes in hex or base64; the first encrypts. The node reads the file again when it changes. Empty = no encryption, on loopback only."`
}

// Problems lists what is wrong with g.
func (g *Gossip) Problems() (list Problems) {
	list.bind("--gossip-bind", g.GossipBind)
	list.advertise("--gossip-advertise", g.GossipAdvertise)
	list.join("--gossip-join", g.GossipJoin)
	list.readable("--gossip-key-file", g.GossipKeyFile)
	list.AddIf(g.GossipKeyFile == "" && !onLoopback(g.GossipBind), "--gossip-key-file", "needed unless --gossip-bind is on loopback; without it, whoever reaches the port can join")
	return list
}

// Sharding are the flags that must be equal on every node of a deployment.
type Sharding struct {
	Shards int `default:"64" want:"1..1024" help:"Number of shards of the spaces; the same on every node. The way of a deployment to another number is dnpctl backup and restore."`
}

// Relay are the flags of every relay.
type Relay struct {
	Tick   time.Duration `default:"10ms" want:"0s..1s" help:"Shortest time between two batches of a space; 0 = send at once."`
	Spaces int           `default:"10000" want:"1..1000000" help:"Most spaces of this relay, which its workers share evenly. A new space takes the place of one that was empty and unused for 10 minutes; without such a one, the relay answers publishes to it with busy. Spaces that are stored are served whatever their number."`
	Eye    string        `placeholder:"JSON" help:"From where clients see that were given no eye, for states with an interest: a state whose key has the name of the client, as {\"key\":\"player.{client}\"}, and perhaps one of its values, as \"value\":\"pos\". Empty = from nowhere. The same on every relay."`
}

// EveryEye returns what --eye says.
func (r *Relay) EveryEye() replication.Eye {
	eye, _ := payload.ParseEveryEye(r.Eye) // fails only for a problem of the flag
	return eye
}

// Problems lists what is wrong with r.
func (r *Relay) Problems() (list Problems) {
	if _, err := payload.ParseEveryEye(r.Eye); err != nil {
		list.Add("--eye", "%s", err.Message)
	}
	return list
}

// RelayNATS are the flags of a relay that uses NATS servers of a cluster.
type RelayNATS struct {
	Ingress      string        `default:"mapped" want:"mapped,wildcard" help:"How publishes reach the relay: mapped = through subject mappings of the NATS servers, wildcard = for servers without mappings."`
	Replicas     int           `default:"1" want:"1..5" help:"Number of replicas for the streams of leases and states when the relay creates them; 3 in a cluster of NATS servers."`
	StoreStreams int           `default:"4" want:"1..64" help:"Number of streams for leases and states; the same on every relay, and fixed for the life of the deployment."`
	DurableRate  int           `default:"2000" want:"1..1000000" help:"Most states per second that a relay stores."`
	LeaseSilence time.Duration `default:"12s" want:"2s..1h" help:"How long a relay serves its shards while the store does not answer; must exceed an election in NATS, 4 to 9 s."`
	DrainTimeout time.Duration `default:"10s" want:"0s..1h" help:"Longest time to hand the shards over after the first SIGTERM or SIGINT."`
}

// Dev are the flags of relay dev.
type Dev struct {
	NATSListen string `name:"nats-listen" env:"DNP_NATS_LISTEN" default:"127.0.0.1:4222" placeholder:"ADDRESS:PORT" want:"address" help:"Address on which the embedded NATS server accepts game servers (default 127.0.0.1:4222)."`
	Data       string `placeholder:"DIR" help:"Folder for what NATS stores; empty = a temporary folder that is removed at the end."`
	Console    string `default:"127.0.0.1:8415" placeholder:"ADDRESS:PORT" help:"Address of the page that shows the world, states, clients and nodes (default 127.0.0.1:8415); empty = none. It has no login, so the address has to be one of this machine."`
	Edges      int    `default:"1" want:"1..8" help:"Number of edges. With 2 or more, each is a process of its own, which may be killed: its sessions are durable, and go on at another edge. The edges share the ports of --listen and --websocket; none has --webtransport, and only the first has --variant and --lludp. It needs Linux, and the program edge beside relay."`
	Demo       bool   `negatable:"" default:"true" help:"Publish a few moving states in the space of --open-space, and for the console a flock in a field, through which a client walks."`
}

// Problems lists what is wrong with d.
func (d *Dev) Problems() (list Problems) {
	list.AddIf(d.Edges > 1 && runtime.GOOS != "linux", "--edges", "more than one needs Linux, which lets processes share a port")
	if d.Console == "" {
		return nil
	}
	list.hostPort("--console", d.Console)
	list.AddIf(len(list) == 0 && !onLoopback(d.Console), "--console", "want an address of this machine, such as 127.0.0.1:8415; `dnpctl console --listen` takes others, with a token")
	return list
}

// Edge are the flags of every edge. A command that embeds it may set another default address, as
// `set:"listen=udp://127.0.0.1:3413"`.
type Edge struct {
	Listen       []Listener    `default:"${listen}" placeholder:"URL" help:"Address on which to accept DNP clients (default ${listen}); may be repeated. Options: ?profile=denetwork|spec (denetwork) and probe=ping|hello|none (ping; hello with spec)."`
	Workers      int           `default:"0" want:"0..1024" help:"Number of workers, each with its own socket per listener; 0 = one per processor."`
	Flush        time.Duration `default:"5ms" want:"0s..1s" help:"Shortest time between two sends of changed values to clients; 0 = send at once."`
	OpenSpace    string        `default:"demo" want:"token" help:"Space that every client joins with --auth open."`
	ClientStates string        `default:"game" want:"off,game,space" help:"Which clients are offered states that clients make: game = none until the game server decides, space = all others in the space, off = the edge refuses such states."`
	LinkMessage  string        `default:"key" want:"key,describe" help:"What clients are told of a state whose publisher gave it no message: key = its key, describe = JSON with the key and the names of the values, for clients that read it; only the key if that would take more than 1,100 bytes."`
	Recycle      string        `default:"close" want:"close,tell" help:"What happens to a client whose session has used up nine tenths of its 45,055 LinkIds, one for each state that it was offered, or that was sent so many reliable messages that its library may soon pass on old ones: close = the edge closes the connection at a quiet moment, and at the latest when it has to, so that the client logs in again; tell = the edge only tells the game servers (event recycle), as long as it can."`

	Auth                string        `default:"open" want:"open,token,callout" help:"How clients identify themselves: open = not at all, for trusted networks; token = by a signed token in their first reliable message; callout = the edge asks the game's own service over NATS."`
	TokenKeys           string        `placeholder:"FILE" want:"file" help:"Public keys (PEM, Ed25519) that verify tokens with --auth token. The edge reads the file again within 2 s of a change. dnpctl token keygen makes keys."`
	LoginTimeout        time.Duration `default:"5s" want:"2s..1m" help:"How long a client may take to send its login after it connected, with --auth token or callout. Then the edge closes the connection."`
	Sessions            int           `default:"65536" want:"1..1048576" help:"Most clients of this edge."`
	LogAddresses        string        `default:"truncated" want:"full,truncated,off" help:"How much of a client's address to log: full, truncated = the /24 or /48, off."`
	SessionsPerAddress  int           `default:"64" want:"0..1048576" help:"Most clients of one IPv4 address or IPv6 /64; 0 = unlimited."`
	AddressRate         float64       `default:"5" placeholder:"PER-SECOND" want:"0..10000000" help:"Most connection requests and logins per second of one IPv4 address or IPv6 /64, with bursts of four times as many; a /24 or /56 may make 10 times, a /48 20 times as many (default 5); 0 = unlimited."`
	ConnectRate         float64       `default:"0" placeholder:"PER-SECOND" want:"0..10000000" help:"Most connection requests and logins per second that each worker handles; it drops the rest, those of players included; 0 = unlimited."`
	SessionDatagramRate int           `default:"200" want:"0..1000000" help:"Most datagrams per second that one client may send, not counting answers; 0 = unlimited."`
	SessionByteRate     int           `default:"65536" want:"0..1073741824" help:"Most bytes per second that one client may send; 0 = unlimited."`
	SessionSendRate     int           `default:"262144" want:"0..1073741824" help:"Most bytes per second to one client, headers included, and less where its path carries less; the least urgent values wait; 0 = unlimited."`
	OfferRate           int           `default:"4194304" want:"0..1073741824" help:"Most bytes per second that each worker spends on states that are new to clients, so that joining clients do not disturb playing ones; 0 = unlimited."`
}

// Problems lists what is wrong with e.
func (e *Edge) Problems() (list Problems) {
	list.listeners("--listen", e.Listen)
	list.AddIf(e.Auth == "token" && e.TokenKeys == "", "--auth", "token needs --token-keys")
	list.AddIf((e.Auth == "open" || e.Auth == "callout") && e.TokenKeys != "", "--token-keys", "needs --auth token")
	return list
}

// Sessions are the flags about sessions that outlive their edge.
type Sessions struct {
	SessionDurability string        `default:"none" want:"none,log" help:"What happens to sessions when this edge drains or dies: none = they end, log = other edges continue them from a log in JetStream."`
	SessionReplicas   int           `default:"1" want:"1..3" help:"Number of copies of that log: 1 or 3. Each of 3 lies on a NATS server of its own with the tag dnprelay-log-1, -2 or -3, so that the death of a server delays nothing. The stream of clients' messages has as many replicas. All edges need the same number; to change it ends all sessions, see deploy/RUNBOOK.md."`
	Redis             string        `env:"DNP_REDIS" placeholder:"URL[,URL]" help:"Redis that stores which edge serves which session: redis://[user:password@]host:port[/db], or rediss:// for TLS. With two servers, which need not know each other, edges write to both and do without either. Empty = edges ask the log alone, and do not notice silent clients of a dead edge."`
	DrainTimeout      time.Duration `default:"55s" want:"5s..1h" help:"Longest time to hand sessions over after the first SIGTERM or SIGINT. With --session-durability none, the time over which the edge closes its sessions, evenly, but for the last 2 s."`
	DrainLinger       time.Duration `default:"3s" want:"0s..1m" help:"How long to forward datagrams after all sessions are handed over."`
	AnswerOnly        bool          `help:"Send to the client of a session that this edge took over only after a datagram of the client, for balancers that track connections, as those of Kubernetes do."`
}

// Problems lists what is wrong with s.
func (s *Sessions) Problems() (list Problems) {
	list.AddIf(s.SessionReplicas == 2, "--session-replicas", "want 1 or 3, got 2")
	if s.Redis == "" {
		return list
	}
	list.AddErr("--redis", redisProblem(s.RedisURLs()))
	list.AddIf(s.SessionDurability != "log", "--redis", "needs --session-durability log")
	return list
}

// RedisURLs returns the URLs of the Redis servers; nil if there are none.
func (s *Sessions) RedisURLs() []string {
	if s.Redis == "" {
		return nil
	}
	return strings.Split(s.Redis, ",")
}

// redisServersMax is how many Redis servers an edge uses.
const redisServersMax = 2

// redisPath matches the database in the URL of a Redis server.
var redisPath = regexp.MustCompile(`^/?\d{0,9}$`)

// redisProblem says what is wrong with the URLs of Redis servers, without the text, which may have a password.
func redisProblem(urls []string) error {
	hosts := make(map[string]bool)
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" || !redisPath.MatchString(u.Path) {
			return errors.New("want redis://[user:password@]host:port[/db], or rediss:// for TLS, and a comma between two of them; in a password, a comma is %2C")
		}
		hosts[net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))] = true
	}
	switch {
	case len(urls) > redisServersMax:
		return errors.New("want at most two servers")
	case len(hosts) < len(urls):
		return errors.New("want two different servers")
	}
	return nil
}

// Forward are the flags about datagrams of clients that other edges serve.
type Forward struct {
	ForwardListen    string `placeholder:"[ADDRESS]:PORT" help:"UDP address that receives datagrams of clients from other edges (default :7947); without an address = all, IPv4 and IPv6; port 0 = any free port. It needs --session-durability log, --gossip-join and --gossip-key-file, without which edges do not forward."`
	ForwardAdvertise string `placeholder:"ADDRESS[:PORT]" help:"Address at which the other edges reach --forward-listen (default: its own, or else that of gossip)."`
}

// Address returns ForwardListen, or the default.
func (f *Forward) Address() string { return cmp.Or(f.ForwardListen, ":7947") }

// Problems lists what is wrong with f.
func (f *Forward) Problems() (list Problems) {
	list.bind("--forward-listen", f.Address())
	list.advertise("--forward-advertise", f.ForwardAdvertise)
	return list
}
