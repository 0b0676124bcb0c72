// Command nats writes the permissions of a nats-server configuration: for a server of one
// deployment, or as an account for each of several.
//
//	go run ./deploy/nats > helm/relay/charts/nats/files/roles.conf
//	go run ./deploy/nats -account a -prefix a.v1 > a.conf
package main

import (
	"flag"
	"fmt"

	"github.com/dnprelay/dnprelay/internal/natsroles"
	"github.com/dnprelay/dnprelay/subject"
)

func main() {
	prefix := flag.String("prefix", subject.DefaultPrefix, "--subject-prefix of the deployment")
	account := flag.String("account", "", "write an account with this name instead")
	shards := flag.Int("shards", 64, "--shards of the deployment")
	streams := flag.Int("store-streams", 4, "--store-streams of the deployment")
	none := flag.Bool("no-log", false, "for edges with --session-durability none: take the rights to JetStream from edges and game servers")
	flag.Parse()
	subjects := subject.Names{Prefix: *prefix}
	table := natsroles.Table(natsroles.Config{Subjects: subjects, StoreStreams: *streams, NoLog: *none})
	if *account == "" {
		fmt.Print(natsroles.Render(table))
		return
	}
	fmt.Print(natsroles.RenderAccount(*account, table, subjects.Mappings(*shards)))
}
