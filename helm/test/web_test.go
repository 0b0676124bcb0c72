package test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// webName is the name of all objects for WebSockets.
const webName = "r1-dnprelay-edge-websocket"

// TestWeb requires listeners, ports and a way in for clients that do not speak UDP, and that nothing else changes.
func TestWeb(t *testing.T) {
	plain := find[apps.Deployment](t, mustRender(t), "r1-dnprelay-edge").Spec.Template.Spec
	for name, want := range map[string]struct {
		args    []string
		ports   []string // of the container
		volumes int      // more than without these clients
		service core.ServiceType
		served  []string // ports of the service: public port, protocol of the application
	}{
		"ingress": {
			[]string{"--websocket=:3480", "--trusted-proxies=10.244.0.0/16,fd00:10:244::/56,192.0.2.7", "--websocket-connections=4096",
				"--websocket-origins=https://game.example.com,https://test.example.com"},
			[]string{"websocket 3480 TCP"}, 0, core.ServiceTypeClusterIP, []string{"websocket 3480 TCP kubernetes.io/ws"},
		},
		"gateway": {
			[]string{"--websocket=:3481", "--trusted-proxies=10.244.0.0/16"},
			[]string{"websocket 3481 TCP"}, 0, core.ServiceTypeClusterIP, []string{"websocket 80 TCP kubernetes.io/ws"},
		},
		"balancer": {
			[]string{"--websocket=:3480", "--webtransport=:3480", "--tls-cert=/etc/dnprelay/tls/tls.crt", "--tls-key=/etc/dnprelay/tls/tls.key", "--websocket-origins=*"},
			[]string{"websocket 3480 TCP", "webtransport 3480 UDP"}, 1,
			core.ServiceTypeLoadBalancer, []string{"websocket 443 TCP kubernetes.io/wss", "webtransport 3480 UDP "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := mustRender(t, "-f", chart+"/ci/web-"+name+"-values.yaml", "--set", "edge.auth.mode=callout")
			pod := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec.Template.Spec
			c := pod.Containers[0]
			args := slices.DeleteFunc(slices.Clone(c.Args), func(arg string) bool {
				return slices.Contains(plain.Containers[0].Args, arg) || arg == "--auth=callout"
			})
			if !slices.Equal(args, want.args) {
				t.Errorf("an edge has the arguments %q besides the usual ones, want %q", args, want.args)
			}
			var ports []string
			for _, p := range c.Ports {
				if strings.HasPrefix(p.Name, "web") {
					ports = append(ports, fmt.Sprint(p.Name, " ", p.ContainerPort, " ", p.Protocol))
				}
			}
			if !slices.Equal(ports, want.ports) || len(c.Ports) != len(plain.Containers[0].Ports)+len(want.ports) {
				t.Errorf("an edge has the ports %q, want %q", ports, want.ports)
			}
			if n := len(pod.Volumes) - len(plain.Volumes); n != want.volumes {
				t.Errorf("an edge has %d volumes more, want %d: %+v", n, want.volumes, pod.Volumes)
			}
			if p := plain.Containers[0]; !reflect.DeepEqual([]*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe}, []*core.Probe{p.StartupProbe, p.LivenessProbe, p.ReadinessProbe}) {
				t.Error("the probes differ")
			}
			checkWebService(t, find[core.Service](t, all, webName), want.service, want.served)
			if s := find[core.Service](t, all, "r1-dnprelay-edge").Spec; s.Type != core.ServiceTypeClusterIP || len(s.Ports) != 1 || s.Ports[0].Protocol != core.ProtocolUDP {
				t.Errorf("the service for UDP is %+v", s)
			}
			if all.has("Ingress", webName) != (name == "ingress") || all.has("HTTPRoute", webName) != (name == "gateway") || all.has("Service", "r1-dnprelay-edge-webtransport") {
				t.Error("an Ingress, a route or a service is missing or unwanted")
			}
		})
	}
}

