//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// What the game server does, in the space that clients join without login.
const (
	space       = "demo"
	clock       = "clock" // the state in which it counts
	publishPace = 100 * time.Millisecond
	messagePace = 250 * time.Millisecond // of messages, both ways
)

// A game is the game server: it counts in a state, tells all clients a number reliably,
// and notes what clients say.
type game struct {
	nc *natsgo.Conn

	mu    sync.Mutex // of what follows
	heard map[message]int
	told  int // numbers 1 to told were sent
	count uint32
}

// A message is what a client says: number n of a player.
type message struct{ player, n int }

// newGame connects to NATS at the addresses of its pods.
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
		urls = append(urls, "nats://"+s.addr+":4222")
	}
	g := &game{heard: map[message]int{}}
	g.nc, err = natsgo.Connect(strings.Join(urls, ","), natsgo.UserInfo("publisher", password), natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(100*time.Millisecond), natsgo.PingInterval(time.Second), natsgo.MaxPingsOutstanding(2))
	if err != nil {
		return nil, fmt.Errorf("game server: %w", err)
	}
	_, err = g.nc.Subscribe("dnp.v1.from."+space+".*", g.hear)
	return g, err
}

func (g *game) hear(m *natsgo.Msg) {
	player, n, ok := strings.Cut(string(m.Data), " ")
	p, err1 := strconv.Atoi(player)
	i, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil {
		return // of helm test or somebody else
	}
	g.mu.Lock()
	g.heard[message{p, i}]++
	g.mu.Unlock()
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
			g.mu.Lock()
			g.told++
			n := g.told
			g.mu.Unlock()
			_ = g.nc.Publish("dnp.v1.toall."+space, strconv.AppendInt(nil, int64(n), 10))
		}
	}
}
