//go:build linux

package k8stest

import (
	"slices"
	"testing"
)

// somePods is what `kubectl get pods -o json` prints, without most fields: an edge that is ready
// and one that goes, a relay without a node, a NATS server, two Redis servers, and a pod of a
// test.
const somePods = `{"items": [
{"metadata": {"name": "redis-b", "labels": {"app.kubernetes.io/name": "redis-second"}}, "spec": {"nodeName": "kn2"}, "status": {"podIP": "10.244.2.9", "conditions": [{"type": "Ready", "status": "True"}]}},
{"metadata": {"name": "redis-a", "labels": {"app.kubernetes.io/name": "redis", "app.kubernetes.io/component": "redis"}}, "spec": {"nodeName": "kn1"}, "status": {"podIP": "10.244.1.9", "conditions": [{"type": "Ready", "status": "True"}]}},
{"metadata": {"name": "edge-a", "labels": {"app.kubernetes.io/name": "dnprelay", "app.kubernetes.io/component": "edge"}}, "spec": {"nodeName": "kn1"}, "status": {"podIP": "10.244.1.2", "conditions": [{"type": "ContainersReady", "status": "False"}, {"type": "Ready", "status": "True"}]}},
{"metadata": {"name": "edge-b", "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"app.kubernetes.io/component": "edge"}}, "spec": {"nodeName": "kn2"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
{"metadata": {"name": "relay-0", "labels": {"app.kubernetes.io/component": "relay"}}, "spec": {}, "status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}},
{"metadata": {"name": "nats-0", "labels": {"app.kubernetes.io/name": "nats"}}, "spec": {"nodeName": "kn3"}, "status": {"podIP": "10.244.3.2", "conditions": [{"type": "Ready", "status": "True"}]}},
{"metadata": {"name": "test", "labels": {"app.kubernetes.io/component": "test"}}, "spec": {"nodeName": "kn3"}, "status": {}}
]}`

func TestParsePlacement(t *testing.T) {
	p, err := parsePlacement(somePods, []string{"kn3", "kn1", "kn2"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.String(), "kn1: edge-a, redis-a; kn2: edge-b (not ready), redis-b; kn3: nats-0; no node: relay-0 (not ready)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p.ready() || p.pods[0].addr != "10.244.1.2" || len(p.of(redisKind, "")) != 2 {
		t.Errorf("%+v", p)
	}
	if got := p.with(edgeKind); !slices.Equal(got, []string{"kn1", "kn2"}) {
		t.Errorf("edges are on %v", got)
	}
	if _, err := parsePlacement("no", nil); err == nil {
		t.Error("text that is not JSON is a placement")
	}
}
