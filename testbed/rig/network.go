//go:build linux

package rig

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds a connection to another host. Hosts share a machine, so only those
// that do not answer take this long.
const dialTimeout = 2 * time.Second

// namespaceSubnet has all hosts in namespaces. Nothing outside of them sees it.
var namespaceSubnet = netip.MustParsePrefix("10.213.0.0/24")

// firstHost is the last byte of the first host's address.
const firstHost = 11

// A Network gives hosts their addresses. With namespaces, each host is a network
// namespace with one port on a bridge, which is in a namespace of its own.
type Network struct {
	subnet netip.Prefix
	hosts  []*Host
	hub    *namespace // nil on loopback
}

// A Host is an address at which processes run and sockets are opened.
type Host struct {
	Name string // also of its port on the bridge
	Addr netip.Addr
	ns   *namespace // nil on loopback
}

// NewLoopback returns a network of addresses of 127.0.0.0/8. The subnet depends on the id
// of this process, so several networks can exist at a time.
func NewLoopback() *Network {
	pid := os.Getpid()
	return &Network{subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(100 + pid>>8&127), byte(pid), 0}), 24)}
}

// cutRules drop all frames from and to the ports in a set, which is empty at first.
const cutRules = `table bridge cut {
	set ports { type ifname; }
	chain forward { type filter hook forward priority 0; iifname @ports drop; oifname @ports drop; }
}`

// NewNamespaces makes the bridge. It needs root.
func NewNamespaces() (*Network, error) {
	for program, of := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w (Debian package %s)", err, of)
		}
	}
	w := &Network{subnet: namespaceSubnet}
	var err error
	if w.hub, err = newNamespace(); err != nil {
		return nil, err
	}
	err = w.hub.command("ip", "link", "add", "br0", "type", "bridge")
	if err == nil {
		err = w.hub.command("ip", "link", "set", "br0", "up")
	}
	if err == nil {
		err = w.hub.command("nft", cutRules)
	}
	return w, err
}

// Add makes a host.
func (w *Network) Add(name string) (*Host, error) {
	b := w.subnet.Addr().As4()
	b[3] = byte(firstHost + len(w.hosts))
	h := &Host{Name: name, Addr: netip.AddrFrom4(b)}
	w.hosts = append(w.hosts, h)
	if w.hub == nil {
		return h, nil
	}
	var err error
	if h.ns, err = newNamespace(); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		where *namespace
		args  []string
	}{
		{w.hub, []string{"link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", h.ns.file}},
		{w.hub, []string{"link", "set", name, "master", "br0", "up"}},
		{h.ns, []string{"addr", "add", fmt.Sprintf("%s/%d", h.Addr, w.subnet.Bits()), "dev", "eth0"}},
		{h.ns, []string{"link", "set", "eth0", "up"}},
		{h.ns, []string{"link", "set", "lo", "up"}},
	} {
		if err := c.where.command("ip", c.args...); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Cut separates a host in a namespace from all others, or joins it again. No process is
// told: frames disappear on the bridge.
func (w *Network) Cut(h *Host, off bool) error {
	verb := "delete"
	if off {
		verb = "add"
	}
	return w.hub.command("nft", fmt.Sprintf("%s element bridge cut ports { %q }", verb, h.Name))
}

// What Block does with the packets of connections.
const (
	Drop  = "drop"
	Reset = "reject with tcp reset"
)

// blockRules concern TCP connections to a port of other hosts. An answer with a reset comes
// from the host itself.
const blockRules = `table inet block {
	chain out { type filter hook output priority 0; tcp dport %[1]d %[2]s; }
	chain in { type filter hook input priority 0; iifname "eth0" tcp sport %[1]d drop; }
}`

// Block drops or resets the TCP connections of a host in a namespace to a port of others,
// until Unblock.
func (h *Host) Block(port uint16, how string) error {
	return h.ns.command("nft", fmt.Sprintf(blockRules, port, how))
}

// Unblock ends what Block does.
func (h *Host) Unblock() error { return h.ns.command("nft", "delete", "table", "inet", "block") }

// Close gives the namespaces up.
func (w *Network) Close() {
	if w.hub == nil {
		return
	}
	for _, h := range w.hosts {
		if h.ns != nil {
			close(h.ns.work)
		}
	}
	close(w.hub.work)
}

// At returns a port of the host as ADDRESS:PORT.
func (h *Host) At(port uint16) string { return h.AddrPort(port).String() }

// AddrPort returns a port of the host.
func (h *Host) AddrPort(port uint16) netip.AddrPort { return netip.AddrPortFrom(h.Addr, port) }

// In calls f on a thread in the namespace of the host. Sockets that f opens stay in that
// namespace. A host that is nil is on loopback.
func (h *Host) In(f func() error) error {
	if h == nil || h.ns == nil {
		return f()
	}
	return h.ns.in(f)
}

// Dial opens a connection from the host. It makes a Host a dialer of nats.go.
func (h *Host) Dial(network, addr string) (c net.Conn, err error) {
	err = h.In(func() (err error) {
		c, err = net.DialTimeout(network, addr, dialTimeout)
		return err
	})
	return c, err
}

// start calls f, which starts a process, on a thread that lives as long as the network: the
// kernel ends the process with that thread.
func (h *Host) start(f func() error) error {
	if h.ns == nil {
		return f()
	}
	return h.ns.do(f)
}

// A namespace is a network namespace without a name. A thread of this process lives in
// it; the namespace ends with the last thread, process or socket in it.
type namespace struct {
	file string      // of the namespace, for others to join it
	work chan func() // of the thread, which ends when it is closed
}

func newNamespace() (*namespace, error) {
	n, made := &namespace{work: make(chan func())}, make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		n.file = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		made <- err
		for f := range n.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		close(n.work)
		return nil, fmt.Errorf("make a network namespace (this needs root): %w", err)
	}
	return n, nil
}

// do calls f on the thread of the namespace.
func (n *namespace) do(f func() error) error {
	done := make(chan error, 1)
	n.work <- func() { done <- f() }
	return <-done
}

// in calls f on a thread of its own in the namespace, so that f may block.
func (n *namespace) in(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open(n.file)
		if err == nil {
			err = errors.Join(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET), file.Close())
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (n *namespace) command(name string, args ...string) error {
	return n.do(func() error { return Command(name, args...) })
}

// Command runs a short command; the error quotes what it printed.
func Command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
