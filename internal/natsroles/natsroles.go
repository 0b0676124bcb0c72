// Package natsroles says which program may do what on NATS: one table of roles and
// subjects, and the configuration of nats-server that enforces it.
//
//	table := natsroles.Table(natsroles.Config{Subjects: subjects})
//	text := natsroles.Render(table)             // roles.conf of the chart: the rights that secure.conf gives to users
//	text := natsroles.RenderAccount("a", …)     // a tenant: an account of its own
//
// The roles are relay, edge, publisher (a game server), observer and admin. A role may do
// what its programs do and nothing else; tests run real programs with it, and try every role
// on every subject of a real server against the table in deploy/nats/README.md.
//
// The package does not make users: names and passwords, or NKeys, are the operator's.
package natsroles

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dnprelay/dnprelay/subject"
)

// inboxes are the subjects on which programs receive answers, and nodeInboxes those of relays and
// edges. Other roles cannot subscribe to these.
const (
	inboxes     = "_INBOX.>"
	nodeInboxes = "_INBOX.dnp.>"
)

// A Role says what one kind of program may do. Subjects are patterns of NATS. For subjects
// that a server maps, the role has the mapped ones, because the server checks those.
type Role struct {
	Name      string
	Publish   []string
	Subscribe []string

	// PublishDeny and SubscribeDeny are subjects that stay closed although Publish and Subscribe
	// have them.
	PublishDeny, SubscribeDeny []string

	// Responses lets the role answer each message that it received, once, on the subject
	// that the message names, within ResponseTime. A role that may publish and subscribe to the
	// same subject must not have it: the role could send itself a message that names any subject,
	// and then publish there, whatever PublishDeny says.
	Responses bool
}

// ResponseTime is how long a role with Responses may take to answer, in the form of NATS.
const ResponseTime = "10s"

// A Config has the settings that the table depends on.
type Config struct {
	Subjects     subject.Names
	StoreStreams int // --store-streams of relays; 0 means the default, 4

	// NoLog takes the rights to JetStream from edges and game servers, which need none if edges run
	// with --session-durability none.
	NoLog bool
}

// logStreams is the number of streams with the session logs of edges, if there is one copy of each. Else there are
// logCopies copies, with logCopyStreams streams each, and the first of the streams for one copy.
const (
	logStreams     = 16
	logCopies      = 3
	logCopyStreams = 4
)

// Table returns the roles.
func Table(c Config) []Role {
	c.StoreStreams = cmp.Or(c.StoreStreams, 4)
	return []Role{c.relay(), c.edge(), c.publisher(), c.observer(), c.admin()}
}

// relay holds spaces: it receives publishes, queries and writes, and writes to the store.
func (c *Config) relay() Role {
	s := c.Subjects
	return Role{
		Name: "relay",
		Publish: append([]string{
			s.Live("*"), s.HeadAll(), s.Event("*"), s.EventIn("*", "*"), // states and events
			s.RelayAll(),               // announcements, by which relays tell each other from ghosts
			s.To("*", "*"), s.Who("*"), // kicks, and queries for clients
			shard(s, "publish", subject.ProbeSpace), // probes of the mapping
			s.StoreAllShards(),
			inboxes,
		}, c.stores("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET")...),
		Subscribe: []string{
			shard(s, "publish", ">"), shard(s, "get", ">"), shard(s, "repair"), shard(s, "write"), s.HeadAll(), s.RelayAll(),
			s.PublishAll(), s.GetAll(), // without mappings
			s.Event("*"),                      // joined and left, from edges
			s.Spaces(), s.Nodes(), s.Why("*"), // from people who look
			subject.Inbox("relay") + ".>", subject.InboxWho + ".>",
		},
	}
}

// edge serves clients: it follows spaces, and passes on writes and messages of clients.
func (c *Config) edge() Role {
	s := c.Subjects
	r := Role{
		Name: "edge",
		Publish: []string{
			shard(s, "repair"), shard(s, "write"), shard(s, "publish", subject.ProbeSpace), // probes of the mapping
			s.Event("*"), s.FromAll(), s.CommandAll("*"), s.To("*", "*"), s.Auth(), // To: a client that connects again ends its older session
			inboxes,
		},
		PublishDeny: []string{subject.Inbox("relay") + ".>", subject.Inbox("edge") + ".>"}, // where the store and relays answer
		Subscribe: []string{
			s.Live("*"), s.HeadAll(), s.To("*", "*"), s.ToAll("*"), s.Who("*"), s.Edge("*"), subject.Inbox("edge") + ".>", subject.InboxPeer + ".>",
			s.RelayAll(),                          // announcements, by which an edge notices that its server is cut off from the others
			s.Nodes(), s.Clients("*"), s.Why("*"), // from people who look
			s.Drain("*"), // from operators
		},
	}
	if c.NoLog {
		return r
	}
	r.Publish = append(r.Publish, s.LogAllShards(), s.LogCopies(), s.Edge("*")) // Edge: takeovers of sessions
	verbs := []string{"STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"}
	for n := range logStreams {
		r.Publish = append(r.Publish, api(fmt.Sprint("DNP_LOG_", n), verbs...)...)
	}
	for n := range logCopies * logCopyStreams {
		r.Publish = append(r.Publish, api(fmt.Sprintf("DNP_LOG_C%d_%d", 1+n/logCopyStreams, n%logCopyStreams), verbs...)...)
	}
	r.Publish = append(r.Publish, api(fromStream, "STREAM.INFO", "STREAM.CREATE")...)
	return r
}

