// Command dnpctl uses dnprelay from both sides: as a game server over NATS, and as a game
// client over DNP.
//
//	dnpctl watch 127.0.0.1:3413                    show the states of a client live
//	dnpctl publish demo tower hp:float32=93.5      make a state
//	dnpctl publish demo tower hp=92                change it
//	dnpctl publish demo tower --remove             remove it
//	dnpctl eye demo c-1 player.alice               let a client see from where a state is
//	dnpctl get demo tower                          print what the relay holds
//	dnpctl set 127.0.0.1:3413 tower 0=50           write a value as a client
//	dnpctl send demo hello                         send a message to all clients of a space
//	dnpctl command 127.0.0.1:3413 lamp switch on   ask the game server to do something, as a client
//	dnpctl who demo                                list the clients of a space
//	dnpctl who demo --near tower                   list those near a state, with distance and band
//	dnpctl check demo 127.0.0.1:3413               check that a deployment works
//	dnpctl bench demo 127.0.0.1:3413               measure a deployment: latency, losses, bytes
//	dnpctl conform                                 prove a client of your own, rule by rule
//	dnpctl events demo                             print events live
//	dnpctl tap demo --verify                       show how a space is replicated, and check it
//	dnpctl spaces                                  list the spaces; nodes and clients SPACE do the same for those
//	dnpctl why demo alice tower                    say why client alice has what it has of a state
//	dnpctl top                                     show the busiest spaces, nodes, clients and states; keys open them
//	dnpctl completion bash                         print a script with which a shell completes commands
//	dnpctl console                                 serve a page that shows all of it
//	dnpctl backup DIR                              write what relays hold to files; restore DIR brings it back
//	dnpctl token keygen                            make keys
//	dnpctl token issue demo a                      print a token for client a
//	dnpctl kick demo alice                         end the sessions of a client
//	dnpctl drain edge-1                            make an edge hand its sessions over and end
//
// A file has the commands of one topic: publish.go and query.go those of a game server, watch.go, set.go and
// send.go those of a client, look.go and top.go those of people who look, tap.go the replication, backup.go copies of spaces. Begin with nats.go
// and dnpclient.go, the two ways to connect; package config checks what the tags of arguments and flags want.
//
// Exit codes: 0 done, 1 failed with one line that says why, 2 bad arguments.
package main

import (
	"os"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/completion"
	"github.com/dnprelay/dnprelay/internal/config"
)

