package test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestSelectors requires that every service, budget and policy selects pods, and that the
// pods of a service have its ports.
func TestSelectors(t *testing.T) {
	eachValues(t, func(t *testing.T, _ string, all objects) {
		for _, o := range all {
			var selector map[string]string
			switch v := o.value.(type) {
			case *core.Service:
				selector = v.Spec.Selector
			case *policy.PodDisruptionBudget:
				selector = v.Spec.Selector.MatchLabels
			case *networking.NetworkPolicy:
				selector = v.Spec.PodSelector.MatchLabels
			default:
				continue
			}
			if len(selector) == 0 {
				t.Errorf("%s %s selects everything", o.kind, o.name)
			}
			found := 0
			for _, p := range all.pods() {
				if labels.SelectorFromSet(selector).Matches(labels.Set(p.meta.Labels)) {
					found++
					if o.kind == "Service" {
						checkPorts(t, o.value.(*core.Service), p)
					}
				}
			}
			if found == 0 {
				t.Errorf("%s %s selects no pod: %v", o.kind, o.name, selector)
			}
		}
	})
}

// checkPorts requires that the pod has the ports of the service, with their protocol.
func checkPorts(t *testing.T, s *core.Service, p podOf) {
	t.Helper()
	for _, want := range s.Spec.Ports {
		if !slices.ContainsFunc(p.spec.Containers[0].Ports, func(have core.ContainerPort) bool {
			return have.Name == want.TargetPort.String() && have.Protocol == want.Protocol
		}) {
			t.Errorf("service %s: pod of %s has no port %s (%s)", s.Name, p.name, want.TargetPort.String(), want.Protocol)
		}
	}
}

// TestMounts requires that every mount has a volume, and that every named file is mounted.
func TestMounts(t *testing.T) {
	eachValues(t, func(t *testing.T, _ string, all objects) {
		for _, p := range all.pods() {
			for _, c := range p.spec.Containers {
				for _, m := range c.VolumeMounts {
					claimed := m.Name == "data" // of a claim
					if !claimed && !slices.ContainsFunc(p.spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
						t.Errorf("%s of %s mounts %s, which is not a volume", c.Name, p.name, m.Name)
					}
				}
				for _, arg := range append(c.Args, envValues(c)...) {
					_, file, _ := strings.Cut(arg, "/etc/dnprelay/")
					if folder, _, ok := strings.Cut(file, "/"); ok && !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/etc/dnprelay/"+folder }) {
						t.Errorf("%s of %s reads %s, where nothing is mounted", c.Name, p.name, arg)
					}
				}
			}
		}
	})
}

func envValues(c core.Container) (values []string) {
	for _, e := range c.Env {
		values = append(values, e.Value)
	}
	return values
}

// TestEnvironment requires that a variable that refers to others comes after them.
func TestEnvironment(t *testing.T) {
	eachValues(t, func(t *testing.T, _ string, all objects) {
		for _, p := range all.pods() {
			for _, c := range p.spec.Containers {
				seen := map[string]bool{}
				for _, e := range c.Env {
					for _, part := range strings.Split(e.Value, "$(")[1:] {
						if name, _, _ := strings.Cut(part, ")"); !seen[name] {
							t.Errorf("%s of %s: %s uses %s, which is not before it", c.Name, p.name, e.Name, name)
						}
					}
					seen[e.Name] = true
				}
				for _, arg := range c.Args {
					for _, part := range strings.Split(arg, "$(")[1:] {
						if name, _, _ := strings.Cut(part, ")"); !seen[name] {
							t.Errorf("%s of %s: %s uses %s, which is not set", c.Name, p.name, arg, name)
						}
					}
				}
			}
		}
	})
}

