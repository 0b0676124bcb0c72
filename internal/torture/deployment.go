//go:build linux

package torture

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
)

const (
	edgeCount    = 3
	startTimeout = 60 * time.Second
	lookPause    = 20 * time.Millisecond
)

// A node is a program with an address for health.
type node struct {
	proc.Node
	http string
	dnp  netip.AddrPort // of an edge
}

// A deployment is all processes.
type deployment struct {
	cfg         *Config
	thread      *proc.Thread
	nats, edges []*node
	natsURLs    []string
	relay       *node
	redis       *node // nil without
	redisAddr   string
	web         http.Client
}

// ports returns free ports: nothing else is likely to take them before they are used.
func ports(n int) (list []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		list = append(list, l.Addr().(*net.TCPAddr).Port)
	}
	return list, nil
}

func deploy(ctx context.Context, cfg *Config) (d *deployment, err error) {
	d = &deployment{cfg: cfg, thread: proc.NewThread(), web: http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	free, err := ports(2*cfg.NATS + 4 + 3*edgeCount)
	if err != nil {
		return d, err
	}
	take := func() string { p := free[0]; free = free[1:]; return net.JoinHostPort("127.0.0.1", strconv.Itoa(p)) }
	if err := d.makeNATS(take); err != nil {
		return d, err
	}
	d.redisAddr = take()
	if cfg.Durability == "log" {
		d.redis = d.node("redis", cfg.Redis, "--bind", "127.0.0.1", "--port", d.redisAddr[strings.LastIndex(d.redisAddr, ":")+1:], "--save", "", "--dir", cfg.Dir)
	}
	if err := d.makeNodes(take); err != nil {
		return d, err
	}
	for _, n := range d.nodes() {
		if err := n.Start(); err != nil {
			return d, err
		}
	}
	for _, n := range append([]*node{d.relay}, d.edges...) {
		if err := d.ready(ctx, n); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (d *deployment) node(name, file string, args ...string) *node {
	return &node{Node: proc.Node{Name: name, File: file, Args: args, Log: proc.LogFile(d.cfg.Dir, name), On: d.thread.Do}}
}

func (d *deployment) makeNATS(take func() string) error {
	var routes []string
	listen, route := make([]string, d.cfg.NATS), make([]string, d.cfg.NATS)
	for i := range d.cfg.NATS {
		listen[i], route[i] = take(), take()
		routes = append(routes, "nats://"+route[i])
		d.natsURLs = append(d.natsURLs, "nats://"+listen[i])
	}
	conf := d.cfg.NATSConf
	if d.cfg.NATS == 1 {
		var err error
		if conf, err = d.single(); err != nil {
			return err
		}
	}
	for i := range d.cfg.NATS {
		name := fmt.Sprint("nats", i+1)
		n := d.node(name, filepath.Join(d.cfg.Bin, "nats-server"), "-c", conf)
		n.Env = []string{
			"NATS_NAME=" + name, "NATS_LISTEN=" + listen[i], "NATS_ROUTE=" + route[i],
			"NATS_ROUTES=[" + strings.Join(routes, ",") + "]", "NATS_STORE=" + filepath.Join(d.cfg.Dir, name),
		}
		d.nats = append(d.nats, n)
	}
	return nil
}

// single writes the configuration of a server without a cluster.
func (d *deployment) single() (file string, err error) {
	mappings, err := os.ReadFile(filepath.Join(filepath.Dir(d.cfg.NATSConf), "mappings.conf"))
	if err != nil {
		return "", err
	}
	file = filepath.Join(d.cfg.Dir, "nats.conf")
	const head = "server_name: $NATS_NAME\nlisten: $NATS_LISTEN\nmax_payload: 2MB\njetstream { store_dir: $NATS_STORE }\n"
	return file, os.WriteFile(file, append([]byte(head), mappings...), 0o644)
}

func (d *deployment) makeNodes(take func() string) error {
	key := make([]byte, 32)
	rand.Read(key)
	keyFile := filepath.Join(d.cfg.Dir, "gossip.key")
	if err := os.WriteFile(keyFile, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
		return err
	}
	relayGossip := take()
	common := func(name, http, gossip string) []string {
		return []string{
			"serve", "--node", name, "--nats-url", strings.Join(d.natsURLs, ","), "--http", http,
			"--gossip-bind", gossip, "--gossip-join", relayGossip, "--gossip-key-file", keyFile,
		}
	}
	replicas := strconv.Itoa(d.cfg.NATS)
	http := take()
	d.relay = d.node("relay1", filepath.Join(d.cfg.Bin, "relay"), append(common("relay1", http, relayGossip), "--replicas", replicas)...)
	d.relay.http = http
	// The port that a client talks to belongs to the name of its session, so edges differ
	// in their addresses only, as pods do.
	_, port, _ := net.SplitHostPort(take())
	for i := range edgeCount {
		name, http, dnp := fmt.Sprint("edge", i+1), take(), fmt.Sprintf("127.0.0.%d:%s", 11+i, port)
		args := append(common(name, http, take()), "--listen", "udp://"+dnp, "--workers", "1", "--open-space", space,
			"--sessions-per-address", "0", "--address-rate", "0", "--session-durability", d.cfg.Durability)
		if d.cfg.Durability == "log" {
			args = append(args, "--session-replicas", replicas, "--redis", "redis://"+d.redisAddr, "--forward-listen", take())
		}
		e := d.node(name, filepath.Join(d.cfg.Bin, "edge"), args...)
		e.http, e.dnp = http, netip.MustParseAddrPort(dnp)
		d.edges = append(d.edges, e)
	}
	return nil
}

func (d *deployment) nodes() []*node {
	list := append([]*node{}, d.nats...)
	if d.redis != nil {
		list = append(list, d.redis)
	}
	return append(append(list, d.relay), d.edges...)
}

// isReady reports what /readyz says.
func (d *deployment) isReady(n *node) bool {
	answer, err := d.web.Get("http://" + n.http + "/readyz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) // only the status counts
	return answer.StatusCode == http.StatusOK
}

func (d *deployment) ready(ctx context.Context, n *node) error {
	err := proc.Await(ctx, startTimeout, n.Name+" is ready", func() bool { return n.Ended() != nil || d.isReady(n) })
	return errors.Join(n.Ended(), err)
}

// cpu returns the CPU time of all edges.
func (d *deployment) cpu() (sum time.Duration) {
	const ticksPerSecond = 100 // USER_HZ on every Linux
	for _, e := range d.edges {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.PID()))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, f := range fields[11:13] { // utime and stime, see proc(5)
			n, _ := strconv.Atoi(f)
			sum += time.Duration(n) * time.Second / ticksPerSecond
		}
	}
	return sum
}

// tell sends a command to Redis, and does not care about the answer.
func (d *deployment) tell(words ...string) error {
	c, err := net.DialTimeout("tcp", d.redisAddr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 64))
	return err
}

// close ends everything, edges first.
func (d *deployment) close() {
	list := d.nodes()
	for i := len(list) - 1; i >= 0; i-- {
		_ = list[i].Kill() // fails only if it has ended
	}
}
