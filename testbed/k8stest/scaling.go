//go:build linux

package k8stest

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/play"
	"go.yaml.in/yaml/v3"
)

// Players while edges are scaled: with 10 sessions per edge, all of them need three edges,
// and those that stay need two.
const (
	sessionsPerEdge = 10
	playersStay     = 12
	playersGo       = 18
)

// autoscaling are the values for scaled edges, with windows of seconds where the chart has
// minutes.
const autoscaling = "edge.autoscaling.enabled=true,edge.autoscaling.minReplicas=2,edge.autoscaling.maxReplicas=4," +
	"edge.autoscaling.behavior.scaleDown.stabilizationWindowSeconds=10,edge.autoscaling.behavior.scaleDown.policies[0].type=Pods," +
	"edge.autoscaling.behavior.scaleDown.policies[0].value=1,edge.autoscaling.behavior.scaleDown.policies[0].periodSeconds=15"

// scaling turns autoscaling on under a deployment. Players come, which adds an edge, and
// leave, which removes one while others play on it. The row has what those saw.
func scaling(k *kube) ([]Row, error) {
	remove, err := k.monitoring()
	if err != nil {
		return nil, err
	}
	defer remove()
	values := playValues(k.cfg.Durability)
	start := time.Now()
	err = inOrder(
		func() error { return k.expose(values...) },
		k.monitored,
		func() error {
			return k.await(time.Minute, "the sessions of earlier players end", func() bool { return k.sessions().all == 0 })
		},
		func() error { start = time.Now(); return k.autoscale(values) },
		func() error {
			return k.awaitAutoscaler(time.Minute, start, "dnp_edge_sessions of the edges reaches the autoscaler", func(a autoscaler) bool { return a.value != "" })
		})
	if err != nil {
		return nil, err
	}
	f, err := newFleet(k, "scaling", playersStay+playersGo)
	if err != nil {
		return nil, err
	}
	defer f.Stop() // the check of the file finds missing records
	leaving := f.Players[playersStay:]
	f.Players = f.Players[:playersStay]
	err = inOrder(
		func() error {
			return k.awaitAutoscaler(time.Minute, start, "a third edge", func(a autoscaler) bool { return a.replicas == 3 })
		},
		func() error { return k.rolledOut("deployment/dnprelay-edge") },
		f.settle,
		func() error {
			return f.measure(scenario{"edge removed by the autoscaler", nil, func(f *fleet) error { return f.k.scaleDown(start, leaving) }})
		})
	if err != nil {
		return nil, err
	}
	return f.finish()
}

// inOrder calls functions until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// autoscale turns autoscaling on. All edges must stay: a Deployment that loses its number
// of replicas would fall back to one.
func (k *kube) autoscale(values []string) error {
	before, err := k.staying()
	if err != nil {
		return err
	}
	values = append(values, autoscaling, fmt.Sprintf("edge.autoscaling.sessions=%d", sessionsPerEdge))
	if err := k.install("play", true, values...); err != nil {
		return err
	}
	after, err := k.staying()
	if err != nil {
		return err
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			return fmt.Errorf("turning autoscaling on removed the edge %s", name)
		}
	}
	return nil
}

// staying returns the names of the edges that are not being removed.
func (k *kube) staying() ([]string, error) {
	text, err := k.ctl("play", "get", "pods", "-l", edges, "-o", "go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}")
	return strings.Fields(text), err
}

// scaleDown lets players leave and waits until an edge on which others play has been
// removed. An annotation makes Kubernetes choose the busiest edge; by itself it would
// remove the newest, which may be empty.
func (k *kube) scaleDown(start time.Time, leaving []*play.Player) error {
	for _, p := range leaving {
		p.Leave()
	}
	var victim load
	if err := k.await(20*time.Second, "the sessions of players that left end", func() bool {
		victim = k.sessions()
		return victim.all == playersStay
	}); err != nil {
		return err
	}
	if _, err := k.ctl("play", "annotate", "pod", victim.name, "controller.kubernetes.io/pod-deletion-cost=-1"); err != nil {
		return err
	}
	fmt.Printf("   %5.1f s  %d players left; %s has %.0f of %d sessions\n", time.Since(start).Seconds(), playersGo, victim.name, victim.most, playersStay)
	if err := k.awaitAutoscaler(90*time.Second, start, "two edges", func(a autoscaler) bool { return a.replicas == 2 }); err != nil {
		return err
	}
	if _, err := k.ctl("play", "wait", "--for=delete", "pod/"+victim.name, "--timeout=80s"); err != nil {
		return err
	}
	fmt.Printf("   %5.1f s  %s is gone\n", time.Since(start).Seconds(), victim.name)
	return nil
}