func TestPublic(t *testing.T) {
	all := mustRender(t, "-f", chart+"/ci/public-values.yaml")
	s := find[core.Service](t, all, "r1-dnprelay-edge").Spec
	if s.Type != core.ServiceTypeLoadBalancer || s.ExternalTrafficPolicy != core.ServiceExternalTrafficPolicyLocal || len(s.Ports) != 2 ||
		s.Ports[0].Protocol != core.ProtocolUDP || s.Ports[1].Port != 13414 || s.Ports[1].NodePort != 31414 || s.HealthCheckNodePort != 31000 {
		t.Errorf("the service of players is %+v", s)
	}
	edge := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec
	if edge.Replicas != nil || edge.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("a scaled edge has replicas, or ends before the next one starts: %+v", edge)
	}
	args := edge.Template.Spec.Containers[0].Args
	for _, want := range []string{
		"--listen=udp://:3413", "--listen=udp://:3414?profile=spec&probe=hello", "--auth=token", "--subject-prefix=games.one", "--shards=128",
		"--address-rate=2.5", "--offer-rate=4194304", "--flush=10ms", "--connect-rate=0",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is not among %q", want, args)
		}
	}
	h := find[autoscaling.HorizontalPodAutoscaler](t, all, "r1-dnprelay-edge").Spec
	if h.MaxReplicas != 30 || len(h.Metrics) != 2 || h.Metrics[0].Pods.Metric.Name != "dnp_edge_sessions" {
		t.Errorf("scaling is %+v", h)
	}
	conf := find[core.ConfigMap](t, all, "r1-nats").Data
	if !strings.Contains(conf["mappings.conf"], `"games.one.publish.*":   "games.one.shard.{{partition(128,1)}}.publish.{{wildcard(1)}}"`) ||
		strings.Contains(conf["roles.conf"], `"dnp.v1`) || !strings.Contains(conf["nats-server.conf"], "cluster {") {
		t.Errorf("NATS has another prefix or number of shards, or no cluster: %v", conf)
	}
	for _, want := range []string{"ServiceMonitor r1-dnprelay-metrics", "PrometheusRule r1-dnprelay-alerts"} {
		kind, name, _ := strings.Cut(want, " ")
		i := slices.IndexFunc(all, func(o object) bool { return o.kind == kind && o.name == name })
		if i < 0 || all[i].labels["release"] != "prometheus" || all[i].labels["team"] != "games" {
			t.Errorf("%s is missing, or lacks labels", want)
		}
	}
}

// TestSecondUsers requires that the servers know both users of a role, and that its nodes use the second one only if that is said.
func TestSecondUsers(t *testing.T) {
	all := mustRender(t, "--set", "nats.secondUsers.edge=used,nats.secondUsers.relay=known")
	conf := find[core.ConfigMap](t, all, "r1-nats").Data["secure.conf"]
	for _, user := range []string{"edge", "edge2"} {
		line := fmt.Sprintf("{ user: %s, password: $NATS_%s_PASSWORD, permissions: $edge_rights }", user, strings.ToUpper(user))
		if secret := find[core.Secret](t, all, "r1-nats-auth").Data[user]; strings.Count(conf, line) != 1 || len(secret) != 32 {
			t.Errorf("want once %q in this, and a password of 32 bytes, which has %d:\n%s", line, len(secret), conf)
		}
	}
	server := find[apps.StatefulSet](t, all, "r1-nats").Spec.Template.Spec.Containers[0]
	if v := variable(server.Env, "NATS_EDGE2_PASSWORD"); v.ValueFrom == nil || v.ValueFrom.SecretKeyRef.Key != "edge2" {
		t.Errorf("a server gets the password from %+v", v)
	}
	edges, relays := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec.Template, find[apps.StatefulSet](t, all, "r1-dnprelay-relay").Spec.Template
	for want, pods := range map[string]core.PodTemplateSpec{"edge2": edges, "relay": relays} {
		env := pods.Spec.Containers[0].Env
		if user, key := variable(env, "DNP_NATS_USER").Value, variable(env, "DNP_NATS_PASSWORD").ValueFrom.SecretKeyRef.Key; user != want || key != want {
			t.Errorf("a node logs in as %s with the password of %s, want %s", user, key, want)
		}
	}
}

