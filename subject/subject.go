// Package subject names the subjects of the bus and parses them.
//
//	var subjects subject.Names // with DefaultPrefix
//	b.Subscribe(subjects.Live("demo"), handle)
//	address, ok := subjects.ParsePublish(m.Subject)
//
// It also defines which names of spaces, clients, groups and keys a subject can carry:
// [ValidToken] and [ValidKey].
package subject

import (
	"strconv"
	"strings"
)

// DefaultPrefix is the prefix of all subjects unless the operator sets another.
const DefaultPrefix = "dnp.v1"

// Names builds the subjects of one deployment. The zero value uses DefaultPrefix.
type Names struct {
	Prefix string // tokens joined by dots, without wildcards
}

// A Mapping tells a NATS server to deliver messages for the pattern From at To.
type Mapping struct{ From, To string }

// An Address is the content of the subject of a publish or get request.
type Address struct {
	Shard int // -1 before mapping
	Space string
	Key   string // empty if the subject ends with the space
}

// Publish returns the subject for publishers; the key may be empty.
func (s Names) Publish(space, key string) string { return s.join("publish", space, key) }

// PublishAll matches every Publish.
func (s Names) PublishAll() string { return s.join("publish", ">") }

// ShardPublish returns the subject to which a server maps Publish for shard n.
func (s Names) ShardPublish(n int, space, key string) string {
	return s.join("shard", strconv.Itoa(n), "publish", space, key)
}

// ShardPublishAll matches every ShardPublish of shard n.
func (s Names) ShardPublishAll(n int) string { return s.ShardPublish(n, ">", "") }

// Get returns the subject of a request for a state, or for a whole space if key is empty.
func (s Names) Get(space, key string) string { return s.join("get", space, key) }

// GetAll matches every Get.
func (s Names) GetAll() string { return s.join("get", ">") }

// ShardGet returns the subject to which a server maps Get for shard n.
func (s Names) ShardGet(n int, space, key string) string {
	return s.join("shard", strconv.Itoa(n), "get", space, key)
}

// ShardGetAll matches every ShardGet of shard n.
func (s Names) ShardGetAll(n int) string { return s.ShardGet(n, ">", "") }

// Live returns the subject of a space's batches.
func (s Names) Live(space string) string { return s.join("live", space) }

// Head returns the subject on which the holder of shard n reports the last sequence numbers of
// its spaces.
func (s Names) Head(n int) string { return s.join("shard", strconv.Itoa(n), "head") }

// HeadAll matches every Head.
func (s Names) HeadAll() string { return s.join("shard", "*", "head") }

// Repair returns the subject of repair requests to the holder of shard n.
func (s Names) Repair(n int) string { return s.join("shard", strconv.Itoa(n), "repair") }

// Write returns the subject of the writes of clients to shard n.
func (s Names) Write(n int) string { return s.join("shard", strconv.Itoa(n), "write") }

// StoreAll matches all stored records of shard n.
func (s Names) StoreAll(n int) string { return s.join("store", strconv.Itoa(n), ">") }

// StoreOwn returns the subject of the ownership record of shard n.
func (s Names) StoreOwn(n int) string { return s.join("store", strconv.Itoa(n), "own") }

// StoreOwnAll matches every StoreOwn.
func (s Names) StoreOwnAll() string { return s.join("store", "*", "own") }

// StoreLease returns the subject of the lease of a relay in stream g of the store; * stands for all relays.
func (s Names) StoreLease(g int, node string) string {
	return s.join("store", strconv.Itoa(g), "relay", node)
}

// ParseStoreLease returns the relay of a StoreLease subject, given the rest that ParseStore returns.
func (s Names) ParseStoreLease(rest string) (node string, ok bool) {
	return strings.CutPrefix(rest, "relay.")
}

// StoreKeyframe returns the subject of the stored keyframe of one state.
func (s Names) StoreKeyframe(n int, space string, number uint64) string {
	return s.join("store", strconv.Itoa(n), "k", space, strconv.FormatUint(number, 10))
}

// StoreKeyframeAll matches every StoreKeyframe of shard n.
func (s Names) StoreKeyframeAll(n int) string { return s.join("store", strconv.Itoa(n), "k", ">") }