type commands struct {
	Watch      watchCommand       `cmd:"" help:"Connect as a DNP client and show the linked states live." example:"dnpctl watch; dnpctl watch wss://edge.example:3480 --token @alice.token --json"`
	Set        setCommand         `cmd:"" help:"Connect as a DNP client and write values of a read-write state." example:"dnpctl set 127.0.0.1:3413 lamp 0=1; dnpctl set 127.0.0.1:3413 lamp on=1"`
	Publish    publishCommand     `cmd:"" help:"Make, change or remove a state, as a game server does." example:"dnpctl publish demo tower hp:float32=93.5 pos:vector3f32=1,2,3; dnpctl publish demo tower hp=92; dnpctl publish demo tower --remove"`
	Eye        eyeCommand         `cmd:"" help:"Say from where a client sees, for states with an interest." example:"dnpctl eye demo alice player.alice; dnpctl eye demo alice 10,0,3"`
	Get        getCommand         `cmd:"" help:"Print what the relay holds: a state, or all states of a space." example:"dnpctl get demo; dnpctl get demo tower"`
	Kick       kickCommand        `cmd:"" help:"End the sessions of a client, as a game server does." example:"dnpctl kick demo alice; dnpctl kick demo alice 'shouts at everybody'" rights:"It needs the NATS user game or admin."`
	Send       sendCommand        `cmd:"" help:"Send a message to the clients of a space, to one client, or to an edge as a DNP client." example:"dnpctl send demo 'hello all'; dnpctl send demo/alice 'hello Alice'; dnpctl send 127.0.0.1:3413 'hello server'"`
	Command    commandCommand     `cmd:"" help:"Connect as a DNP client, ask the game server to do something with a state, and print its answer." example:"dnpctl command 127.0.0.1:3413 lamp switch on"`
	Who        whoCommand         `cmd:"" help:"List the clients of a space, or those near a place, or that see a state." example:"dnpctl who demo; dnpctl who demo --near tower --within 50; dnpctl who demo --sees tower"`
	Events     eventsCommand      `cmd:"" help:"Print the events of a space as they happen, one JSON object per line." example:"dnpctl events demo; dnpctl events demo --for 1m"`
	Tap        tapCommand         `cmd:"" help:"Show the records by which a space is replicated, live, with keys, names and values, and check their checksums. Needs the NATS user observer or admin." example:"dnpctl tap demo --verify"`
	Console    consoleCommand     `cmd:"" help:"Serve a page that shows the world, states, clients, nodes and events of a deployment, and why a client has what it has. Needs the NATS user observer or admin." example:"dnpctl console demo --edit"`
	Check      checkCommand       `cmd:"" help:"Check that a deployment works: make a state, receive it as a client of an edge, remove it." example:"dnpctl check demo 127.0.0.1:3413"`
	Bench      benchCommand       `cmd:"" help:"Measure a deployment that runs: make states, connect clients, change the states, and print how many changes clients received, how late, and in how many bytes." example:"dnpctl bench demo 127.0.0.1:3413; dnpctl bench load wss://edge.example:3480 --clients 200 --states 100 --for 1m --tokens load.tokens --json"`
	Conform    conformCommand     `cmd:"" help:"Prove a client of your own: wait for it as an edge, go through the rules of DNP, and say which ones it keeps."`
	Spaces     spacesCommand      `cmd:"" help:"List the spaces of a deployment, and which relay holds each. Needs the NATS user observer or admin, as nodes, clients, why and top do."`
	Nodes      nodesCommand       `cmd:"" help:"List the relays and edges of a deployment."`
	Clients    clientsCommand     `cmd:"" help:"List the clients of a space with their links and the way to them." example:"dnpctl clients demo"`
	Why        whyCommand         `cmd:"" help:"Say why a client has what it has of a state: every reason, in order." example:"dnpctl why demo alice tower"`
	Top        topCommand         `cmd:"" help:"Show spaces, nodes, clients and states live, the busiest first; the key ? lists the keys. --once prints once." example:"dnpctl top; dnpctl top --once --json"`
	Backup     backupCommand      `cmd:"" help:"Write what relays hold of spaces to files: states with everything that is stored of them, at one position per space, while the deployment runs." example:"dnpctl backup /backups/monday; dnpctl backup /backups/arena arena" rights:"It needs the NATS user observer or admin."`
	Restore    restoreCommand     `cmd:"" help:"Publish what backup wrote to a deployment that runs, also to one with another number of shards. It checks all files before it changes anything." example:"dnpctl restore /backups/monday; dnpctl restore /backups/monday arena --replace" rights:"It needs the NATS user admin."`
	Token      tokenCommand       `cmd:"" help:"Make keys, and tokens with which clients log in at edges with --auth token."`
	Drain      drainCommand       `cmd:"" help:"Make an edge hand its sessions to other edges and end, by its name over NATS or by its address over HTTP." example:"dnpctl drain edge-1 --wait; dnpctl drain 127.0.0.1:8414 --wait" rights:"By name it needs the NATS user admin."`
	Completion completion.Command `cmd:"" help:"Print a script with which bash, zsh or fish completes commands and flags." example:"source <(dnpctl completion bash)"`
}

const help = "Publishes, watches and writes network states: a game server and a game client for the command line."

func main() { os.Exit(run()) }

func run() int {
	return config.Program{Name: "dnpctl", Help: help, Commands: &commands{}}.Main(os.Args[1:])
}
