//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// metricsManifest is Prometheus and its adapter, in namespace monitoring.
//
//go:embed metrics.yaml
var metricsManifest string

// monitoring starts Prometheus and its adapter, with the rules that operators are given,
// and returns what removes them: an API whose server is gone would hold up the removal
// of namespaces.
func (k *kube) monitoring() (remove func(), err error) {
	removeNamespace, err := k.namespace("monitoring")
	if err != nil {
		return nil, err
	}
	remove = func() {
		if k.cfg.keep {
			return
		}
		_, _ = k.ctl("default", "delete", "apiservice", "v1beta1.custom.metrics.k8s.io", "--ignore-not-found") // the cluster goes down anyway
		removeNamespace()
	}
	rules, err := adapterRules(k.cfg.adapter)
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

// configMap makes or replaces a ConfigMap with one file.
func (k *kube) configMap(namespace, name, key, text string) error {
	object, err := k.ctl(namespace, "create", "configmap", name, "--from-literal="+key+"="+text, "--dry-run=client", "-o", "yaml")
	if err != nil {
		return err
	}
	_, err = k.command(object, "kubectl", "apply", "-f", "-")
	return err
}

// monitored waits until Prometheus and its adapter are ready. Images that are not there
// are an error at once.
func (k *kube) monitored() error {
	missing := ""
	err := k.await(90*time.Second, "Prometheus and its adapter are ready", func() bool {
		waiting, _ := k.ctl("monitoring", "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}")
		if strings.Contains(waiting, "ErrImageNeverPull") {
			missing = "the images of Prometheus and its adapter are not in the cluster: deploy/k8s/build metrics builds them"
			return true
		}
		ready, _ := k.ctl("monitoring", "get", "deployments", "-o", "jsonpath={.items[*].status.readyReplicas}")
		return ready == "1 1"
	})
	if missing != "" {
		return fmt.Errorf("%s", missing)
	}
	return err
}