// StoreInput returns the subject on which a stream with a secret takes the record that it stores
// under a subject.
func (s Names) StoreInput(stored, secret string) string {
	n, rest, ok := s.ParseStore(stored)
	if !ok {
		return stored
	}
	return s.join("store", strconv.Itoa(n), secret, rest)
}

// StoreInputs takes the secret out of every StoreInput.
func (s Names) StoreInputs(secret string) Mapping {
	return Mapping{From: s.join("store", "*", secret, ">"), To: s.join("store", "{{wildcard(1)}}", ">")}
}

// StoreAllShards matches every stored record, and every StoreInput.
func (s Names) StoreAllShards() string { return s.join("store", ">") }

// ParseStore returns the shard of a stored record and the rest of its subject: own, relay.<node> or
// k.<space>.<number>.
func (s Names) ParseStore(subject string) (n int, rest string, ok bool) {
	if rest, ok = s.cut(subject, "store."); !ok {
		return 0, "", false
	}
	return cutShard(rest)
}

// ParseStoreKeyframe returns the space and the state number of a StoreKeyframe subject.
func (s Names) ParseStoreKeyframe(subject string) (space string, number uint64, ok bool) {
	_, rest, ok := s.ParseStore(subject)
	rest, keyframe := strings.CutPrefix(rest, "k.")
	space, text, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(text, 10, 64)
	return space, number, ok && keyframe && err == nil && ValidToken(space)
}

// Log returns the subject of the log of one session, in log shard n.
func (s Names) Log(n int, log string) string { return s.join("log", strconv.Itoa(n), log) }

// LogAll matches every Log of log shard n.
func (s Names) LogAll(n int) string { return s.Log(n, "*") }

// LogAllShards matches every Log.
func (s Names) LogAllShards() string { return s.join("log", "*", "*") }

// LogCopy returns the subject of one copy, 1 to 3, of the log of one session, in log shard n.
func (s Names) LogCopy(copy, n int, log string) string {
	return s.join("logcopy", strconv.Itoa(copy), strconv.Itoa(n), log)
}

// LogCopies matches every LogCopy.
func (s Names) LogCopies() string { return s.join("logcopy", "*", "*", "*") }

// All matches every subject of the deployment.
func (s Names) All() string { return s.join(">") }

// Event returns the subject of the events of a space.
func (s Names) Event(space string) string { return s.join("event", space) }

// EventIn returns the subject of the events of a space's store in a form other than JSON.
func (s Names) EventIn(space, form string) string { return s.join("event", space, form) }

// From returns the subject of the messages from a client.
func (s Names) From(space, client string) string { return s.join("from", space, client) }

// FromAll matches every From.
func (s Names) FromAll() string { return s.From("*", "*") }

// Command returns the subject of the commands about a state.
func (s Names) Command(space, key string) string { return s.join("command", space, key) }

// CommandAll matches every Command of a space; the space may be *.
func (s Names) CommandAll(space string) string { return s.Command(space, ">") }

// ParseCommand returns the space and key of a Command subject.
func (s Names) ParseCommand(subject string) (space, key string, ok bool) {
	rest, ok := s.cut(subject, "command.")
	space, key, _ = strings.Cut(rest, ".")
	return space, key, ok && ValidToken(space) && ValidKey(key)
}

// To returns the subject of the messages for a client.
func (s Names) To(space, client string) string { return s.join("to", space, client) }

// ToAll returns the subject of the messages for all clients of a space.
func (s Names) ToAll(space string) string { return s.join("toall", space) }

// Who returns the subject on which a relay asks the edges for the sessions in a space.
func (s Names) Who(space string) string { return s.join("who", space) }

// Spaces returns the subject on which relays are asked for the spaces that they hold.
func (s Names) Spaces() string { return s.join("spaces") }

// Nodes returns the subject on which relays and edges are asked about themselves.
func (s Names) Nodes() string { return s.join("nodes") }

// Clients returns the subject on which edges are asked for their clients in a space; the space
// may be *.
func (s Names) Clients(space string) string { return s.join("clients", space) }

// Why returns the subject on which nodes are asked why a client has what it has of a state of a
// space; the space may be *.
func (s Names) Why(space string) string { return s.join("why", space) }

// ParseAbout returns the space of a subject of Clients or Why.
func (s Names) ParseAbout(subject string) (space string, ok bool) {
	rest, ok := s.cut(subject, "clients.")
	if !ok {
		rest, ok = s.cut(subject, "why.")
	}
	return rest, ok && ValidToken(rest)
}

