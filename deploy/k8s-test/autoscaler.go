//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"time"
)

// An autoscaler is what a HorizontalPodAutoscaler with one metric of pods says.
type autoscaler struct {
	Spec struct {
		Metrics []podsMetric
	}
	Status struct {
		CurrentReplicas, DesiredReplicas int
		CurrentMetrics                   []podsMetric
		Conditions                       []struct{ Type, Status, Message string }
	}
}

// A podsMetric is a target, or the current value.
type podsMetric struct {
	Pods struct {
		Metric          struct{ Name string }
		Target, Current struct{ AverageValue string }
	}
}

// current returns the value of the metric, or "" when it has none.
func (a autoscaler) current() string {
	if len(a.Status.CurrentMetrics) == 0 {
		return ""
	}
	return a.Status.CurrentMetrics[0].Pods.Current.AverageValue
}

// String is what kubectl get hpa says, and how many pods are wanted.
func (a autoscaler) String() string {
	target := "?"
	if len(a.Spec.Metrics) > 0 {
		target = a.Spec.Metrics[0].Pods.Metric.Name + " %s/" + a.Spec.Metrics[0].Pods.Target.AverageValue
	}
	value := a.current()
	if value == "" {
		value = "<unknown>"
	}
	return fmt.Sprintf("%s, %d edges, wants %d", fmt.Sprintf(target, value), a.Status.CurrentReplicas, a.Status.DesiredReplicas)
}

// inactive says why the autoscaler cannot scale, or "".
func (a autoscaler) inactive() string {
	for _, c := range a.Status.Conditions {
		if c.Status == "False" && (c.Type == "ScalingActive" || c.Type == "AbleToScale") {
			return c.Message
		}
	}
	return ""
}

// awaitAutoscaler waits until good, and prints whatever the autoscaler of the edges says
// on the way, with the time since start.
func (k *kube) awaitAutoscaler(most time.Duration, start time.Time, what string, good func(autoscaler) bool) error {
	var last autoscaler
	said := ""
	err := k.await(most, what, func() bool {
		text, err := k.ctl("play", "get", "hpa", "dnprelay-edge", "-o", "json")
		var a autoscaler
		if err != nil || json.Unmarshal([]byte(text), &a) != nil {
			return false
		}
		if last = a; a.String() != said {
			said = a.String()
			fmt.Printf("   %5.1f s  %s\n", time.Since(start).Seconds(), said)
		}
		return good(a)
	})
	if why := last.inactive(); err != nil && why != "" {
		return fmt.Errorf("%w; the autoscaler says: %s", err, why)
	}
	if err != nil {
		return fmt.Errorf("%w; the autoscaler says: %s", err, last)
	}
	return nil
}