func TestDefaults(t *testing.T) {
	all := mustRender(t)
	edge, relay := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec, find[apps.StatefulSet](t, all, "r1-dnprelay-relay").Spec
	if *edge.Template.Spec.TerminationGracePeriodSeconds != 65 || *relay.Template.Spec.TerminationGracePeriodSeconds != 20 {
		t.Errorf("grace periods are %d and %d s", *edge.Template.Spec.TerminationGracePeriodSeconds, *relay.Template.Spec.TerminationGracePeriodSeconds)
	}
	c := relay.Template.Spec.Containers[0]
	if !slices.Contains(c.Args, "--replicas=3") || !slices.Contains(envValues(c), "921MiB") {
		t.Errorf("a relay starts with %q, %q", c.Args, c.Env)
	}
	if conf := find[core.ConfigMap](t, all, "r1-nats").Data; !strings.Contains(conf["r1-nats-2.conf"], "include ./secure.conf") || conf["roles.conf"] == "" {
		t.Error("NATS has no permissions")
	}
	if claims := find[apps.StatefulSet](t, all, "r1-nats").Spec.VolumeClaimTemplates; len(claims) != 1 || claims[0].Spec.Resources.Requests.Storage().String() != "4Gi" {
		t.Errorf("NATS has the volumes %+v, want one of 4Gi for each server", claims)
	}
	gossip := find[core.Service](t, all, "r1-dnprelay-gossip").Spec
	if gossip.ClusterIP != "None" || !gossip.PublishNotReadyAddresses || len(gossip.Ports) != 2 || gossip.Ports[0].Protocol == gossip.Ports[1].Protocol {
		t.Errorf("gossip is %+v", gossip)
	}
	if key := find[core.Secret](t, all, "r1-dnprelay-gossip").Data["keys"]; len(key) != 44 {
		t.Errorf("the key of the gossip has %d characters of base64, want 44 for 32 bytes", len(key))
	}
	for _, want := range []string{"NetworkPolicy r1-dnprelay-edge", "NetworkPolicy r1-dnprelay-relay", "PodDisruptionBudget r1-dnprelay-edge", "PodDisruptionBudget r1-nats", "Pod r1-dnprelay-test"} {
		if kind, name, _ := strings.Cut(want, " "); !all.has(kind, name) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestExternal(t *testing.T) {
	all := mustRender(t, "-f", chart+"/ci/external-values.yaml")
	for _, o := range all {
		if strings.Contains(o.name, "-nats") || strings.Contains(o.name, "-redis") || o.kind == "Secret" {
			t.Errorf("%s %s is there", o.kind, o.name)
		}
	}
	all = mustRender(t, "-f", chart+"/ci/external-password-values.yaml")
	for name, want := range map[string]string{"r1-dnprelay-relay": "nats-user", "r1-dnprelay-edge": "nats-user", "r1-dnprelay-test": "nats-game"} {
		env := all.container(t, name).Env
		if got := variable(env, "DNP_NATS_URL").Value; got != "nats://nats.example.com:4222" {
			t.Errorf("%s: the URL is %q", name, got)
		}
		for variableName, key := range map[string]string{"DNP_NATS_USER": "username", "DNP_NATS_PASSWORD": "password"} {
			if r := variable(env, variableName).ValueFrom; r == nil || r.SecretKeyRef.Name != want || r.SecretKeyRef.Key != key {
				t.Errorf("%s: %s comes from %+v, want %s of %s", name, variableName, r, key, want)
			}
		}
	}
}

// TestDurable requires replicas, a port for forwarding and a longer grace period for durable
// sessions.
func TestDurable(t *testing.T) {
	edge := find[apps.Deployment](t, mustRender(t, "-f", chart+"/ci/external-values.yaml"), "r1-dnprelay-edge").Spec.Template.Spec
	c := edge.Containers[0]
	for _, want := range []string{"--session-durability=log", "--session-replicas=3", "--forward-listen=:7948", "--drain-timeout=1m30s"} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("%s is not among %q", want, c.Args)
		}
	}
	if *edge.TerminationGracePeriodSeconds != 90+5+7 {
		t.Errorf("the grace period is %d s", *edge.TerminationGracePeriodSeconds)
	}
	if !slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.ContainerPort == 7948 && p.Protocol == core.ProtocolUDP }) {
		t.Errorf("the ports are %+v", c.Ports)
	}
}

// TestNKey: each role has an NKey of its own, and policies let out to the ports of the URLs.
func TestNKey(t *testing.T) {
	all := mustRender(t, "-f", chart+"/ci/external-nkey-values.yaml")
	for name, secret := range map[string]string{"r1-dnprelay-relay": "nkey-relay", "r1-dnprelay-edge": "nkey-edge", "r1-dnprelay-test": "nkey-game"} {
		p := all.pod(t, name)
		c := p.spec.Containers[0]
		if got := variable(c.Env, "DNP_NATS_NKEY").Value; got != "/etc/dnprelay/nats/nats.nkey" {
			t.Errorf("%s: the NKey is in %q", name, got)
		}
		if variable(c.Env, "DNP_NATS_CERT").Value == "" || variable(c.Env, "SSL_CERT_FILE").Value == "" {
			t.Errorf("%s: no certificates in %+v", name, c.Env)
		}
		if !slices.ContainsFunc(p.spec.Volumes, func(v core.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret }) {
			t.Errorf("%s lacks the Secret %s: %+v", name, secret, p.spec.Volumes)
		}
		if len(p.spec.ImagePullSecrets) != 1 || !strings.HasPrefix(c.Image, "registry.example.com/") {
			t.Errorf("%s: image %s with %+v", name, c.Image, p.spec.ImagePullSecrets)
		}
	}
	var ports []int
	for _, rule := range find[networking.NetworkPolicy](t, all, "r1-dnprelay-edge").Spec.Egress {
		for _, p := range rule.Ports {
			if *p.Protocol == core.ProtocolTCP {
				ports = append(ports, p.Port.IntValue())
			}
		}
	}
	if want := []int{53, 7946, 4333, 4222, 6380, 80, 443}; !slices.Equal(ports, want) {
		t.Errorf("an edge may open TCP connections to ports %v, want %v", ports, want)
	}
	env := all.container(t, "r1-dnprelay-edge").Env
	if got := variable(env, "OTEL_RESOURCE_ATTRIBUTES").Value; !strings.HasSuffix(got, ",team=a%20%23%20b%2C%20c") {
		t.Errorf("attributes are %q", got)
	}
	if variable(env, "OTEL_METRICS_EXPORTER").Value != "otlp" || variable(env, "OTEL_LOGS_EXPORTER").Value != "otlp" {
		t.Errorf("metrics and logs are not sent: %+v", env)
	}
}

