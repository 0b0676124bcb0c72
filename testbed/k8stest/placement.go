//go:build linux

package k8stest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Kinds of pods.
const (
	edgeKind  = "edge"
	relayKind = "relay"
	natsKind  = "nats"
	redisKind = "redis"
)

// kinds are all, those first whose moves disturb most.
var kinds = []string{redisKind, natsKind, relayKind, edgeKind}

// A placement says on which nodes pods are.
type placement struct {
	nodes []string // all, in order
	pods  []placed // in the order of their names
}

// A placed is a pod of a kind on a node.
type placed struct {
	pod
	kind  string
	ready bool // and not about to go
}

// kindOf returns the kind of a pod with these labels; empty for others. The name of a second
// Redis server is redis-second.
func kindOf(labels map[string]string) string {
	if c := labels["app.kubernetes.io/component"]; slices.Contains(kinds, c) {
		return c
	}
	switch name := labels["app.kubernetes.io/name"]; {
	case name == natsKind:
		return natsKind
	case name == redisKind || strings.HasPrefix(name, redisKind+"-"):
		return redisKind
	}
	return ""
}

// parsePlacement reads what `kubectl get pods -o json` prints.
func parsePlacement(text string, nodes []string) (placement, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				Labels            map[string]string
				DeletionTimestamp *string
			}
			Spec   struct{ NodeName string }
			Status struct {
				PodIP      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return placement{}, fmt.Errorf("pods: %w", err)
	}
	p := placement{nodes: slices.Sorted(slices.Values(nodes))}
	for _, item := range list.Items {
		kind := kindOf(item.Metadata.Labels)
		if kind == "" {
			continue
		}
		at := placed{pod: pod{item.Metadata.Name, item.Status.PodIP, item.Spec.NodeName}, kind: kind}
		for _, c := range item.Status.Conditions {
			at.ready = at.ready || c.Type == "Ready" && c.Status == "True" && item.Metadata.DeletionTimestamp == nil
		}
		p.pods = append(p.pods, at)
	}
	slices.SortFunc(p.pods, func(a, b placed) int { return cmp.Compare(a.name, b.name) })
	return p, nil
}

// ready reports whether all pods are ready and none is about to go.
func (p placement) ready() bool {
	return !slices.ContainsFunc(p.pods, func(at placed) bool { return !at.ready })
}

// of returns the pods of a kind, all or those on a node.
func (p placement) of(kind, node string) (list []placed) {
	for _, at := range p.pods {
		if at.kind == kind && (node == "" || at.node == node) {
			list = append(list, at)
		}
	}
	return list
}

// with returns the nodes that have a pod of a kind.
func (p placement) with(kind string) (nodes []string) {
	for _, n := range p.nodes {
		if len(p.of(kind, n)) > 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// String lists the pods of each node.
func (p placement) String() string {
	var list []string
	for _, n := range append(slices.Clone(p.nodes), "") {
		var names []string
		for _, at := range p.pods {
			if at.node == n {
				names = append(names, at.name)
				if !at.ready {
					names[len(names)-1] += " (not ready)"
				}
			}
		}
		if len(names) > 0 {
			list = append(list, cmp.Or(n, "no node")+": "+strings.Join(names, ", "))
		}
	}
	return strings.Join(list, "; ")
}
