package config

import "time"

// Edge are the flags of what an edge does.
type Edge struct {
	Listen       []Listener    `default:"udp://:3413" placeholder:"URL" help:"Where to wait for DNP clients (default udp://:3413); may be repeated. Options: ?profile=denetwork|spec (denetwork) and probe=ping|hello|none (ping; hello with spec)."`
	Workers      int           `default:"0" help:"Threads of work, each with its own socket per listener; 0 = one per processor."`
	Flush        time.Duration `default:"5ms" help:"Least time between two sends of changed values to clients; 0 = at once."`
	OpenSpace    string        `default:"demo" help:"Space that every client joins with --auth open."`
	ClientStates string        `default:"game" help:"Who is offered states that clients make: game = nobody until the game server says so, space = everybody else in the space, off = refuse them."`

	Auth                string  `default:"open" help:"How clients say who they are: open = they are not asked, for trusted networks; token = a signed token as the first reliable message; callout = the game's own service is asked over NATS."`
	TokenKeys           string  `placeholder:"FILE" help:"Public keys (PEM, Ed25519) whose tokens are good, with --auth token; read again within 2 s of a change. dnpctl token keygen makes them."`
	Sessions            int     `default:"65536" help:"Most clients of this edge."`
	LogAddresses        string  `default:"truncated" help:"How much of clients' addresses log lines have: full, truncated = the /24 or /48, off."`
	SessionsPerAddress  int     `default:"64" help:"Most clients of one IPv4 address or IPv6 /64; 0 = no bound."`
	AddressRate         float64 `default:"5" placeholder:"PER-SECOND" help:"Connection requests and logins per second of one IPv4 address or IPv6 /64, four times as many at once; a /24 or /56 has 10 times, a /48 20 times as many (default 5); 0 = no bound."`
	ConnectRate         float64 `default:"0" placeholder:"PER-SECOND" help:"Connection requests and logins per second that each worker looks at; beyond, those of players are lost as well; 0 = no bound."`
	SessionDatagramRate int     `default:"200" help:"Datagrams per second that one client may send, without answers; 0 = no bound."`
	SessionByteRate     int     `default:"65536" help:"Bytes per second that one client may send; 0 = no bound."`
	SessionSendRate     int     `default:"262144" help:"Bytes per second that one client is sent, headers included; beyond, the least urgent values wait; 0 = no bound."`
	OfferRate           int     `default:"4194304" help:"Bytes per second of each worker for states that are new to clients, so that those who join do not disturb those who play; 0 = no bound."`
}

// Problems lists what is wrong with e.
func (e *Edge) Problems() (list Problems) {
	list.listeners("--listen", e.Listen)
	list.number("--workers", e.Workers, 0, 1024)
	list.duration("--flush", e.Flush, 0, time.Second)
	list.token("--open-space", e.OpenSpace)
	list.oneOf("--client-states", e.ClientStates, "off", "game", "space")
	list.oneOf("--auth", e.Auth, "open", "token", "callout")
	list.readable("--token-keys", e.TokenKeys)
	switch {
	case e.Auth == "token" && e.TokenKeys == "":
		list.add("--auth", "token needs --token-keys")
	case e.Auth != "token" && e.TokenKeys != "":
		list.add("--token-keys", "needs --auth token")
	}
	list.oneOf("--log-addresses", e.LogAddresses, "full", "truncated", "off")
	list.number("--sessions", e.Sessions, 1, 1<<20)
	list.number("--sessions-per-address", e.SessionsPerAddress, 0, 1<<20)
	list.rate("--address-rate", e.AddressRate)
	list.rate("--connect-rate", e.ConnectRate)
	list.number("--session-datagram-rate", e.SessionDatagramRate, 0, 1_000_000)
	list.number("--session-byte-rate", e.SessionByteRate, 0, 1<<30)
	list.number("--session-send-rate", e.SessionSendRate, 0, 1<<30)
	list.number("--offer-rate", e.OfferRate, 0, 1<<30)
	return list
}