// sessions returns how many sessions edges have; none after an error.
func (k *kube) sessions() load {
	l, _ := k.load(edges, "8414", sessionsMetric)
	return l
}

// An autoscaler is the state of a HorizontalPodAutoscaler with one metric of pods.
type autoscaler struct {
	value             string // of the metric; empty without one
	replicas, desired int
	condition         string // whether it can scale, and why not
}

// String returns the state as a line.
func (a autoscaler) String() string {
	return fmt.Sprintf("%s %s/%d, %d edges, wants %d", sessionsMetric, cmp.Or(a.value, "<unknown>"), sessionsPerEdge, a.replicas, a.desired)
}

// autoscalerFields are the fields of an autoscaler, separated by bars.
const autoscalerFields = `{.status.currentMetrics[0].pods.current.averageValue}|{.status.currentReplicas}|{.status.desiredReplicas}|` +
	`{.status.conditions[?(@.type=="ScalingActive")].message}`

// awaitAutoscaler waits until good, and prints each change of the autoscaler of the edges,
// with the time since start.
func (k *kube) awaitAutoscaler(most time.Duration, start time.Time, what string, good func(autoscaler) bool) error {
	var last autoscaler
	err := k.await(most, what, func() bool {
		text, err := k.ctl("play", "get", "hpa", "dnprelay-edge", "-o", "jsonpath="+autoscalerFields)
		f := strings.SplitN(text, "|", 4)
		if err != nil || len(f) < 4 {
			return false
		}
		a := autoscaler{value: f[0], condition: f[3]}
		a.replicas, _ = strconv.Atoi(f[1]) // an empty field is 0
		a.desired, _ = strconv.Atoi(f[2])
		if a.String() != last.String() {
			fmt.Printf("   %5.1f s  %s\n", time.Since(start).Seconds(), a)
		}
		last = a
		return good(a)
	})
	if err != nil {
		return fmt.Errorf("%w; the autoscaler says: %s; %s", err, last, last.condition)
	}
	return nil
}

// metricsManifest is Prometheus and its adapter, in namespace monitoring.
//
//go:embed metrics.yaml
var metricsManifest string

// monitoring starts Prometheus and its adapter with the rules for operators, and returns a
// function that removes them: an API without its server would block the removal of
// namespaces.
func (k *kube) monitoring() (remove func(), err error) {
	removeNamespace, err := k.namespace("monitoring")
	if err != nil {
		return nil, err
	}
	remove = func() {
		if k.cfg.Keep {
			return
		}
		_, _ = k.ctl("default", "delete", "apiservice", "v1beta1.custom.metrics.k8s.io", "--ignore-not-found") // the cluster goes down anyway
		removeNamespace()
	}
	rules, err := adapterRules(k.cfg.Adapter)
	if err == nil {
		err = k.configMap("monitoring", "adapter", "config.yaml", rules)
	}
	if err == nil {
		_, err = k.command(metricsManifest, "kubectl", "apply", "-f", "-")
	}
	if err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

// adapterRules returns the configuration that the chart of prometheus-adapter makes of a
// file of values.
func adapterRules(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var values struct {
		Rules struct {
			Custom []map[string]any
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil || len(values.Rules.Custom) == 0 {
		return "", fmt.Errorf("%s has no rules.custom: %v", file, err)
	}
	config, err := yaml.Marshal(map[string]any{"rules": values.Rules.Custom})
	return string(config), err
}

func (k *kube) configMap(namespace, name, key, text string) error {
	object, err := k.ctl(namespace, "create", "configmap", name, "--from-literal="+key+"="+text, "--dry-run=client", "-o", "yaml")
	if err != nil {
		return err
	}
	_, err = k.command(object, "kubectl", "apply", "-f", "-")
	return err
}

// monitored waits until Prometheus and its adapter are ready. A missing image
// is an error at once.
func (k *kube) monitored() error {
	missing := ""
	err := k.await(90*time.Second, "Prometheus and its adapter are ready", func() bool {
		waiting, _ := k.ctl("monitoring", "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}")
		if strings.Contains(waiting, "ErrImageNeverPull") {
			missing = "the images of Prometheus and its adapter are not in the cluster: testbed/k8s/build metrics builds them"
			return true
		}
		ready, _ := k.ctl("monitoring", "get", "deployments", "-o", "jsonpath={.items[*].status.readyReplicas}")
		return ready == "1 1"
	})
	if missing != "" {
		return errors.New(missing)
	}
	return err
}
