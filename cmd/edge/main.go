// Command edge terminates the UDP connections of game clients.
//
//	edge serve     an edge of a cluster
//
// It only puts parts together; internal/edge does the work.
package main

import (
	"os"

	"github.com/dnprelay/dnprelay/internal/config"
)

type commands struct {
	Serve serveCommand `cmd:"" help:"Run an edge of a cluster, to which game clients connect."`
}

const help = "Brings the network states that relays hold to game clients (DNP over UDP)."

func main() {
	os.Exit(config.Program{Name: "edge", Help: help, Commands: &commands{}}.Main(os.Args[1:]))
}