// fromStream stores the reliable messages of clients.
const fromStream = "DNP_FROM"

// publisher is a game server: it publishes states, and exchanges messages with clients.
func (c *Config) publisher() Role {
	s := c.Subjects
	r := Role{
		Name: "publisher",
		Publish: []string{
			shard(s, "publish", ">"), shard(s, "get", ">"), s.PublishAll(), s.GetAll(), // with mappings, and without
			s.To("*", "*"), s.ToAll("*"), s.Who("*"),
		},
		Subscribe:     []string{s.Event("*"), s.EventIn("*", "*"), s.FromAll(), s.CommandAll("*"), s.Auth(), inboxes},
		SubscribeDeny: []string{nodeInboxes},
		Responses:     true, // to auth and commands
	}
	if !c.NoLog {
		r.Publish = append(append(r.Publish, "$JS.ACK."+fromStream+".>"), consumers(fromStream)...)
	}
	return r
}

// observer looks at states, events and the deployment, and changes nothing. It asks for repair, as edges do, because without
// that a copy of a space cannot begin.
func (c *Config) observer() Role {
	s := c.Subjects
	return Role{
		Name:          "observer",
		Publish:       []string{shard(s, "get", ">"), s.GetAll(), shard(s, "repair"), s.Who("*"), s.Spaces(), s.Nodes(), s.Clients("*"), s.Why("*")},
		Subscribe:     []string{s.Live("*"), s.HeadAll(), s.Event("*"), s.EventIn("*", "*"), inboxes},
		SubscribeDeny: []string{nodeInboxes},
	}
}

// admin may do everything in the deployment, and save and restore streams.
func (c *Config) admin() Role {
	all := c.Subjects.All()
	return Role{Name: "admin", Publish: []string{all, "$JS.API.>", "$JS.ACK.>", "$JS.SNAPSHOT.>", inboxes}, Subscribe: []string{all, inboxes}}
}

// shard returns the pattern of a subject of every shard.
func shard(s subject.Names, tokens ...string) string {
	return strings.TrimSuffix(s.HeadAll(), "head") + strings.Join(tokens, ".")
}

// api returns the subjects of requests about one stream.
func api(stream string, verbs ...string) (all []string) {
	for _, v := range verbs {
		all = append(all, "$JS.API."+v+"."+stream)
	}
	return all
}

// consumers returns the subjects of requests that reading one stream in order takes.
func consumers(stream string) []string {
	return append(api(stream, "STREAM.INFO"), "$JS.API.CONSUMER.CREATE."+stream+".>", "$JS.API.CONSUMER.INFO."+stream+".*",
		"$JS.API.CONSUMER.MSG.NEXT."+stream+".*", "$JS.API.CONSUMER.DELETE."+stream+".*")
}

// stores returns the subjects of requests about the streams of leases and states: verbs, and
// those for reading.
func (c *Config) stores(verbs ...string) (all []string) {
	for n := range c.StoreStreams {
		name := fmt.Sprint("DNP_STORE_", n)
		all = append(all, api(name, verbs...)...)
		all = append(all, consumers(name)[1:]...)
	}
	return all
}

const header = `# What each role may do; secure.conf has the users. Generated by: go run ./deploy/nats
# To change it, change internal/natsroles and generate it again; deploy/nats/README.md has the table.
`

// Render returns the rights of each role, as a variable that users of nats-server have for their permissions. So one role may have
// several users, for which an operator writes a line each.
func Render(table []Role) string {
	var b strings.Builder
	b.WriteString(header)
	rights(&b, "\n", "", table)
	return b.String()
}

// RenderAccount returns one tenant as an entry of the block accounts of nats-server: users
// named <account>_<role>, its own streams, and the mappings of its prefix.
func RenderAccount(account string, table []Role, mappings []subject.Mapping) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: {\n  jetstream: enabled\n  mappings: {\n", account)
	for _, m := range mappings {
		fmt.Fprintf(&b, "    %q: %q\n", m.From, m.To)
	}
	b.WriteString("  }\n")
	rights(&b, "", "  ", table)
	b.WriteString("  users = [\n")
	for _, r := range table {
		user := account + "_" + r.Name
		fmt.Fprintf(&b, "    { user: %s, password: $NATS_%s_PASSWORD, permissions: $%s_rights }\n", user, strings.ToUpper(user), r.Name)
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

func rights(b *strings.Builder, between, indent string, table []Role) {
	for _, r := range table {
		fmt.Fprintf(b, "%s%s%s_rights: {\n", between, indent, r.Name)
		fmt.Fprintf(b, "%s  publish: { allow: %s%s }\n", indent, list(indent, r.Publish), deny(indent, r.PublishDeny))
		fmt.Fprintf(b, "%s  subscribe: { allow: %s%s }\n", indent, list(indent, r.Subscribe), deny(indent, r.SubscribeDeny))
		if r.Responses {
			fmt.Fprintf(b, "%s  allow_responses: { max: 1, expires: %q }\n", indent, ResponseTime)
		}
		b.WriteString(indent + "}\n")
	}
}

func deny(indent string, subjects []string) string {
	if len(subjects) == 0 {
		return ""
	}
	return ", deny: " + list(indent, subjects)
}

func list(indent string, subjects []string) string {
	var b strings.Builder
	b.WriteString("[\n")
	for _, s := range subjects {
		fmt.Fprintf(&b, "%s    %q\n", indent, s)
	}
	return b.String() + indent + "  ]"
}
