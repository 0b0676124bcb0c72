package natsroles

import (
	"fmt"
	"strings"

	"github.com/dnprelay/dnprelay/subject"
)

const header = `# Who may do what, by role. Written by: go run ./deploy/nats
# Change internal/natsroles instead, and write it again; README.md has the table.
`

// Render returns the users of one deployment, one for each role, as a block
// authorization of nats-server. Passwords come from the environment.
func Render(table []Role) string {
	var b strings.Builder
	b.WriteString(header + "#\n")
	for _, r := range table {
		fmt.Fprintf(&b, "#   %-24s password of user %s\n", password("", r), r.Name)
	}
	b.WriteString("\nauthorization {\n  users = [\n")
	users(&b, "", table, "    ")
	b.WriteString("  ]\n}\n")
	return b.String()
}

// RenderAccount returns one tenant, as an entry of the block accounts of nats-server:
// users named <account>_<role>, streams of its own, and the mappings of its prefix.
func RenderAccount(account string, table []Role, mappings []subject.Mapping) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: {\n  jetstream: enabled\n  mappings: {\n", account)
	for _, m := range mappings {
		fmt.Fprintf(&b, "    %q: %q\n", m.From, m.To)
	}
	b.WriteString("  }\n  users = [\n")
	users(&b, account, table, "    ")
	b.WriteString("  ]\n}\n")
	return b.String()
}

func users(b *strings.Builder, account string, table []Role, indent string) {
	for _, r := range table {
		name := r.Name
		if account != "" {
			name = account + "_" + r.Name
		}
		fmt.Fprintf(b, "%s{\n%s  user: %s, password: $%s\n%s  permissions: {\n", indent, indent, name, password(account, r), indent)
		fmt.Fprintf(b, "%s    publish: { allow: %s }\n", indent, list(r.Publish, indent+"    "))
		closed := ""
		if len(r.SubscribeDeny) > 0 {
			closed = ", deny: " + list(r.SubscribeDeny, indent+"    ")
		}
		fmt.Fprintf(b, "%s    subscribe: { allow: %s%s }\n", indent, list(r.Subscribe, indent+"    "), closed)
		if r.Responses {
			fmt.Fprintf(b, "%s    allow_responses: { max: 1, expires: %q }\n", indent, ResponseTime)
		}
		fmt.Fprintf(b, "%s  }\n%s}\n", indent, indent)
	}
}

// password is the environment variable with the password of a role.
func password(account string, r Role) string {
	name := "NATS_" + strings.ToUpper(r.Name) + "_PASSWORD"
	if account != "" {
		name = "NATS_" + strings.ToUpper(account+"_"+r.Name) + "_PASSWORD"
	}
	return name
}

func list(subjects []string, indent string) string {
	var b strings.Builder
	b.WriteString("[\n")
	for _, s := range subjects {
		fmt.Fprintf(&b, "%s  %q\n", indent, s)
	}
	return b.String() + indent + "]"
}
