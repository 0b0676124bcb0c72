package test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestRedisServers requires that edges know each Redis server, by a service that selects this server only,
// that policies admit them, and that a drain of nodes leaves one of two.
func TestRedisServers(t *testing.T) {
	const url = "redis://:$(REDIS_PASSWORD)@%s.games.svc:6379"
	for servers, names := range [][]string{1: {"r1-redis"}, 2: {"r1-redis", "r1-redis-second"}} {
		if servers == 0 {
			continue
		}
		all := mustRender(t, "--set", fmt.Sprint("redis.servers=", servers))
		var urls []string
		for _, name := range names {
			urls = append(urls, fmt.Sprintf(url, name))
			service := labels.SelectorFromSet(find[core.Service](t, all, name).Spec.Selector)
			deployment := labels.SelectorFromSet(find[apps.Deployment](t, all, name).Spec.Selector.MatchLabels)
			for _, p := range all.pods() {
				if set := labels.Set(p.meta.Labels); service.Matches(set) != (p.name == name) || deployment.Matches(set) != (p.name == name) {
					t.Errorf("with %d servers, %s and the pod of %s: the service and the Deployment have to select their own pod, and no other", servers, name, p.name)
				}
			}
			set := labels.Set(all.pod(t, name).meta.Labels)
			if !labels.SelectorFromSet(find[networking.NetworkPolicy](t, all, "r1-redis").Spec.PodSelector.MatchLabels).Matches(set) {
				t.Errorf("the policy does not select %s", name)
			}
			if !slices.ContainsFunc(find[networking.NetworkPolicy](t, all, "r1-dnprelay-edge").Spec.Egress, func(r networking.NetworkPolicyEgressRule) bool {
				return len(r.To) == 1 && r.To[0].PodSelector != nil && labels.SelectorFromSet(r.To[0].PodSelector.MatchLabels).Matches(set) && r.Ports[0].Port.IntValue() == 6379
			}) {
				t.Errorf("edges may not connect to %s", name)
			}
		}
		if got, want := variable(all.container(t, "r1-dnprelay-edge").Env, "DNP_REDIS").Value, strings.Join(urls, ","); got != want {
			t.Errorf("with %d servers, DNP_REDIS is %q, want %q", servers, got, want)
		}
		if all.has("PodDisruptionBudget", "r1-redis") != (servers == 2) || all.has("Deployment", "r1-redis-second") != (servers == 2) {
			t.Errorf("with %d servers, a budget or a second Deployment is missing, or is there for one server", servers)
		}
		if servers == 2 {
			if b := find[policy.PodDisruptionBudget](t, all, "r1-redis").Spec; b.MinAvailable.IntValue() != 1 {
				t.Errorf("the budget is %+v", b)
			}
		}
	}
}

// TestSpread requires that pods of each kind avoid nodes that have one of their kind, and yet start on a
// single node.
func TestSpread(t *testing.T) {
	all := mustRender(t)
	for _, c := range []struct {
		kind string
		pods []string
	}{
		{"edges", []string{"r1-dnprelay-edge"}}, {"relays", []string{"r1-dnprelay-relay"}}, {"NATS servers", []string{"r1-nats"}}, {"Redis servers", []string{"r1-redis", "r1-redis-second"}},
	} {
		for _, name := range c.pods {
			p := all.pod(t, name)
			for _, other := range c.pods {
				set := labels.Set(all.pod(t, other).meta.Labels)
				if !slices.ContainsFunc(p.spec.TopologySpreadConstraints, func(s core.TopologySpreadConstraint) bool {
					return s.TopologyKey == "kubernetes.io/hostname" && s.MaxSkew == 1 && s.WhenUnsatisfiable == core.ScheduleAnyway && labels.SelectorFromSet(s.LabelSelector.MatchLabels).Matches(set)
				}) {
					t.Errorf("%s: %s is not spread over nodes beside %s: %+v", c.kind, name, other, p.spec.TopologySpreadConstraints)
				}
				a := p.spec.Affinity.PodAntiAffinity
				if len(a.RequiredDuringSchedulingIgnoredDuringExecution) > 0 || !slices.ContainsFunc(a.PreferredDuringSchedulingIgnoredDuringExecution, func(w core.WeightedPodAffinityTerm) bool {
					return w.PodAffinityTerm.TopologyKey == "kubernetes.io/hostname" && labels.SelectorFromSet(w.PodAffinityTerm.LabelSelector.MatchLabels).Matches(set)
				}) {
					t.Errorf("%s: %s does not prefer nodes without %s, or needs one: %+v", c.kind, name, other, a)
				}
			}
		}
	}
	nats := find[apps.StatefulSet](t, all, "r1-nats").Spec.Template.Spec.Containers[0]
	if wait := nats.ReadinessProbe.InitialDelaySeconds; wait != 20 {
		t.Errorf("the next NATS server is replaced after %d s, want 20, in which the last one catches up", wait)
	}
	if b := find[policy.PodDisruptionBudget](t, all, "r1-nats").Spec; b.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the budget of NATS is %+v", b)
	}
}

