package systest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/buildtest"
	"github.com/dnprelay/dnprelay/internal/natsroles"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsFolder has the configuration for users' own servers, which the chart uses, too.
const natsFolder = "../../helm/relay/charts/nats/files"

// roleServer starts a NATS server with a configuration and its variables. The passwords are the
// users' names behind "secret-of-".
func roleServer(t *testing.T, conf string, env []string, accounts ...string) *server.Server {
	t.Helper()
	env = append(env, "NATS_SYS_PASSWORD=secret-of-sys")
	for _, account := range append(accounts, "") {
		for _, r := range natsroles.Table(natsroles.Config{}) {
			name := strings.TrimPrefix(account+"_"+r.Name, "_")
			env = append(env, "NATS_"+strings.ToUpper(name)+"_PASSWORD=secret-of-"+name)
		}
	}
	opts := parseNATS(t, conf, env)
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog, opts.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, natstest.Dir(t)
	opts.Cluster, opts.Routes = server.ClusterOpts{}, nil
	return runServer(t, opts)
}

// secureServer starts a server with the configuration that users get.
func secureServer(t *testing.T) *server.Server {
	t.Helper()
	return roleServer(t, filepath.Join(natsFolder, "secure.conf"), natsEnv("n1", "127.0.0.1:-1", "127.0.0.1:-1", nil, t.TempDir()))
}

// as returns the URL of a user.
func as(s *server.Server, user string) string {
	return "nats://" + user + ":secret-of-" + user + "@" + strings.TrimPrefix(s.ClientURL(), "nats://")
}