// checkWebService requires a service without session affinity: any edge continues a session.
func checkWebService(t *testing.T, s *core.Service, kind core.ServiceType, want []string) {
	t.Helper()
	var served []string
	for _, p := range s.Spec.Ports {
		protocol := ""
		if p.AppProtocol != nil {
			protocol = *p.AppProtocol
		}
		served = append(served, fmt.Sprint(p.Name, " ", p.Port, " ", p.Protocol, " ", protocol))
	}
	if s.Spec.Type != kind || !slices.Equal(served, want) || s.Spec.SessionAffinity != "" {
		t.Errorf("the service is %s with ports %q, want %s with %q and no affinity: %+v", s.Spec.Type, served, kind, want, s.Spec)
	}
	if local := s.Spec.ExternalTrafficPolicy == core.ServiceExternalTrafficPolicyLocal; local != (kind == core.ServiceTypeLoadBalancer) {
		t.Errorf("the policy of a service of type %s is %q", kind, s.Spec.ExternalTrafficPolicy)
	}
}

// TestWebIngress requires that all hosts lead to /dnp, with time for silent connections, and HTTPS to edges that speak TLS.
func TestWebIngress(t *testing.T) {
	const values = chart + "/ci/web-ingress-values.yaml"
	const timeout, backend = "nginx.ingress.kubernetes.io/proxy-read-timeout", "nginx.ingress.kubernetes.io/backend-protocol"
	in := find[networking.Ingress](t, mustRender(t, "-f", values), webName)
	if len(in.Spec.Rules) != 2 || in.Spec.Rules[0].Host != "play.example.com" || in.Spec.Rules[1].Host != "play.example.org" || *in.Spec.IngressClassName != "nginx" {
		t.Fatalf("the Ingress is %+v", in.Spec)
	}
	for _, r := range in.Spec.Rules {
		checkPath(t, r)
	}
	if len(in.Spec.TLS) != 1 || in.Spec.TLS[0].SecretName != "play-tls" || len(in.Spec.TLS[0].Hosts) != 2 {
		t.Errorf("TLS of the Ingress is %+v", in.Spec.TLS)
	}
	if a := in.Annotations; a[timeout] != "60" || a[strings.Replace(timeout, "read", "send", 1)] != "60" || a[backend] != "" || a["cert-manager.io/cluster-issuer"] != "letsencrypt" {
		t.Errorf("the annotations are %v", a)
	}
	secure := find[networking.Ingress](t, mustRender(t, "--set", webIngress+","+webSecure+",edge.auth.mode=callout"), webName)
	if secure.Annotations[backend] != "HTTPS" || len(secure.Spec.TLS) != 0 || len(secure.Spec.Rules) != 1 || secure.Spec.Rules[0].Host != "" {
		t.Errorf("before edges that speak TLS, the Ingress for all hosts is %v %+v", secure.Annotations, secure.Spec)
	}
	checkPath(t, secure.Spec.Rules[0])
	other := mustRender(t, "-f", values, "--set", `edge.websocket.ingress.annotations.nginx\.ingress\.kubernetes\.io/proxy-read-timeout=null`)
	if a, ok := find[networking.Ingress](t, other, webName).Annotations[timeout]; ok {
		t.Errorf("an annotation that is turned off is %q", a)
	}
}

func checkPath(t *testing.T, r networking.IngressRule) {
	t.Helper()
	if r.HTTP == nil || len(r.HTTP.Paths) != 1 {
		t.Fatalf("the rule for %q is %+v", r.Host, r)
	}
	p := r.HTTP.Paths[0]
	if p.Path != "/dnp" || *p.PathType != networking.PathTypePrefix || p.Backend.Service.Name != webName || p.Backend.Service.Port.Number != 3480 {
		t.Errorf("the rule for %q is %+v", r.Host, p)
	}
}