// Edge returns the subject on which other edges ask an edge to take over sessions.
func (s Names) Edge(node string) string { return s.join("edge", node) }

// Drain returns the subject on which an operator asks an edge to hand its sessions over and end; the node may be *.
func (s Names) Drain(node string) string { return s.join("drain", node) }

// Relay returns the subject on which a relay announces itself to the others.
func (s Names) Relay(node string) string { return s.join("relay", node) }

// RelayAll matches every Relay.
func (s Names) RelayAll() string { return s.Relay("*") }

// ParseRelay returns the relay of a Relay subject.
func (s Names) ParseRelay(subject string) (node string, ok bool) { return s.cut(subject, "relay.") }

// Auth returns the subject of requests to the game's authentication service.
func (s Names) Auth() string { return s.join("auth") }

// Probe returns the subject by which a node finds out whether, and how, its server maps
// publishes: a Publish to a reserved space, the only one to which an edge may publish.
func (s Names) Probe() string { return s.Publish(ProbeSpace, "") }

// ProbeSpace is the reserved space of Probe. Two servers that count 64 shards and any other number
// up to 1,024, or two different powers of two up to 65,536, never agree on its shard, because the
// low 16 bits of its hash are ones; most names cannot tell 64 from 128.
const ProbeSpace = ProbePrefix + "f9q8"

// ProbePrefix begins the reserved spaces whose publishes are probes. Nodes of releases before
// ProbeSpace use spaces named after themselves.
const ProbePrefix = "_probe-"

// MayAnswer reports whether a node may answer a message on the subject that the message names. It
// must not on subjects of the deployment or of the server: there, the rights of the node would
// do what the sender has no right to do.
func (s Names) MayAnswer(reply string) bool {
	return !strings.HasPrefix(reply, s.prefix()) && !strings.HasPrefix(reply, "$")
}

// Inbox returns the beginning of the subjects on which nodes of a role, relay or edge, receive
// answers. No other role can listen to them, and edges cannot send to them.
func Inbox(role string) string { return "_INBOX.dnp." + role }

// InboxPeer begins the subjects on which edges receive the answers of other edges.
const InboxPeer = "_INBOX.dnp.peer"

// InboxWho begins the subjects on which relays receive the answers of edges to Who.
const InboxWho = "_INBOX.dnp.who"

// ParsePublish parses a subject of Publish or ShardPublish. It is not ok if the space or the
// key is invalid.
func (s Names) ParsePublish(subject string) (a Address, ok bool) {
	return s.parseAddress(subject, "publish.")
}

// ParseGet parses a subject of Get or ShardGet.
func (s Names) ParseGet(subject string) (a Address, ok bool) {
	return s.parseAddress(subject, "get.")
}

// ParseShard returns the shard of a Head, Repair or Write subject.
func (s Names) ParseShard(subject string) (n int, ok bool) {
	rest, ok := s.cut(subject, "shard.")
	if ok {
		n, _, ok = cutShard(rest)
	}
	return n, ok
}

// ParseFrom returns the space and client of a From subject.
func (s Names) ParseFrom(subject string) (space, client string, ok bool) {
	rest, ok := s.cut(subject, "from.")
	space, client, _ = strings.Cut(rest, ".")
	return space, client, ok && ValidToken(space) && ValidToken(client)
}

// Mappings returns the mappings that every NATS server and leaf node needs to deliver the
// requests of publishers to the holder of the space's shard. Each subject has two, with and
// without a key, because > matches at least one token.
func (s Names) Mappings(shards int) []Mapping {
	var all []Mapping
	for _, verb := range [...]string{"publish", "get"} {
		to := s.join("shard", "{{partition("+strconv.Itoa(shards)+",1)}}", verb, "{{wildcard(1)}}")
		from := s.join(verb, "*")
		all = append(all, Mapping{From: from, To: to}, Mapping{From: from + ".>", To: to + ".>"})
	}
	return all
}

// join joins tokens behind the prefix and leaves out an empty last token.
func (s Names) join(tokens ...string) string {
	if tokens[len(tokens)-1] == "" {
		tokens = tokens[:len(tokens)-1]
	}
	return s.prefix() + strings.Join(tokens, ".")
}

func (s Names) prefix() string {
	if s.Prefix == "" {
		return DefaultPrefix + "."
	}
	return s.Prefix + "."
}