// TestLongName requires valid names for the longest name of a release: Helm allows 53
// characters, objects have 63, and a StatefulSet needs eleven of them for a hash.
func TestLongName(t *testing.T) {
	text, err := helm(t, "template", strings.Repeat("r", 53), chart, "--namespace", "games", "--kube-version", "1.33.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range parse(t, text) {
		if o.kind == "StatefulSet" && len(o.name) > 52 {
			t.Errorf("the StatefulSet %s has a name of %d characters", o.name, len(o.name))
		}
	}
}

// TestExternalIPs requires the policy Local, because the default of the API is Cluster.
func TestExternalIPs(t *testing.T) {
	s := find[core.Service](t, mustRender(t, "--set", "edge.service.externalIPs[0]=192.0.2.1,edge.auth.mode=callout"), "r1-dnprelay-edge").Spec
	if s.ExternalTrafficPolicy != core.ServiceExternalTrafficPolicyLocal {
		t.Errorf("the policy is %q", s.ExternalTrafficPolicy)
	}
}

// TestHostNetwork requires that no two edges share a node, because they need the same port,
// and that policies admit edges by the addresses of nodes.
func TestHostNetwork(t *testing.T) {
	all := mustRender(t, "-f", chart+"/ci/hostnetwork-values.yaml")
	for _, name := range []string{"r1-nats", "r1-redis", "r1-dnprelay-relay"} {
		in := find[networking.NetworkPolicy](t, all, name).Spec.Ingress
		if !slices.ContainsFunc(in, func(r networking.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(r.From, func(p networking.NetworkPolicyPeer) bool { return p.IPBlock != nil && p.IPBlock.CIDR == "10.0.0.0/16" })
		}) {
			t.Errorf("%s does not admit edges: %+v", name, in)
		}
	}
	d := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec
	if d.Strategy.RollingUpdate.MaxSurge.IntValue() != 0 || d.Template.Spec.DNSPolicy != core.DNSClusterFirstWithHostNet {
		t.Errorf("with the node's network an edge is %+v", d)
	}
}

// TestNetworkPolicy requires that only nodes reach gossip and forwarding, and that an edge
// may send first to a player whose session it took over.
func TestNetworkPolicy(t *testing.T) {
	p := find[networking.NetworkPolicy](t, mustRender(t), "r1-dnprelay-edge").Spec
	gossip := p.Ingress[0]
	if len(gossip.From) != 1 || gossip.From[0].PodSelector == nil || gossip.From[0].PodSelector.MatchLabels["dnprelay.io/gossip"] != "member" || len(gossip.Ports) != 3 {
		t.Errorf("gossip is admitted from %+v", gossip)
	}
	if players := p.Ingress[1]; len(players.From) != 0 || *players.Ports[0].Protocol != core.ProtocolUDP || players.Ports[0].Port.IntValue() != 3413 {
		t.Errorf("players are admitted by %+v", players)
	}
	if !slices.ContainsFunc(p.Egress, func(r networking.NetworkPolicyEgressRule) bool {
		return len(r.To) == 2 && r.To[0].IPBlock != nil && r.To[0].IPBlock.CIDR == "0.0.0.0/0"
	}) {
		t.Errorf("an edge may connect to %+v", p.Egress)
	}
}

// TestValuesDocumented requires that README.md names every top-level value.
func TestValuesDocumented(t *testing.T) {
	text, err := os.ReadFile(chart + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(values)) {
		if name, _, ok := strings.Cut(line, ":"); ok && name != "" && name[0] != ' ' && name[0] != '#' && !strings.Contains(string(text), "`"+name) {
			t.Errorf("README.md does not have %s", name)
		}
	}
}
