//go:build linux

package k8stest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// steadyWithin is how long pods may take until they are ready.
const steadyWithin = 3 * time.Minute

// seesEdges waits until all pods are ready, and the balancer sees an edge on each node that has
// one.
func (f *fleet) seesEdges() error {
	p, err := f.k.steady()
	if err != nil {
		return err
	}
	return f.k.await(30*time.Second, "the balancer sees all edges", func() bool { return f.balancer.sees(p.with(edgeKind)) })
}

// placement asks for the pods that play.
func (k *kube) placement() (placement, error) {
	nodes, err := k.ctl("default", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return placement{}, err
	}
	pods, err := k.ctl("play", "get", "pods", "-l", "app.kubernetes.io/instance=dnprelay", "-o", "json")
	if err != nil {
		return placement{}, err
	}
	return parsePlacement(pods, strings.Fields(nodes))
}

// steady waits until all workloads have all their pods, and these say that they are ready, and
// returns where they are.
func (k *kube) steady() (p placement, err error) {
	var last error
	err = k.await(steadyWithin, "all pods are ready", func() bool {
		if p, last = k.placement(); last == nil {
			last = k.unready(p)
		}
		return last == nil
	})
	if err != nil {
		return p, fmt.Errorf("%w: %v: %s", err, last, p)
	}
	return p, nil
}

// unready returns an error unless all workloads have all their pods, for as long as they want
// them to be ready, and these say that they are.
func (k *kube) unready(p placement) error {
	text, err := k.ctl("play", "get", "deployments,statefulsets", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.replicas} {.status.availableReplicas}{"\n"}{end}`)
	if err != nil {
		return err
	}
	wanted, err := replicas(text)
	if err != nil {
		return err
	}
	if len(p.pods) != wanted || !p.ready() {
		return fmt.Errorf("%d pods wanted", wanted)
	}
	probes := map[string]string{edgeKind: ":8414/readyz", relayKind: ":8413/readyz", natsKind: ":8222/healthz"}
	for _, at := range p.pods {
		if probe, ok := probes[at.kind]; ok {
			port, path, _ := strings.Cut(probe, "/")
			if body, status := k.web.Get(at.addr+port, "/"+path); status != http.StatusOK {
				return fmt.Errorf("%s says %d %s", at.name, status, strings.TrimSpace(body))
			}
		}
	}
	return nil
}

// replicas adds up how many pods workloads want. The lines have their names, the pods they want
// and those that are available. The error names those that want more.
func replicas(text string) (sum int, err error) {
	for line := range strings.Lines(text) {
		f := append(strings.Fields(line), "0") // without an available pod there is no third field
		if len(f) < 3 {
			return 0, fmt.Errorf("a workload without a number of pods: %q", line)
		}
		wanted, bad := strconv.Atoi(f[1])
		available, worse := strconv.Atoi(f[2])
		if err := errors.Join(bad, worse); err != nil {
			return 0, fmt.Errorf("the number of pods of %s: %w", f[0], err)
		}
		if available < wanted {
			return 0, fmt.Errorf("%s has %d of %d pods available", f[0], available, wanted)
		}
		sum += wanted
	}
	return sum, nil
}
