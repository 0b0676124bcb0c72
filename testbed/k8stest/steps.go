//go:build linux

package k8stest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/rig"
)

// A Config describes a run.
type Config struct {
	Helm, Chart, Cluster string // program; folder; program that cuts nodes off
	Values               string // for helm, as --set takes them: where images are
	Adapter              string // file with values for the chart of prometheus-adapter
	Durability           string // of sessions
	Players              int
	Only                 string // names of steps, joined by commas; empty = all
	Rows                 string // numbers of scenarios with players, joined by commas; empty = all
	Dir                  string // for histories; it must exist
	Keep                 bool   // leave everything installed at the end
	Settle               time.Duration
}

// Run runs the steps, and returns the rows of those with players. The error names all
// failures.
func Run(ctx context.Context, cfg Config) (rows []Row, err error) {
	k := &kube{ctx: ctx, cfg: cfg, web: rig.NewWeb(nil)}
	var failed []error
	step := func(name string, f func() error) {
		if !listed(cfg.Only, name) || ctx.Err() != nil {
			return
		}
		start := time.Now()
		err, verdict := f(), "ok"
		if err != nil {
			verdict = "FAILED"
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
		fmt.Printf("%-22s %-6s %v\n", name, verdict, time.Since(start).Round(100*time.Millisecond))
		if err != nil {
			fmt.Println("  ", err)
		}
	}
	with := func(f func(*kube) ([]Row, error)) func() error {
		return func() error {
			more, err := f(k)
			rows = append(rows, more...)
			return err
		}
	}
	step("dry-run", k.dryRun)
	step("defaults", k.defaults)
	step("players", with(playScenarios))
	step("scaling", with(scaling))
	step("recipe", k.recipe)
	step("wrong-nats-url", k.wrongURL)
	step("wrong-secret", k.wrongSecret)
	step("missing-mapping", k.missingMapping)
	return rows, errors.Join(failed...)
}

// listed reports whether a list, joined by commas, is empty or has a name.
func listed(list, name string) bool {
	return list == "" || strings.Contains(","+list+",", ","+name+",")
}

// small are the values of a deployment whose reports are checked and on which nobody plays.
const small = "edge.replicas=1,relay.replicas=1,nats.replicas=1,tests.enabled=false,edge.config.sessionDurability=none,redis.enabled=false"

// says waits until every edge and relay reports what it misses: in a line of its log that
// holds text, and in the JSON of /readyz. The pods must keep running.
func (k *kube) says(namespace, text, missing string) error {
	for _, c := range []struct{ selector, port string }{{edges, "8414"}, {relays, "8413"}} {
		var line, ready string
		err := k.await(90*time.Second, fmt.Sprintf("%s say %q and %q", c.selector, text, missing), func() bool {
			all, err := k.pods(namespace, c.selector)
			if err != nil || len(all) == 0 {
				return false
			}
			logs, _ := k.ctl(namespace, "logs", all[0].name) // a container that has not started has none
			line = lineWith(logs, text)
			h := k.web.Health(all[0].addr + ":" + c.port)
			ready = h.Text
			return line != "" && h.Lacks(missing)
		})
		fmt.Printf("   %s\n     log: %s\n     /readyz: %s\n", strings.TrimPrefix(c.selector, "app.kubernetes.io/component="), line, ready)
		if err != nil {
			return err
		}
		restarts, err := k.ctl(namespace, "get", "pods", "-l", c.selector, "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
		if err != nil {
			return err
		}
		if strings.Trim(restarts, "0 ") != "" {
			return fmt.Errorf("%s were restarted %s times, and should keep running", c.selector, restarts)
		}
	}
	return nil
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func (k *kube) wrongURL() error {
	remove, err := k.namespace("wrong-url")
	if err != nil {
		return err
	}
	defer remove()
	if err := k.install("wrong-url", false, small, "nats.enabled=false,externalNats.url=nats://nowhere.example:4222"); err != nil {
		return err
	}
	return k.says("wrong-url", "cannot connect to NATS", "nats")
}

func (k *kube) wrongSecret() error {
	remove, err := k.namespace("wrong-secret")
	if err != nil {
		return err
	}
	defer remove()
	if _, err := k.ctl("wrong-secret", "create", "secret", "generic", "login", "--from-literal=username=edge", "--from-literal=password=wrong"); err != nil {
		return err
	}
	err = k.install("wrong-secret", false, small,
		"nats.enabled=false,externalNats.url=nats://dnprelay-nats.play.svc:4222,externalNats.existingSecret=login,externalNats.login=password")
	if err != nil {
		return err
	}
	return k.says("wrong-secret", "uthorization", "nats")
}

// missingMapping removes the mappings of a NATS server.
func (k *kube) missingMapping() error {
	remove, err := k.namespace("no-mapping")
	if err != nil {
		return err
	}
	defer remove()
	if err := k.install("no-mapping", true, small); err != nil {
		return err
	}
	if _, err := k.ctl("no-mapping", "patch", "configmap", "dnprelay-nats", "--type=merge", "-p", `{"data":{"mappings.conf":"mappings = {}\n"}}`); err != nil {
		return err
	}
	if _, err := k.ctl("no-mapping", "delete", "pod", "dnprelay-nats-0"); err != nil {
		return err
	}
	return k.says("no-mapping", "publishes go wrong", "mapping")
}

// recipe runs the commands for publishing by hand of the chart's README, in namespace
// play.
func (k *kube) recipe() error {
	file := filepath.Join(k.cfg.Chart, "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		if !strings.Contains(commands, "/dnpctl publish") {
			continue
		}
		out, err := k.command("", "bash", "-euo", "pipefail", "-c", `kubectl() { command kubectl -n play "$@"; }`+"\n"+commands)
		fmt.Print(indent(out))
		return err
	}
	return fmt.Errorf("%s does not say how to publish by hand", file)
}
