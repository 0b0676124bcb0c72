//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Who plays while edges are scaled: with 10 sessions per edge all of them need three
// edges, and those that stay need two.
const (
	sessionsPerEdge = 10
	playersStay     = 12
	playersGo       = 18
)

// autoscaling are the values of edges that are scaled, with waits of seconds where the
// chart has minutes.
const autoscaling = "edge.autoscaling.enabled=true,edge.autoscaling.minReplicas=2,edge.autoscaling.maxReplicas=4," +
	"edge.autoscaling.behavior.scaleDown.stabilizationWindowSeconds=10,edge.autoscaling.behavior.scaleDown.policies[0].type=Pods," +
	"edge.autoscaling.behavior.scaleDown.policies[0].value=1,edge.autoscaling.behavior.scaleDown.policies[0].periodSeconds=15"

// scaling turns autoscaling on under a deployment and lets players come, so that there is
// an edge more, and go, so that it is removed under those that stay. It returns what they
// saw of the removal.
func scaling(k *kube) ([]row, error) {
	remove, err := k.monitoring()
	if err != nil {
		return nil, err
	}
	defer remove()
	values := playValues(k.cfg.durability)
	if err := k.expose(values...); err != nil {
		return nil, err
	}
	if err := k.monitored(); err != nil {
		return nil, err
	}
	if err := k.await(time.Minute, "the sessions of earlier players end", func() bool {
		all, _, _ := k.sessions()
		return all == 0
	}); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := k.autoscale(values); err != nil {
		return nil, err
	}
	if err := k.awaitAutoscaler(time.Minute, start, "dnp_edge_sessions of the edges reaches the autoscaler", func(a autoscaler) bool { return a.current() != "" }); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(k.ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	f, err := newFleet(ctx, k, playersStay+playersGo, &wait)
	if err != nil {
		return nil, err
	}
	if err := k.awaitAutoscaler(time.Minute, start, "a third edge", func(a autoscaler) bool { return a.Status.CurrentReplicas == 3 }); err != nil {
		return nil, err
	}
	if err := k.rolledOut("deployment/dnprelay-edge"); err != nil {
		return nil, err
	}
	leaving := f.players[playersStay:]
	f.players = f.players[:playersStay]
	if err := f.settle(); err != nil {
		return nil, err
	}
	r, err := f.measure(scenario{"edge removed by the autoscaler", func(k *kube) error { return k.scaleDown(start, leaving) }})
	if err != nil {
		return nil, err
	}
	fmt.Println("  ", r)
	if bad := r.violations(k.cfg.durability); len(bad) > 0 {
		return []row{r}, fmt.Errorf("%s", strings.Join(bad, "; "))
	}
	return []row{r}, nil
}

// autoscale turns autoscaling on. All edges have to stay: a Deployment whose number of
// replicas is no longer given would fall back to one.
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

// scaleDown lets players go and waits until an edge that others play on has been removed.
// It is the one with most to do, because Kubernetes is told that it costs least: by
// itself it would take the newest, on which nobody may play.
func (k *kube) scaleDown(start time.Time, leaving []*player) error {
	for _, p := range leaving {
		p.leave()
	}
	victim, sessions := pod{}, 0.0
	if err := k.await(20*time.Second, "the sessions of players that left end", func() bool {
		all := 0.0
		all, victim, sessions = k.sessions()
		return all == playersStay
	}); err != nil {
		return err
	}
	if _, err := k.ctl("play", "annotate", "pod", victim.name, "controller.kubernetes.io/pod-deletion-cost=-1"); err != nil {
		return err
	}
	fmt.Printf("   %5.1f s  %d players left; %s has %.0f of %d sessions\n", time.Since(start).Seconds(), playersGo, victim.name, sessions, playersStay)
	if err := k.awaitAutoscaler(90*time.Second, start, "two edges", func(a autoscaler) bool { return a.Status.CurrentReplicas == 2 }); err != nil {
		return err
	}
	if _, err := k.ctl("play", "wait", "--for=delete", "pod/"+victim.name, "--timeout=80s"); err != nil {
		return err
	}
	fmt.Printf("   %5.1f s  %s is gone\n", time.Since(start).Seconds(), victim.name)
	return nil
}

// sessions returns how many sessions all edges have, and the edge that has most of them.
func (k *kube) sessions() (all float64, busiest pod, most float64) {
	pods, _ := k.pods("play", edges) // none, then
	for _, p := range pods {
		n := max(0, readMetric(p.addr+":8414", sessionsMetric))
		if all += n; n > most {
			busiest, most = p, n
		}
	}
	return all, busiest, most
}
