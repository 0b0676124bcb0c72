//go:build linux

// Package k8stest installs dnprelay on a Kubernetes cluster of testbed/k8s, lets 50 clients
// and a game server play, breaks things, and reports what clients noticed. It runs inside
// the network of the cluster, where testbed/k8stest/run starts it.
package k8stest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// commandTimeout bounds one call of kubectl or helm.
const commandTimeout = 5 * time.Minute

// awaitPause is the time between two questions to the cluster.
const awaitPause = 250 * time.Millisecond

// A kube calls kubectl and helm.
type kube struct {
	ctx context.Context // of the run
	cfg Config
	web rig.Web
}

// command runs a program and returns its output.
func (k *kube) command(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(k.ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(errors.String()))
	}
	return out.String(), nil
}

func (k *kube) ctl(namespace string, args ...string) (string, error) {
	return k.command("", "kubectl", append([]string{"-n", namespace}, args...)...)
}

func (k *kube) helm(namespace string, args ...string) (string, error) {
	return k.command("", k.cfg.Helm, append([]string{"-n", namespace}, args...)...)
}

// install installs or upgrades release dnprelay with values, as --set takes them.
func (k *kube) install(namespace string, wait bool, values ...string) error {
	args := []string{"upgrade", "--install", "dnprelay", k.cfg.Chart, "--timeout", "4m"}
	if wait {
		args = append(args, "--wait")
	}
	for _, v := range append([]string{k.cfg.Values}, values...) {
		if v != "" {
			args = append(args, "--set", v)
		}
	}
	_, err := k.helm(namespace, args...)
	return err
}

// namespace makes a namespace that admits restricted pods only, and returns a function that
// removes it.
func (k *kube) namespace(name string) (remove func(), err error) {
	if _, err = k.ctl("default", "create", "namespace", name); err != nil && !strings.Contains(err.Error(), "already exists") {
		return nil, err
	}
	_, err = k.ctl("default", "label", "--overwrite", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	return func() {
		if !k.cfg.Keep {
			_, _ = k.ctl("default", "delete", "namespace", name, "--wait=false") // the cluster goes down anyway
		}
	}, err
}

func (k *kube) secret(namespace, name, key string) (string, error) {
	return k.ctl(namespace, "get", "secret", name, "-o", "go-template={{index .data \""+key+"\" | base64decode}}")
}

// A pod is a pod of a deployment.
type pod struct{ name, addr, node string }

// pods returns the pods of a component that have an address.
func (k *kube) pods(namespace, selector string) (all []pod, err error) {
	text, err := k.ctl(namespace, "get", "pods", "-l", selector, "-o",
		`jsonpath={range .items[?(@.status.podIP)]}{.metadata.name} {.status.podIP} {.spec.nodeName}{"\n"}{end}`)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 {
			all = append(all, pod{f[0], f[1], f[2]})
		}
	}
	return all, err
}

// saveLogs writes what the containers of a namespace said to files.
func (k *kube) saveLogs(namespace string) error {
	names, err := k.ctl(namespace, "get", "pods", "-o", "name")
	for name := range strings.FieldsSeq(names) {
		text, _ := k.ctl(namespace, "logs", "--all-containers", name) // a container that has not started has none
		err = errors.Join(err, os.WriteFile(filepath.Join(k.cfg.Dir, path.Base(name)+".log"), []byte(text), 0o600))
	}
	return err
}

const (
	edges  = "app.kubernetes.io/component=edge"
	relays = "app.kubernetes.io/component=relay"
	nats   = "app.kubernetes.io/name=nats"
)

func (k *kube) await(most time.Duration, what string, good func() bool) error {
	return proctest.Await(k.ctx, most, what, func() bool { time.Sleep(awaitPause); return good() })
}

