//go:build linux

package k8stest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/rig"
)

// commandTimeout bounds one call of kubectl or helm.
const commandTimeout = 5 * time.Minute

// A kube calls kubectl and helm.
type kube struct {
	ctx context.Context // of the run
	cfg Config
	web rig.Web
}

// command runs a program and returns what it prints.
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
	text, err := k.ctl(namespace, "get", "secret", name, "-o", "jsonpath={.data."+key+"}")
	if err != nil {
		return "", err
	}
	value, err := base64.StdEncoding.DecodeString(text)
	return string(value), err
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

const (
	edges  = "app.kubernetes.io/component=edge"
	relays = "app.kubernetes.io/component=relay"
	nats   = "app.kubernetes.io/name=nats"
)

func (k *kube) await(most time.Duration, what string, good func() bool) error {
	ctx, cancel := context.WithTimeout(k.ctx, most)
	defer cancel()
	for !good() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, most)
		case <-time.After(250 * time.Millisecond):
		}
	}
	return nil
}

// dryRun lets the API server check every object of every file of values of the chart.
func (k *kube) dryRun() error {
	files, err := filepath.Glob(filepath.Join(k.cfg.Chart, "ci", "*-values.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no values in %s/ci: %v", k.cfg.Chart, err)
	}
	for _, file := range files {
		text, err := k.helm("default", "template", "dry", k.cfg.Chart, "-f", file, "--kube-version", "1.33.0",
			"--set", "metrics.serviceMonitor.enabled=false,metrics.prometheusRule.enabled=false") // this cluster does not know these
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