// notes renders templates of the chart, each into a text.
func notes(t *testing.T, templates ...string) (texts []string) {
	t.Helper()
	return notesOf(t, nil, templates...)
}

// notesOf renders templates with arguments of helm.
func notesOf(t *testing.T, args []string, templates ...string) (texts []string) {
	t.Helper()
	rendered := map[string]string{}
	for i, text := range templates {
		rendered[fmt.Sprint("t", i)] = fmt.Sprintf("{{ include %s | b64enc }}", text)
	}
	objects, err := json.Marshal([]any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "r1-extra"}, "data": rendered}})
	if err != nil {
		t.Fatal(err)
	}
	data := find[core.ConfigMap](t, mustRender(t, append(args, "--set-json", "extraObjects="+string(objects))...), "r1-extra").Data
	for i := range templates {
		text, err := base64.StdEncoding.DecodeString(data[fmt.Sprint("t", i)])
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	return texts
}

// TestCrowded requires a plain warning when the loss of one node would take too much.
func TestCrowded(t *testing.T) {
	const of = `"dnprelay.crowdedOn" (dict "nats" (list %s) "redis" (list %s) "edge" (list %s))`
	texts := notes(t,
		fmt.Sprintf(of, `"a" "b" "c"`, `"a" "b"`, `"a" "b" "a"`),
		fmt.Sprintf(of, `"a"`, `"a"`, `"a"`),
		`"dnprelay.crowdedOn" dict`,
		fmt.Sprintf(of, `"a" "b" "a"`, `"c" "c"`, `"b" "b" "b"`),
	)
	for i, when := range []string{"all pods are spread", "there is one pod of each kind", "there are no pods"} {
		if texts[i] != "" {
			t.Errorf("%s: %s", when, texts[i])
		}
	}
	for _, want := range []string{"two NATS servers were on one node (a, b, a)", "both Redis servers were on one node (c)", "all edges were on one node (b)"} {
		if !strings.Contains(texts[3], want) {
			t.Errorf("%q is not said in: %s", want, texts[3])
		}
	}
}

// TestNotes requires that the notes tell which node has which pod.
func TestNotes(t *testing.T) {
	for _, want := range []string{"3 NATS servers, 2 Redis", "kubectl -n games get pods -l app.kubernetes.io/part-of=dnprelay,app.kubernetes.io/instance=r1 -o wide"} {
		if text := notes(t, `"dnprelay/templates/NOTES.txt" .`)[0]; !strings.Contains(text, want) {
			t.Errorf("the notes lack %q: %s", want, text)
		}
	}
	const warning = "WARNING: states and sessions are lost when all NATS pods are gone at once"
	for disks, want := range map[string]bool{"true": false, "false": true} {
		text := notesOf(t, []string{"--set", "nats.persistence.enabled=" + disks}, `"dnprelay/templates/NOTES.txt" .`)[0]
		if strings.Contains(text, warning) != want {
			t.Errorf("with nats.persistence.enabled=%s the notes warn: %v", disks, !want)
		}
	}
}