// dryRun lets the API server check every object of every file of values of the chart.
func (k *kube) dryRun() error {
	files, err := filepath.Glob(filepath.Join(k.cfg.Chart, "ci", "*-values.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no values in %s/ci: %v", k.cfg.Chart, err)
	}
	for _, file := range files {
		text, err := k.helm("default", "template", "dry", k.cfg.Chart, "-f", file, "--kube-version", "1.33.0",
			"--set", "metrics.serviceMonitor.enabled=false,metrics.prometheusRule.enabled=false,edge.websocket.httpRoute.enabled=false") // this cluster does not know these kinds
		if err != nil {
			return err
		}
		if _, err := k.command(text, "kubectl", "-n", "default", "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// defaults installs without values, and checks that helm test passes and that an upgrade
// keeps the generated keys.
func (k *kube) defaults() error {
	if _, err := k.namespace("play"); err != nil {
		return err
	}
	if err := k.install("play", true); err != nil {
		return err
	}
	text, err := k.helm("play", "test", "dnprelay", "--logs", "--timeout", "2m")
	if err != nil {
		return err
	}
	_, said, _ := strings.Cut(text, "POD LOGS: ")
	fmt.Print(indent(said))
	before, err := k.secret("play", "dnprelay-gossip", "keys")
	if err != nil {
		return err
	}
	if err := k.install("play", true); err != nil {
		return err
	}
	if after, err := k.secret("play", "dnprelay-gossip", "keys"); err != nil || after != before || before == "" {
		return fmt.Errorf("an upgrade changes the key of the gossip: %v", err)
	}
	return nil
}

func indent(text string) string {
	return "   " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n   ") + "\n"
}

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
	k := &kube{ctx: ctx, cfg: cfg, web: rig.NewWeb(nil, rig.WebTimeout)}
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
	for _, m := range mistakes {
		step(m.step, func() error { return k.try(m) })
	}
	return rows, errors.Join(failed...)
}

// listed reports whether a list, joined by commas, is empty or has a name.
func listed(list, name string) bool {
	return list == "" || strings.Contains(","+list+",", ","+name+",")
}

// small are the values of a deployment whose reports are checked, without players.
const small = "edge.replicas=1,relay.replicas=1,nats.replicas=1,tests.enabled=false,edge.config.sessionDurability=none,redis.enabled=false"

// says waits until every edge and relay reports a missing service: in a line of its log that
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

// A mistake is an installation with a fault that edges and relays must report.
type mistake struct {
	step, namespace string
	values          string
	before          []string // a command of kubectl before the installation
	after           [][]string
	text, missing   string // in the log, and in /readyz
}

var mistakes = []mistake{
	{
		step: "wrong-nats-url", namespace: "wrong-url", values: "nats.enabled=false,externalNats.url=nats://nowhere.example:4222",
		text: "cannot connect to NATS", missing: "nats",
	}, {
		step: "wrong-secret", namespace: "wrong-secret",
		before: []string{"create", "secret", "generic", "login", "--from-literal=username=edge", "--from-literal=password=wrong"},
		values: "nats.enabled=false,externalNats.url=nats://dnprelay-nats.play.svc:4222,externalNats.existingSecret=login,externalNats.login=password",
		text:   "uthorization", missing: "nats",
	}, {
		step: "missing-mapping", namespace: "no-mapping",
		after: [][]string{
			{"patch", "configmap", "dnprelay-nats", "--type=merge", "-p", `{"data":{"mappings.conf":"mappings = {}\n"}}`},
			{"delete", "pod", "dnprelay-nats-0"},
		},
		text: "publishes go wrong", missing: "mapping",
	},
}

// try makes a mistake, and waits until all nodes report it.
func (k *kube) try(m mistake) error {
	remove, err := k.namespace(m.namespace)
	if err != nil {
		return err
	}
	defer remove()
	if m.before != nil {
		_, err = k.ctl(m.namespace, m.before...)
	}
	if err == nil {
		err = k.install(m.namespace, m.after != nil, small, m.values) // what breaks later has to be ready first
	}
	for i := 0; i < len(m.after) && err == nil; i++ {
		_, err = k.ctl(m.namespace, m.after[i]...)
	}
	if err != nil {
		return err
	}
	return k.says(m.namespace, m.text, m.missing)
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
