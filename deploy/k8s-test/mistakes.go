//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// small are the values of a deployment of which only what it says is looked at.
const small = "edge.replicas=1,relay.replicas=1,nats.replicas=1,tests.enabled=false,edge.config.sessionDurability=none,redis.enabled=false"

// says waits until every edge and relay says what it misses: in a line of its log that
// holds text, and in the JSON of /readyz. It wants them to go on, not to end for it.
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
			body, list := readyz(all[0].addr + ":" + c.port)
			ready = body
			return line != "" && slices.Contains(list, missing)
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
			return fmt.Errorf("%s are started again and again instead: %s times", c.selector, restarts)
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

// readyz returns what a node says, and what it misses.
func readyz(address string) (body string, missing []string) {
	body, status := get(address, "/readyz")
	var h struct{ Missing []string }
	_ = json.Unmarshal([]byte(body), &h) // what is not JSON says nothing
	return fmt.Sprint(status, " ", strings.TrimSpace(body)), h.Missing
}

// get asks the HTTP server of a node. Without an answer the status is 0 and the body says why.
func get(address, path string) (body string, status int) {
	web := http.Client{Timeout: 2 * time.Second}
	answer, err := web.Get("http://" + address + path)
	if err != nil {
		return err.Error(), 0
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error(), 0
	}
	return string(b), answer.StatusCode
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

// missingMapping takes the mappings away from a server that has them.
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
