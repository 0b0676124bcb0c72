//go:build linux

// Command testbed runs whole deployments of dnprelay on one machine and breaks them.
//
//	testbed cluster-test [flags]    break a cluster in network namespaces; needs root
//	testbed torture [flags]         break edges under running sessions
//	testbed torture check FILE      check and print a history
//	testbed upgrade-test [flags]    stop the last release under load, start the tree on what it stored
//	testbed k8s-test [flags]        play on a Kubernetes cluster of testbed/k8s; testbed/k8stest/run starts it
//	testbed bench [flags]           measure cases, growth, overload, disturbance and floods
//	testbed bench-interest [flags]  measure interest by distance
//	testbed otlpsink ADDRESS:PORT   receive traces and drop them
//
// Exit codes: 0 no violation, 1 a violation or a failure with one line that says why,
// 2 bad arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// commands are the scenarios by name.
var commands = map[string]func(ctx context.Context, args []string) error{
	"cluster-test": clusterTest, "torture": runTorture, "upgrade-test": upgradeTest, "k8s-test": k8sTest,
	"bench": runBench, "bench-interest": runBenchInterest, "bench-send": benchSend, "otlpsink": otlpSink,
}

// errUsage reports bad arguments that were explained already.
var errUsage = errors.New("bad arguments")

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: testbed cluster-test|torture|upgrade-test|k8s-test|bench|bench-interest|otlpsink [flags]; -help of each lists its flags")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := commands[os.Args[1]](ctx, os.Args[2:])
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		stop()
		os.Exit(1)
	}
}

// common are the flags of every scenario that starts processes.
type common struct {
	*flag.FlagSet
	bin, natsConf, dir, redis, json string
	seed                            uint64
	temporary                       bool // dir is to be removed after success
}

func newFlags(name string) *common {
	c := &common{FlagSet: flag.NewFlagSet(name, flag.ExitOnError)}
	c.StringVar(&c.bin, "bin", "bin", "folder with relay, edge and nats-server")
	c.StringVar(&c.natsConf, "nats-conf", "helm/relay/charts/nats/files/nats-server.conf", "configuration of the NATS servers")
	c.StringVar(&c.dir, "dir", "", "folder for logs, streams and the history, which is kept (default: a temporary one, kept after a failure)")
	c.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "seed of all random choices")
	c.StringVar(&c.json, "json", "", "file for all figures")
	return c
}

func (c *common) redisFlag() {
	c.StringVar(&c.redis, "redis", "redis-server", "the program redis-server")
}

// usage adds a list of cases to the help.
func (c *common) usage(title string, lines []string) {
	c.Usage = func() {
		fmt.Fprintf(c.Output(), "Usage: testbed %s\n", title)
		for _, l := range lines {
			fmt.Fprintln(c.Output(), "  "+l)
		}
		c.PrintDefaults()
	}
}

// parse reads the flags and makes the folder.
func (c *common) parse(args []string) error {
	if err := c.Parse(args); err != nil {
		return errUsage
	}
	return c.prepare()
}

// prepare looks for the programs and makes the folder.
func (c *common) prepare() (err error) {
	if c.redis != "" {
		if c.redis, err = exec.LookPath(c.redis); err != nil {
			return fmt.Errorf("%w (Debian package redis-server)", err)
		}
	}
	for _, name := range []string{"relay", "edge", "nats-server"} {
		if _, err := os.Stat(filepath.Join(c.bin, name)); err != nil {
			return fmt.Errorf("%w; `make testbed` makes it, -bin says where it is", err)
		}
	}
	c.temporary = c.dir == ""
	c.dir, err = folder(c.dir, c.Name())
	return err
}

// folder makes a folder and returns its absolute name, a temporary one if it has no name.
func folder(name, program string) (string, error) {
	if name == "" {
		return os.MkdirTemp("", program+"-")
	}
	if err := os.MkdirAll(name, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(name)
}

// finish removes a temporary folder after success.
func (c *common) finish(err error) error {
	if err == nil && c.temporary {
		return os.RemoveAll(c.dir)
	}
	return err
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
