// Command edge terminates the UDP connections of game clients.
//
//	edge serve     an edge of a cluster
//
// internal/compose has the command, and internal/edge does the work.
package main

import (
	"os"

	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/config"
)

type commands struct {
	Serve    compose.EdgeCommand `cmd:"" help:"Run an edge of a cluster, to which game clients connect."`
	DevEdge  devEdgeCommand      `cmd:"" hidden:"" help:"Run an edge of relay dev."`
	DevRedis devRedisCommand     `cmd:"" hidden:"" help:"Run the Redis of relay dev."`
}

const help = "Brings network states from relays to game clients (DNP over UDP)."

func main() {
	os.Exit(config.Program{Name: "edge", Help: help, Commands: &commands{Serve: compose.EdgeCommand{OpenAffinity: openAffinity}}}.Main(os.Args[1:]))
}