// TestWebRoute requires that the Gateway that is named serves /dnp.
func TestWebRoute(t *testing.T) {
	r := find[gateway.HTTPRoute](t, mustRender(t, "-f", chart+"/ci/web-gateway-values.yaml"), webName)
	if len(r.Spec.ParentRefs) != 1 || r.Spec.ParentRefs[0].Name != "public" || *r.Spec.ParentRefs[0].Namespace != "gateways" || *r.Spec.ParentRefs[0].SectionName != "https" {
		t.Errorf("the Gateway is %+v", r.Spec.ParentRefs)
	}
	if len(r.Spec.Hostnames) != 1 || r.Spec.Hostnames[0] != "play.example.com" || len(r.Spec.Rules) != 1 || r.Annotations["example.com/owner"] != "games" {
		t.Fatalf("the route is %v %+v", r.Annotations, r.Spec)
	}
	rule := r.Spec.Rules[0]
	if m := rule.Matches[0].Path; *m.Type != gateway.PathMatchPathPrefix || *m.Value != "/dnp" {
		t.Errorf("the path is %+v", m)
	}
	if b := rule.BackendRefs[0]; b.Name != webName || *b.Port != 80 {
		t.Errorf("the route leads to %+v", b)
	}
}

// TestWebTransport requires a service of its own for WebTransport, at the port of the listener, which clients are told.
func TestWebTransport(t *testing.T) {
	all := mustRender(t, "--set", webSecure+",edge.auth.mode=callout,edge.webtransport.enabled=true,edge.webtransport.port=3490,edge.webtransport.service.annotations.a=b")
	s := find[core.Service](t, all, "r1-dnprelay-edge-webtransport")
	checkWebService(t, s, core.ServiceTypeLoadBalancer, []string{"webtransport 3490 UDP "})
	if s.Annotations["a"] != "b" || len(find[core.Service](t, all, webName).Annotations) != 0 {
		t.Errorf("the annotations are %v", s.Annotations)
	}
	alone := mustRender(t, "--set", "edge.tls.secret=play-tls,edge.auth.mode=callout,edge.webtransport.enabled=true")
	if alone.has("Service", webName) {
		t.Error("there is a service for WebSockets, for which edges do not listen")
	}
	pod := alone.pod(t, "r1-dnprelay-edge").spec
	if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.Name == "tls" && v.Secret != nil && v.Secret.SecretName == "play-tls"
	}) {
		t.Errorf("the certificate is missing in %+v", pod.Volumes)
	}
}

// TestWebPolicy requires that WebSockets are admitted from where networkPolicy.websocketFrom says, and WebTransport from
// where players are.
func TestWebPolicy(t *testing.T) {
	rule := func(port int, protocol core.Protocol, args ...string) networking.NetworkPolicyIngressRule {
		t.Helper()
		in := find[networking.NetworkPolicy](t, mustRender(t, args...), "r1-dnprelay-edge").Spec.Ingress
		i := slices.IndexFunc(in, func(r networking.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(r.Ports, func(p networking.NetworkPolicyPort) bool { return p.Port.IntValue() == port && *p.Protocol == protocol })
		})
		if i < 0 {
			t.Fatalf("nothing admits %s to %d: %+v", protocol, port, in)
		}
		return in[i]
	}
	if r := rule(3481, core.ProtocolTCP, "-f", chart+"/ci/web-gateway-values.yaml"); len(r.Ports) != 1 || len(r.From) != 1 || r.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "gateways" {
		t.Errorf("WebSockets are admitted by %+v", r)
	}
	balancer := []string{"-f", chart + "/ci/web-balancer-values.yaml"}
	if r := rule(3480, core.ProtocolTCP, balancer...); len(r.From) != 0 {
		t.Errorf("WebSockets are admitted by %+v, want from everywhere", r)
	}
	if r := rule(3480, core.ProtocolUDP, append(balancer, "--set", "networkPolicy.playersFrom[0]=192.0.2.0/24")...); len(r.Ports) != 2 || r.From[0].IPBlock == nil || r.From[0].IPBlock.CIDR != "192.0.2.0/24" {
		t.Errorf("WebTransport is admitted by %+v, want as DNP over UDP", r)
	}
}