func (s Names) cut(subject, verb string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(subject, s.prefix())
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, verb)
}

func (s Names) parseAddress(subject, verb string) (a Address, ok bool) {
	a.Shard = -1
	rest, sharded := s.cut(subject, "shard.")
	if sharded {
		if a.Shard, rest, ok = cutShard(rest); !ok {
			return Address{}, false
		}
		rest, ok = strings.CutPrefix(rest, verb)
	} else {
		rest, ok = s.cut(subject, verb)
	}
	if !ok {
		return Address{}, false
	}
	space, key, keyed := strings.Cut(rest, ".")
	if !ValidToken(space) || keyed && !ValidKey(key) {
		return Address{}, false
	}
	a.Space, a.Key = space, key
	return a, true
}

func cutShard(s string) (n int, rest string, ok bool) {
	number, rest, ok := strings.Cut(s, ".")
	if !ok {
		return 0, "", false
	}
	u, err := strconv.ParseUint(number, 10, 16)
	return int(u), rest, err == nil
}

// Headers of messages between clients and game servers.
const (
	HeaderSession  = "Dnp-Session"  // the session of the client
	HeaderNumber   = "Dnp-Number"   // of a reliable message of a client, in its session
	HeaderPrevious = "Dnp-Previous" // number of the previous message plus one: the cursor of a consumer before this message
	HeaderReliable = "Dnp-Reliable" // "true" or "false"
	HeaderToken    = "Dnp-Token"    // by which a game server names a message to a client
)

// Headers of commands of clients and of their answers.
const (
	HeaderClient  = "Dnp-Client"  // who sent the command
	HeaderCommand = "Dnp-Command" // its name
	HeaderKey     = "Dnp-Key"     // of the state that it is about
	HeaderRequest = "Dnp-Request" // its id in the session; 0 for a message that is none of the application and no command
	HeaderRefused = "Dnp-Refused" // why the edge refused it: a code
	HeaderTimeout = "Dnp-Timeout" // how long the edge waits for the answer, in milliseconds
	HeaderAnswer  = "Dnp-Answer"  // of a message to a client: it answers the request with this id in HeaderSession
	HeaderCode    = "Dnp-Code"    // of an answer that is an error
)

// HeaderAgain marks a message on the subject of publishes that is the question for an answer that did not come, on the
// same reply subject. The value does not matter.
const HeaderAgain = "Dnp-Again"

// HeaderWrite has the wide number of a write request, if it has one (replication.WriteNumbers).
const HeaderWrite = "Dnp-Write"

// HeaderControl marks a message on the subject of a client that is a command to the
// client's edge and not for the client.
const (
	HeaderControl   = "Dnp-Control"
	ControlKick     = "kick"      // from the holder: end the client's sessions, or only HeaderSession if it is there
	ControlReplaced = "replaced"  // from an edge: end the sessions that began before HeaderBegan
	HeaderBegan     = "Dnp-Began" // when the session HeaderSession began, in Unix microseconds
)

// Bounds of names, which are tokens of subjects.
const (
	TokenMax     = 64  // characters of a space, client, session, group or key token
	KeyTokensMax = 8   // tokens of a key
	KeyMax       = 255 // bytes of a key, because a byte has its length in records
)

// ValidToken reports whether s matches [A-Za-z0-9_-]{1,64}: a space, a client, a group, or one
// token of a key.
func ValidToken(s string) bool {
	if s == "" || len(s) > TokenMax {
		return false
	}
	for i := range len(s) {
		if !tokenByte(s[i]) {
			return false
		}
	}
	return true
}

// ValidKey reports whether s is 1 to 8 tokens joined by dots, and not too long.
func ValidKey(s string) bool {
	if len(s) > KeyMax {
		return false
	}
	for n := 1; n <= KeyTokensMax; n++ {
		token, rest, more := strings.Cut(s, ".")
		if !ValidToken(token) {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
	return false
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// Valid reports whether s is a subject of NATS: tokens joined by dots, without white space. With
// wildcards a token may be *, and the last one >.
func Valid(s string, wildcards bool) bool {
	for more := true; more; {
		var token string
		token, s, more = strings.Cut(s, ".")
		wild := token == "*" || token == ">"
		if token == "" || strings.ContainsAny(token, " \t\r\n") || wild && !wildcards || token == ">" && more {
			return false
		}
	}
	return true
}