func connectAs(t *testing.T, s *server.Server, user string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(as(s, user), append(options, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		t.Fatalf("user %s: %v", user, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// jetStream asks for as long as a machine may take.
func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// allowed reports whether the server permitted do: it reports a violation before it answers a
// ping.
func allowed(t *testing.T, nc *nats.Conn, do func() error) bool {
	t.Helper()
	before := nc.LastError()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	after := nc.LastError()
	if after != before && !strings.Contains(strings.ToLower(after.Error()), "permissions violation") {
		t.Fatal(after)
	}
	return after == before
}

// rights tries a subject. The result has a p if it may be published, an s if it may be
// subscribed.
func rights(t *testing.T, nc *nats.Conn, subject string) (got string) {
	t.Helper()
	if allowed(t, nc, func() error { return nc.Publish(subject, nil) }) {
		got += "p"
	}
	var sub *nats.Subscription
	if allowed(t, nc, func() (err error) { sub, err = nc.SubscribeSync(subject); return err }) {
		got += "s"
	}
	_ = sub.Unsubscribe()
	return got
}

// TestRoles tries every role on every subject of the table in deploy/nats/README.md, on a real
// server with the configuration for users, and wants exactly the rights of the table.
func TestRoles(t *testing.T) {
	t.Parallel()
	if text, err := os.ReadFile(filepath.Join(natsFolder, "roles.conf")); err != nil || string(text) != natsroles.Render(natsroles.Table(natsroles.Config{})) {
		t.Errorf("roles.conf differs from the output of go run ./deploy/nats (%v)", err)
	}
	readme, err := os.ReadFile(deploy + "nats/README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := secureServer(t)
	roles := natsroles.Table(natsroles.Config{})
	conns := make([]*nats.Conn, len(roles))
	for i, r := range roles {
		conns[i] = connectAs(t, s, r.Name)
	}
	rows := 0
	for line := range strings.SplitSeq(string(readme), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 1+len(roles) {
			continue
		}
		rows++
		subject := strings.Trim(cells[0], " `")
		for i, r := range roles {
			if got, want := rights(t, conns[i], subject), strings.TrimSpace(cells[1+i]); got != want {
				t.Errorf("%s on %s: the server allows %q, README.md says %q", r.Name, subject, got, want)
			}
		}
	}
	if rows < 40 {
		t.Errorf("README.md has %d subjects", rows)
	}
}

// TestInboxesOfNodes lets a game server and an edge listen to all inboxes that they may. The game
// server must not hear the answers to nodes, nor the edge those to relays.
func TestInboxesOfNodes(t *testing.T) {
	t.Parallel()
	s := secureServer(t)
	relay, publisher, edge := connectAs(t, s, "relay"), connectAs(t, s, "publisher"), connectAs(t, s, "edge")
	all, err := publisher.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	own, err := edge.SubscribeSync(subject.Inbox("edge") + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for _, inbox := range []string{"_INBOX.>", "_INBOX.dnp.>", "_INBOX.dnp.*", "_INBOX.*.relay.>", subject.Inbox("relay") + ".>", subject.InboxWho + ".>"} {
		if allowed(t, edge, func() error { _, err := edge.SubscribeSync(inbox); return err }) {
			t.Errorf("an edge may listen to %s, and so to answers for relays", inbox)
		}
	}
	for _, nc := range []*nats.Conn{publisher, edge} {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	_ = relay.Publish(subject.Inbox("relay")+".x", []byte("for relays"))
	_ = relay.Publish(subject.InboxWho+".x", []byte("for relays"))
	_ = relay.Publish(subject.Inbox("edge")+".x", []byte("for edges"))
	_ = relay.Publish("_INBOX.x", []byte("for others"))
	if m, err := own.NextMsg(patience); err != nil || string(m.Data) != "for edges" {
		t.Errorf("an edge got %v, %v", m, err)
	}
	if m, err := all.NextMsg(patience); err != nil || string(m.Data) != "for others" {
		t.Errorf("a game server heard %v, %v, want only the message for others", m, err)
	}
}

// TestNodesWithRoles runs a relay and an edge as the users of their roles. Nothing that they do
// may be refused, and every role must suffice for its purpose.
func TestNodesWithRoles(t *testing.T) {
	t.Parallel()
	s := secureServer(t)
	r := start(t, "relay", "serve", "--nats-url", as(s, "relay"), "--http", "", "--gossip-bind", "127.0.0.1:0", "--node", "r1")
	e := start(t, "edge", "serve", "--nats-url", as(s, "edge"), "--http", "", "--gossip-bind", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--open-space", "s", "--node", "e1")
	e.says("bus reached")
	game := connectAs(t, s, "publisher")
	var subjects subject.Names
	body := []byte(`{"op":"put","key":"k","values":[{"type":"uint8","value":7}]}`)
	accepted(t, game, subjects, body)
	looker := connectAs(t, s, "observer")
	m, err := looker.Request(subjects.Get("s", "k"), nil, patience)
	if err != nil || !strings.Contains(string(m.Data), `"value":7`) {
		t.Errorf("an observer got %v, %v", m, err)
	}
	js := jetStream(t, connectAs(t, s, "admin"))
	eventually(t, "the state is stored", func() bool {
		n := 0
		for g := range 4 {
			if st, err := js.Stream(t.Context(), fmt.Sprint("DNP_STORE_", g)); err == nil {
				if info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(">")); err == nil {
					for subject := range info.State.Subjects {
						if strings.Contains(subject, ".k.s.") {
							n++
						}
					}
				}
			}
		}
		return n == 1
	})
	dir := t.TempDir()
	dnpctl := func(role string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), buildtest.Program(t, "dnpctl"), append(args, dir+"/backup", "--nats-url", as(s, role))...).CombinedOutput()
		return fmt.Sprint(string(out), err)
	}
	eventually(t, "an observer makes a backup", func() bool { return strings.Contains(dnpctl("observer", "backup"), "s: 1 states backed up") })
	for role, want := range map[string]string{
		"publisher": "the NATS user may not ask on dnp.v1.nodes",
		"observer":  "the NATS user may not publish on dnp.v1.publish.s",
		"admin":     "s: 1 states restored",
	} {
		if got := dnpctl(role, "restore", "--replace"); !strings.Contains(got, want) {
			t.Errorf("%s restores: got %s, want %q", role, got, want)
		}
	}
	for _, p := range []*process{r, e} {
		p.term()
		p.ends(0)
		if strings.Contains(strings.ToLower(p.output.String()), "violation") {
			t.Errorf("a role lacks a right:\n%s", p.output)
		}
	}
}

// accepted publishes to space s until a relay accepts that.
func accepted(t *testing.T, game *nats.Conn, subjects subject.Names, body []byte) {
	t.Helper()
	eventually(t, "a publish is accepted", func() bool {
		m, err := game.Request(subjects.Publish("s", ""), body, time.Second)
		return err == nil && strings.Contains(string(m.Data), `"seq"`)
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// TestTenants has two deployments on one server, each with its own account and prefix. Neither
// hears anything of the other, whatever it subscribes to, and streams of the same name are
// separate.
func TestTenants(t *testing.T) {
	t.Parallel()
	var conf strings.Builder
	conf.WriteString("jetstream: {}\naccounts: {\n")
	prefix := map[string]string{"a": "a.v1", "b": "b.v1"}
	for _, account := range []string{"a", "b"} {
		subjects := subject.Names{Prefix: prefix[account]}
		conf.WriteString(natsroles.RenderAccount(account, natsroles.Table(natsroles.Config{Subjects: subjects}), subjects.Mappings(64)))
	}
	file := filepath.Join(t.TempDir(), "tenants.conf")
	if err := os.WriteFile(file, []byte(conf.String()+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := roleServer(t, file, nil, "a", "b")
	heard := map[string]*nats.Subscription{}
	for account := range prefix {
		start(t, "relay", "serve", "--nats-url", as(s, account+"_relay"), "--subject-prefix", prefix[account], "--http", "", "--gossip-bind", "127.0.0.1:0", "--node", "r-"+account)
		admin := connectAs(t, s, account+"_admin")
		sub, err := admin.SubscribeSync(prefix[account] + ".>")
		if err != nil || admin.Flush() != nil {
			t.Fatal(err)
		}
		heard[account] = sub
		if got := rights(t, admin, prefix[map[string]string{"a": "b", "b": "a"}[account]]+".live.s"); got != "" {
			t.Errorf("the admin of %s may %q in the subjects of the other", account, got)
		}
	}
	for account := range prefix {
		game, subjects := connectAs(t, s, account+"_publisher"), subject.Names{Prefix: prefix[account]}
		body := []byte(`{"op":"put","key":"` + account + `","values":[{"type":"string","value":"canary-` + account + `"}]}`)
		accepted(t, game, subjects, body)
		m, err := game.Request(subjects.Get("s", ""), nil, patience)
		if err != nil || strings.Count(string(m.Data), `"op":"put"`) != 1 || !strings.Contains(string(m.Data), "canary-"+account) {
			t.Errorf("tenant %s has %v, %v, want its own state and no other", account, m, err)
		}
	}
	for account, sub := range heard {
		other := map[string]string{"a": "b", "b": "a"}[account]
		own := 0
		for {
			m, err := sub.NextMsg(100 * time.Millisecond)
			if err != nil {
				break
			}
			if strings.Contains(string(m.Data), "canary-"+account) {
				own++
			}
			if strings.Contains(string(m.Data), "canary-"+other) || strings.HasPrefix(m.Subject, prefix[other]) {
				t.Errorf("tenant %s heard %s: %s", account, m.Subject, m.Data)
			}
		}
		if own == 0 {
			t.Errorf("the admin of %s did not hear its own messages", account)
		}
	}
}