// TestWebNotes requires that the notes tell browsers' addresses, and warn of what they cannot use.
func TestWebNotes(t *testing.T) {
	const of = `"dnprelay.webNotes" .`
	values := func(name string) []string { return []string{"-f", chart + "/ci/web-" + name + "-values.yaml"} }
	for _, c := range []struct {
		args []string
		want []string
	}{
		{values("ingress"), []string{"wss://play.example.com/dnp, over the Ingress " + webName}},
		{values("gateway"), []string{"wss://play.example.com/dnp", "describe httproute " + webName}},
		{values("balancer"), []string{"wss://ADDRESS:443/dnp", "WebTransport: UDP port 3480 of the service " + webName}},
		{append(values("ingress"), "--set", "edge.websocket.tls=true,edge.tls.secret=a"), []string{"has to speak HTTPS", "ingress-nginx is told so"}},
		{append(values("gateway"), "--set", "edge.websocket.tls=true,edge.tls.secret=a"), []string{"needs a BackendTLSPolicy"}},
		{[]string{"--set", "edge.websocket.enabled=true"}, []string{"ws://" + webName + ".games.svc:3480/dnp, from inside the cluster only"}},
		{[]string{"--set", "edge.websocket.service.type=None," + webSecure}, []string{"wss://POD:3480/dnp; edge.websocket.service.type=None"}},
		{append(values("balancer"), "--set", "edge.webtransport.onWebSocketService=false,edge.webtransport.service.type=None"), []string{"WebTransport: UDP port 3480 of the pods."}},
		{[]string{"--set", "edge.websocket.enabled=true,edge.websocket.service.type=LoadBalancer,edge.auth.mode=callout"}, []string{"WARNING: WebSockets are plain text"}},
		{[]string{"--set", "edge.websocket.enabled=true,redis.enabled=false,edge.config.sessionDurability=none"}, []string{"WARNING: with edge.config.sessionDurability=none, a browser"}},
	} {
		text := notesOf(t, c.args, of)[0]
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("with %q the notes lack %q:\n%s", c.args, want, text)
			}
		}
	}
	if text := notesOf(t, nil, of)[0]; text != "" {
		t.Errorf("without these clients the notes say: %s", text)
	}
}

// TestVariant requires the listener, port, service and network policy for clients that send Variants by UDP.
func TestVariant(t *testing.T) {
	all := mustRender(t, "--set", "edge.variant.enabled=true,edge.variant.port=3416,edge.variant.servicePort=3415,edge.auth.mode=callout,networkPolicy.enabled=true")
	c := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec.Template.Spec.Containers[0]
	if !slices.Contains(c.Args, "--variant=:3416") {
		t.Errorf("an edge has the arguments %q", c.Args)
	}
	if !slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool {
		return p.Name == "variant" && p.ContainerPort == 3416 && p.Protocol == core.ProtocolUDP
	}) {
		t.Errorf("an edge has the ports %+v", c.Ports)
	}
	s := find[core.Service](t, all, "r1-dnprelay-edge-variant").Spec
	if len(s.Ports) != 1 || s.Ports[0].Port != 3415 || s.Ports[0].TargetPort.StrVal != "variant" || s.Ports[0].Protocol != core.ProtocolUDP {
		t.Errorf("the service is %+v", s)
	}
	open := false
	for _, rule := range find[networking.NetworkPolicy](t, all, "r1-dnprelay-edge").Spec.Ingress {
		for _, p := range rule.Ports {
			open = open || p.Port.IntValue() == 3416 && *p.Protocol == core.ProtocolUDP
		}
	}
	if !open {
		t.Error("the network policy does not let players in")
	}
	if mustRender(t).has("Service", "r1-dnprelay-edge-variant") {
		t.Error("there is a service without such clients")
	}
}

