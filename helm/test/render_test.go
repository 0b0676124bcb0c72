package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const chart = "../relay"

// helm runs helm, or skips the test without HELM.
func helm(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		t.Skip("HELM does not name the program; make chart-test does")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// render renders the chart as release r1 in namespace games.
func render(t *testing.T, args ...string) (objects, error) {
	t.Helper()
	text, err := helm(t, append([]string{"template", "r1", chart, "--namespace", "games", "--kube-version", "1.33.0"}, args...)...)
	if err != nil {
		return nil, err
	}
	return parse(t, text), nil
}

// mustRender fails the test when the chart does not render.
func mustRender(t *testing.T, args ...string) objects {
	t.Helper()
	all, err := render(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// An object is a rendered object, decoded into the type of its kind.
type object struct {
	kind, name string
	labels     map[string]string
	value      any
}

type objects []object

// kinds are all kinds of the chart. Monitoring objects have no type in k8s.io/api; tests
// check only their names and labels.
var kinds = map[string]func() any{
	"ConfigMap":               func() any { return new(core.ConfigMap) },
	"Deployment":              func() any { return new(apps.Deployment) },
	"HorizontalPodAutoscaler": func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"HTTPRoute":               func() any { return new(gateway.HTTPRoute) },
	"Ingress":                 func() any { return new(networking.Ingress) },
	"NetworkPolicy":           func() any { return new(networking.NetworkPolicy) },
	"Pod":                     func() any { return new(core.Pod) },
	"PodDisruptionBudget":     func() any { return new(policy.PodDisruptionBudget) },
	"PrometheusRule":          func() any { return new(map[string]any) },
	"Secret":                  func() any { return new(core.Secret) },
	"Service":                 func() any { return new(core.Service) },
	"ServiceAccount":          func() any { return new(core.ServiceAccount) },
	"ServiceMonitor":          func() any { return new(map[string]any) },
	"StatefulSet":             func() any { return new(apps.StatefulSet) },
}

var separator = regexp.MustCompile(`(?m)^---$`)

// parse decodes documents and fails on fields that their kind does not have, and on two
// objects with one name.
func parse(t *testing.T, text string) (all objects) {
	t.Helper()
	seen := map[string]bool{}
	for _, document := range separator.Split(text, -1) {
		var head struct {
			meta.TypeMeta
			meta.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if head.Kind == "" {
			continue // only comments
		}
		make, ok := kinds[head.Kind]
		if !ok {
			t.Fatalf("the test does not know the kind %s:\n%s", head.Kind, document)
		}
		value := make()
		if err := yaml.UnmarshalStrict([]byte(document), value); err != nil {
			t.Errorf("%s %s: %v", head.Kind, head.Name, err)
		}
		if id := head.Kind + "/" + head.Name; seen[id] || head.Namespace != "games" && head.Name != "r1-extra" {
			t.Errorf("%s exists twice, or is in namespace %q", id, head.Namespace)
		} else {
			seen[id] = true
		}
		if len(head.Name) > 63 {
			t.Errorf("the name %s is too long", head.Name)
		}
		all = append(all, object{head.Kind, head.Name, head.Labels, value})
	}
	return all
}

// find returns the object of type T with a name.
func find[T any](t *testing.T, all objects, name string) *T {
	t.Helper()
	for _, o := range all {
		if v, ok := o.value.(*T); ok && o.name == name {
			return v
		}
	}
	t.Fatalf("%T %s is missing", *new(T), name)
	return nil
}

// has reports whether an object exists.
func (all objects) has(kind, name string) bool {
	for _, o := range all {
		if o.kind == kind && o.name == name {
			return true
		}
	}
	return false
}

// A podOf is the template of a pod, with the name of its workload.
type podOf struct {
	name string
	meta meta.ObjectMeta
	spec core.PodSpec
}

func (all objects) pods() (pods []podOf) {
	for _, o := range all {
		switch v := o.value.(type) {
		case *apps.Deployment:
			pods = append(pods, podOf{o.name, v.Spec.Template.ObjectMeta, v.Spec.Template.Spec})
		case *apps.StatefulSet:
			pods = append(pods, podOf{o.name, v.Spec.Template.ObjectMeta, v.Spec.Template.Spec})
		case *core.Pod:
			pods = append(pods, podOf{o.name, v.ObjectMeta, v.Spec})
		}
	}
	return pods
}

// pod returns the pod of a workload.
func (all objects) pod(t *testing.T, name string) podOf {
	t.Helper()
	for _, p := range all.pods() {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("%s has no pod", name)
	return podOf{}
}

// container returns the container of a workload.
func (all objects) container(t *testing.T, name string) core.Container {
	t.Helper()
	return all.pod(t, name).spec.Containers[0]
}

// variable returns a variable of an environment; the zero value if it is not set.
func variable(env []core.EnvVar, name string) (v core.EnvVar) {
	for _, e := range env {
		if e.Name == name {
			v = e
		}
	}
	return v
}

// eachValues runs f with the objects of every file in ci.
func eachValues(t *testing.T, f func(t *testing.T, name string, all objects)) {
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		t.Run(name, func(t *testing.T) { f(t, name, mustRender(t, "-f", file)) })
	}
}

func TestLint(t *testing.T) {
	eachValues(t, func(t *testing.T, name string, _ objects) {
		if out, err := helm(t, "lint", "--strict", chart, "-f", chart+"/ci/"+name+"-values.yaml"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestManifests wants manifests that can be applied without Helm, whose labels they do not have, and without Secrets, which would be
// others each time.
func TestManifests(t *testing.T) {
	if os.Getenv("HELM") == "" {
		t.Skip("HELM does not name the program; make chart-test does")
	}
	out, err := exec.Command("../../deploy/manifests/render").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := parse(t, strings.ReplaceAll(string(out), "namespace: dnprelay\n", "namespace: games\n"))
	for _, name := range []string{"dnprelay-relay", "dnprelay-nats"} {
		find[apps.StatefulSet](t, all, name)
	}
	find[apps.Deployment](t, all, "dnprelay-edge")
	for _, o := range all {
		if o.kind == "Secret" || o.labels["helm.sh/chart"] != "" || o.labels["app.kubernetes.io/managed-by"] != "" {
			t.Errorf("%s %s is a Secret or has labels of Helm: %v", o.kind, o.name, o.labels)
		}
	}
}
