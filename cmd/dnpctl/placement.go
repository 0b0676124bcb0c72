package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
)

type placementCommand struct {
	Release string `arg:"" help:"Value of the label app.kubernetes.io/instance of the pods: the name of the release."`

	JSON bool `name:"json" env:"-" help:"Print a JSON object: pods [{kind,node,count}], warnings [{node,kind,lost,of}]."`

	API     string `env:"-" hidden:"" default:"" help:"URL of the API of Kubernetes. Empty = that of the cluster in which this pod runs."`
	Account string `env:"-" hidden:"" default:"/var/run/secrets/kubernetes.io/serviceaccount" help:"Folder with the files token, ca.crt and namespace."`
}

const (
	placementTimeout = 20 * time.Second
	placementBytes   = 64 << 20 // of the answer; a pod takes about 10 KiB
)

// Run says on which nodes the pods of a release are, and what the loss of one node takes.
func (c *placementCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, placementTimeout)
	defer cancel()
	line := progress.Start(!c.JSON)
	line.Set(progress.Status{Text: fmt.Sprintf("of at most %v for the API of Kubernetes", placementTimeout)})
	pods, err := c.pods(ctx)
	line.End()
	if err != nil {
		return fmt.Errorf("list pods of release %s: %w", c.Release, err)
	}
	if len(pods) == 0 {
		return fmt.Errorf("release %s has no pods that run", c.Release)
	}
	p := place(pods)
	if c.JSON {
		return printObject(p)
	}
	for _, line := range p.lines() {
		fmt.Println(line)
	}
	return nil
}

// A placed pod is a pod that runs.
type placed struct{ kind, node string }

func (c *placementCommand) pods(ctx context.Context) ([]placed, error) {
	read := func(name string) (string, error) {
		b, err := os.ReadFile(filepath.Join(c.Account, name))
		return strings.TrimSpace(string(b)), err
	}
	token, err1 := read("token")
	ca, err2 := read("ca.crt")
	namespace, err3 := read("namespace")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("this command needs a pod with a service account: %w", err)
	}
	api := c.API
	if api == "" {
		api = "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("ca.crt has no certificate")
	}
	selector := url.Values{"labelSelector": {"app.kubernetes.io/part-of=dnprelay,app.kubernetes.io/instance=" + c.Release}, "fieldSelector": {"status.phase=Running"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods?"+selector.Encode(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API of Kubernetes answers %s", answer.Status)
	}
	return parsePods(io.LimitReader(answer.Body, placementBytes))
}

func parsePods(r io.Reader) (all []placed, err error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Labels            map[string]string
				DeletionTimestamp *string
			}
			Spec struct{ NodeName string }
		}
	}
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		return nil, fmt.Errorf("the answer is no list of pods: %w", err)
	}
	for _, p := range list.Items {
		kind := p.Metadata.Labels["app.kubernetes.io/component"]
		if kind == "" {
			kind = p.Metadata.Labels["app.kubernetes.io/name"]
		}
		if kind != "test" && p.Metadata.DeletionTimestamp == nil {
			all = append(all, placed{kind, p.Spec.NodeName})
		}
	}
	return all, nil
}

// A placement says which nodes have the pods of a release.
type placement struct {
	Pods     []podCount       `json:"pods"`     // by kind and node
	Warnings []placementIssue `json:"warnings"` // of each kind of which the loss of one node takes too many: the majority of the NATS servers, or all of another kind
}

type podCount struct {
	Kind  string `json:"kind"`
	Node  string `json:"node"`
	Count int    `json:"count"`
}

type placementIssue struct {
	Node string `json:"node"`
	Kind string `json:"kind"`
	Lost int    `json:"lost"`
	Of   int    `json:"of"`
}

// place counts pods.
func place(pods []placed) placement {
	kinds := map[string]map[string]int{} // pods by kind and node
	for _, p := range pods {
		if kinds[p.kind] == nil {
			kinds[p.kind] = map[string]int{}
		}
		kinds[p.kind][p.node]++
	}
	p := placement{Pods: []podCount{}, Warnings: []placementIssue{}}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all, most, where := 0, 0, ""
		for _, node := range slices.Sorted(maps.Keys(kinds[kind])) {
			n := kinds[kind][node]
			p.Pods = append(p.Pods, podCount{kind, node, n})
			if all += n; n > most {
				most, where = n, node
			}
		}
		if all > 1 && (most == all || kind == "nats" && 2*most > all) {
			p.Warnings = append(p.Warnings, placementIssue{where, kind, most, all})
		}
	}
	return p
}

// lines returns the placement for people.
func (p placement) lines() (lines []string) {
	for i, c := range p.Pods {
		cell := fmt.Sprintf("%s %d", c.Node, c.Count)
		if i > 0 && p.Pods[i-1].Kind == c.Kind {
			lines[len(lines)-1] += ", " + cell
		} else {
			lines = append(lines, c.Kind+": "+cell)
		}
	}
	for _, w := range p.Warnings {
		lines = append(lines, fmt.Sprintf("WARNING: the loss of node %s takes %d of %d pods of %s", w.Node, w.Lost, w.Of, w.Kind))
	}
	if len(p.Warnings) == 0 {
		lines = append(lines, "the loss of any one node leaves enough pods of each kind that has several")
	}
	return lines
}