// TestViewers requires what viewers of Second Life need: the listener with the address that they are told, its port, service and network
// policy, and a way to the login.
func TestViewers(t *testing.T) {
	all := mustRender(t, "-f", chart+"/ci/viewers-values.yaml")
	c := find[apps.Deployment](t, all, "r1-dnprelay-edge").Spec.Template.Spec.Containers[0]
	for _, arg := range []string{"--websocket=:3480", "--lludp=:9000", "--lludp-region=The Lobby", "--lludp-public=203.0.113.7:9001"} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("an edge lacks the argument %s: %q", arg, c.Args)
		}
	}
	if !slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool {
		return p.Name == "lludp" && p.ContainerPort == 9000 && p.Protocol == core.ProtocolUDP
	}) {
		t.Errorf("an edge has the ports %+v", c.Ports)
	}
	s := find[core.Service](t, all, "r1-dnprelay-edge-lludp").Spec
	if s.Type != core.ServiceTypeLoadBalancer || len(s.Ports) != 1 || s.Ports[0].Port != 9001 || s.Ports[0].TargetPort.StrVal != "lludp" || s.Ports[0].Protocol != core.ProtocolUDP {
		t.Errorf("the service is %+v", s)
	}
	if s.ExternalTrafficPolicy != core.ServiceExternalTrafficPolicyLocal {
		t.Errorf("the policy of the service is %q: an edge has to see the address of a viewer, which must be that of its login", s.ExternalTrafficPolicy)
	}
	open := false
	for _, rule := range find[networking.NetworkPolicy](t, all, "r1-dnprelay-edge").Spec.Ingress {
		for _, p := range rule.Ports {
			open = open || p.Port.IntValue() == 9000 && *p.Protocol == core.ProtocolUDP
		}
	}
	if !open {
		t.Error("the network policy does not let viewers in")
	}
	if text := notesOf(t, []string{"-f", chart + "/ci/viewers-values.yaml"}, `"dnprelay.webNotes" .`)[0]; !strings.Contains(text, "/lludp/login") || !strings.Contains(text, "203.0.113.7:9001") {
		t.Errorf("the notes do not tell where viewers log in:\n%s", text)
	}
	plain := mustRender(t)
	if plain.has("Service", "r1-dnprelay-edge-lludp") || slices.ContainsFunc(plain.pod(t, "r1-dnprelay-edge").spec.Containers[0].Args, func(arg string) bool { return strings.HasPrefix(arg, "--lludp") }) {
		t.Error("there is a listener or a service for viewers that are not wanted")
	}
}

// TestViewersLogin requires that an Ingress and a route lead viewers to their login, and nobody where there are no viewers.
func TestViewersLogin(t *testing.T) {
	const on = "edge.replicas=1,edge.lludp.enabled=true,edge.lludp.public=203.0.113.7:9000"
	in := find[networking.Ingress](t, mustRender(t, "-f", chart+"/ci/web-ingress-values.yaml", "--set", on), webName)
	for _, r := range in.Spec.Rules {
		if p := r.HTTP.Paths; len(p) != 2 || p[0].Path != "/dnp" || p[1].Path != "/lludp" || p[1].Backend.Service.Name != webName {
			t.Errorf("the rule for %q is %+v", r.Host, p)
		}
	}
	route := find[gateway.HTTPRoute](t, mustRender(t, "-f", chart+"/ci/web-gateway-values.yaml", "--set", on), webName)
	if m := route.Spec.Rules[0].Matches; len(m) != 2 || *m[0].Path.Value != "/dnp" || *m[1].Path.Value != "/lludp" {
		t.Errorf("the route has the paths %+v", m)
	}
}
