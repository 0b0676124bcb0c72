//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What the game server does, in the space that clients join without login.
const (
	space       = "demo"
	clock       = "clock" // the state in which it counts
	publishPace = 100 * time.Millisecond
	messagePace = 250 * time.Millisecond // of messages, both ways
)

// A game is the game server: it counts in a state, tells each client a number reliably,
// and notes what clients say and what edges promise to deliver.
type game struct {
	nc    *natsgo.Conn
	inbox string

	mu       sync.Mutex // of what follows
	heard    map[message]int
	sessions map[string]bool // messages by session and number, which may come twice
	clients  map[int]string  // names that players have, of their newest session
	promised map[message]bool
	told     int // numbers 1 to told were sent
	count    uint32
}

// A message is what a client says, or is told: number n of or for a player.
type message struct{ player, n int }

// A podDialer dials pods by their names, as the DNS of the cluster would have them: the next
// pod of a name has another address.
type podDialer struct{ k *kube }

func (d podDialer) Dial(network, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ip, err := d.k.ctl("play", "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	if err != nil {
		return nil, err
	}
	return net.DialTimeout(network, net.JoinHostPort(ip, port), time.Second)
}

// newGame connects to NATS at the names of its pods.
func newGame(k *kube) (*game, error) {
	password, err := k.secret("play", "dnprelay-nats-auth", "publisher")
	if err != nil {
		return nil, err
	}
	servers, err := k.pods("play", nats)
	if err != nil {
		return nil, err
	}
	var urls []string
	for _, s := range servers {
		urls = append(urls, "nats://"+s.name+":4222")
	}
	g := &game{inbox: natsgo.NewInbox(), heard: map[message]int{}, sessions: map[string]bool{}, clients: map[int]string{}, promised: map[message]bool{}}
	g.nc, err = natsgo.Connect(strings.Join(urls, ","), natsgo.UserInfo("publisher", password), natsgo.MaxReconnects(-1),
		natsgo.SetCustomDialer(podDialer{k}), natsgo.SkipHostLookup(), natsgo.IgnoreDiscoveredServers(), natsgo.ReconnectWait(100*time.Millisecond), natsgo.PingInterval(time.Second), natsgo.MaxPingsOutstanding(2))
	if err != nil {
		return nil, fmt.Errorf("game server: %w", err)
	}
	if k.cfg.durability == "log" {
		err = g.follow()
	} else {
		_, err = g.nc.Subscribe(fromAll, func(m *natsgo.Msg) { g.hear(m.Subject, m.Data, m.Header) })
	}
	if err == nil {
		_, err = g.nc.Subscribe(g.inbox+".*.*", g.promise)
	}
	return g, err
}

// fromAll is what clients say.
const fromAll = "dnp.v1.from." + space + ".*"

// follow reads what clients say reliably from the stream that keeps it: a subscription
// would miss what comes while NATS loses a server.
func (g *game) follow() error {
	js, err := jetstream.New(g.nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	consumer, err := js.OrderedConsumer(ctx, "DNP_FROM", jetstream.OrderedConsumerConfig{FilterSubjects: []string{fromAll}, DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return fmt.Errorf("stream of what clients say: %w", err)
	}
	_, err = consumer.Consume(func(m jetstream.Msg) { g.hear(m.Subject(), m.Data(), m.Headers()) }, jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(5*time.Second))
	return err
}

func (g *game) hear(subject string, data []byte, header natsgo.Header) {
	player, n, ok := strings.Cut(string(data), " ")
	p, err1 := strconv.Atoi(player)
	i, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil {
		return // of helm test or somebody else
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients[p] = subject[strings.LastIndexByte(subject, '.')+1:]
	// With a session log a message may be published twice, and is told apart by its number.
	id := header.Get("Dnp-Session") + " " + header.Get("Dnp-Number")
	if !g.sessions[id] {
		g.heard[message{p, i}]++
	}
	g.sessions[id] = true
}

// promise notes that an edge has a message for a client, by the answer to it.
func (g *game) promise(m *natsgo.Msg) {
	var answer struct{ Number *uint64 }
	if json.Unmarshal(m.Data, &answer) != nil || answer.Number == nil {
		return // nobody there, or refused
	}
	part := strings.Split(strings.TrimPrefix(m.Subject, g.inbox+"."), ".")
	p, err1 := strconv.Atoi(part[0])
	n, err2 := strconv.Atoi(part[1])
	if err1 == nil && err2 == nil {
		g.mu.Lock()
		g.promised[message{p, n}] = true
		g.mu.Unlock()
	}
}

// isPromised reports whether an edge said that it would deliver a message.
func (g *game) isPromised(m message) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.promised[m]
}

// tell sends every client that has spoken the next number.
func (g *game) tell() {
	g.mu.Lock()
	g.told++
	n, clients := g.told, maps.Clone(g.clients)
	g.mu.Unlock()
	for player, client := range clients {
		// Without NATS there is nothing to do, and no promise either.
		_ = g.nc.PublishRequest("dnp.v1.to."+space+"."+client, fmt.Sprintf("%s.%d.%d", g.inbox, player, n), strconv.AppendInt(nil, int64(n), 10))
	}
}

// times returns how often a message was heard.
func (g *game) times(m message) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heard[m]
}

// numbers returns how many numbers were told.
func (g *game) numbers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told
}

// run plays until stop is closed. Requests are not used: what nobody accepts is said
// again with the next count.
func (g *game) run(stop <-chan struct{}) {
	publish, tell := time.NewTicker(publishPace), time.NewTicker(messagePace)
	defer publish.Stop()
	defer tell.Stop()
	for {
		select {
		case <-stop:
			g.nc.Close()
			return
		case <-publish.C:
			g.mu.Lock()
			g.count++
			n := g.count
			g.mu.Unlock()
			body, _ := json.Marshal(map[string]any{"op": "put", "key": clock, // numbers and text only
				"values": []any{map[string]any{"name": "n", "type": "uint32", "value": n}}})
			_ = g.nc.Publish("dnp.v1.publish."+space, body) // without NATS there is nothing to do
		case <-tell.C:
			g.tell()
		}
	}
}
