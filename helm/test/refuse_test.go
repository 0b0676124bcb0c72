package test

import (
	"os"
	"strings"
	"testing"
)

// Values that mistakes with clients that do not speak UDP begin with.
const (
	webIngress = "edge.websocket.enabled=true,edge.websocket.ingress.enabled=true,edge.config.trustedProxies[0]=10.0.0.0/8"
	viewers    = "edge.auth.mode=callout,edge.replicas=1,edge.websocket.enabled=true,edge.lludp.enabled=true"
	webSecure  = "edge.websocket.enabled=true,edge.websocket.tls=true,edge.tls.secret=a"
)

// TestRefused requires that mistakes end the installation with a message that names them.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		set  string
		want []string
	}{
		"typo":                     {"edge.replica=3", []string{"edge", "replica"}},
		"typo in a flag":           {"edge.config.flsh=5ms", []string{"config", "flsh"}},
		"typo at the top":          {"edges.replicas=3", []string{"edges"}},
		"typo for NATS":            {"nats.replica=3", []string{"nats", "replica"}},
		"typo for Redis":           {"redis.enabled=true,edge.config.sessionDurability=log,redis.disk=true", []string{"redis", "disk"}},
		"no Redis server":          {"redis.servers=0", []string{"redis", "servers"}},
		"three Redis servers":      {"redis.servers=3", []string{"redis", "servers"}},
		"typo in a node's label":   {"redis.nodeSelector=a", []string{"redis", "nodeSelector"}},
		"typo in a listener":       {"edge.listeners[0].name=a,edge.listeners[0].prt=1", []string{"listeners", "prt"}},
		"not a port":               {"edge.adminPort=80000", []string{"adminPort"}},
		"not a service":            {"edge.service.type=Loadbalancer", []string{"type"}},
		"not a duration":           {"edge.config.drainTimeout=1d", []string{"drainTimeout"}},
		"Cluster":                  {"edge.service.externalTrafficPolicy=Cluster", []string{"externalTrafficPolicy=Cluster is refused", "address of every player", "Use Local"}},
		"open on the Internet":     {"edge.service.type=LoadBalancer", []string{"edge.auth.mode=open is refused with edge.service.type=LoadBalancer", "allowOpenOnPublicService"}},
		"open on nodes' ports":     {"edge.service.type=NodePort", []string{"edge.auth.mode=open is refused"}},
		"open on nodes":            {"edge.hostNetwork=true,edge.service.type=None", []string{"edge.auth.mode=open is refused", "hostNetwork"}},
		"open on an address":       {"edge.service.externalIPs[0]=192.0.2.1", []string{"edge.auth.mode=open is refused"}},
		"token without keys":       {"edge.auth.mode=token", []string{"edge.auth.tokenKeysSecret"}},
		"two NATS":                 {"externalNats.url=nats://a:4222", []string{"nats.enabled=true and externalNats.url are both given"}},
		"no NATS":                  {"nats.enabled=false", []string{"nats.enabled=false needs externalNats.url"}},
		"a password in values":     {"nats.enabled=false,externalNats.url=nats://a:b@c:4222", []string{"externalNats", "url"}},
		"two servers":              {"nats.replicas=2", []string{"nats.replicas=2: want 1, 3 or 5"}},
		"a user without a role":    {"nats.secondUsers.sys=known", []string{"nats", "secondUsers"}},
		"more streams":             {"relay.config.storeStreams=8", []string{"storeStreams=8 is refused"}},
		"two Redis":                {"externalRedis.url=redis://a:6379", []string{"redis.enabled=true and externalRedis are both given"}},
		"Redis without a use":      {"edge.config.sessionDurability=none", []string{"edge.config.sessionDurability is not log"}},
		"hostNetwork and NodePort": {"edge.hostNetwork=true,edge.service.type=NodePort,edge.auth.mode=callout", []string{"edge.hostNetwork=true needs edge.service.type=None"}},
		"too short for an edge":    {"edge.terminationGracePeriodSeconds=30", []string{"edge.terminationGracePeriodSeconds=30 is too short", "need 65"}},
		"too short for a relay":    {"relay.config.drainTimeout=1m,relay.terminationGracePeriodSeconds=60", []string{"relay.terminationGracePeriodSeconds=60 is too short", "need 70"}},
		"a taken name":             {"edge.listeners[0].name=http,edge.listeners[0].port=1", []string{"name http twice, or it is one that the chart uses"}},
		"a taken port":             {"edge.listeners[0].name=a,edge.listeners[0].port=7946", []string{"taken by gossip.port"}},
		"a port twice":             {"edge.listeners[0].name=a,edge.listeners[0].port=1,edge.listeners[1].name=b,edge.listeners[1].port=1", []string{"taken by the listener a"}},
		"scaled without a metric":  {"edge.autoscaling.enabled=true,edge.autoscaling.sessions=null", []string{"edge.autoscaling.sessions or edge.autoscaling.cpu"}},
		"minimum above maximum":    {"edge.autoscaling.enabled=true,edge.autoscaling.minReplicas=12", []string{"minReplicas=12 is above edge.autoscaling.maxReplicas=10"}},
		"unknown nodes":            {"edge.hostNetwork=true,edge.service.type=None,edge.auth.mode=callout", []string{"needs global.nodeNetworks"}},
		"unknown sampler":          {"otel.sampler=nonsense", []string{"sampler"}},
		"a password of Redis":      {"redis.enabled=false,externalRedis.url=redis://:a@b:6379", []string{"externalRedis", "url"}},
		"a number for a tag":       {"image.tag=20240101", []string{"image", "tag"}},
		"a listener twice":         {"edge.listeners[0].name=a,edge.listeners[0].port=1,edge.listeners[1].name=a,edge.listeners[1].port=2", []string{"name a twice"}},
		"open by an Ingress":       {webIngress, []string{"edge.auth.mode=open is refused with edge.websocket.ingress.enabled=true"}},
		"open by WebTransport":     {webSecure + ",edge.webtransport.enabled=true", []string{"edge.auth.mode=open is refused with edge.webtransport.service.type=LoadBalancer"}},
		"Cluster for WebSocket":    {"edge.websocket.enabled=true,edge.websocket.service.externalTrafficPolicy=Cluster", []string{"edge.websocket.service.externalTrafficPolicy=Cluster is refused"}},
		"a balancer of nodes":      {"edge.hostNetwork=true,edge.service.type=None,edge.auth.mode=callout,edge.websocket.enabled=true,edge.websocket.service.type=LoadBalancer", []string{"edge.hostNetwork=true needs edge.websocket.service.type=None"}},
		"an Ingress to nothing":    {"edge.auth.mode=callout,edge.websocket.ingress.enabled=true", []string{"edge.websocket.ingress.enabled=true needs edge.websocket.enabled=true"}},
		"an Ingress to no service": {webIngress + ",edge.auth.mode=callout,edge.websocket.service.type=None", []string{"edge.websocket.service.type=None is refused, ClusterIP suffices"}},
		"unknown proxies":          {"edge.auth.mode=callout,edge.websocket.enabled=true,edge.websocket.ingress.enabled=true", []string{"edge.websocket.ingress.enabled=true needs edge.config.trustedProxies", "sessionsPerAddress"}},
		"a route to nothing":       {"edge.auth.mode=callout,edge.websocket.httpRoute.enabled=true", []string{"edge.websocket.httpRoute.enabled=true needs edge.websocket.enabled=true"}},
		"a route of no Gateway":    {"edge.auth.mode=callout,edge.websocket.enabled=true,edge.websocket.httpRoute.enabled=true,edge.config.trustedProxies[0]=10.0.0.0/8", []string{"edge.websocket.httpRoute.parentRefs", "[{name: NAME"}},
		"TLS without a Secret":     {"edge.websocket.enabled=true,edge.websocket.tls=true", []string{"edge.websocket.tls=true needs edge.tls.secret", "kubectl create secret tls"}},
		"WebTransport in clear":    {"edge.auth.mode=callout,edge.webtransport.enabled=true", []string{"edge.webtransport.enabled=true needs edge.tls.secret"}},
		"one of two with TLS":      {"edge.auth.mode=callout,edge.websocket.enabled=true,edge.webtransport.enabled=true,edge.tls.secret=a", []string{"edge.websocket.tls=false is refused with edge.webtransport.enabled=true", "HTTPS to edges"}},
		"a Secret without a use":   {"edge.websocket.enabled=true,edge.tls.secret=a", []string{"edge.tls.secret is given and nothing uses it"}},
		"half of a service":        {"edge.auth.mode=callout,edge.webtransport.enabled=true,edge.tls.secret=a,edge.webtransport.onWebSocketService=true", []string{"edge.webtransport.onWebSocketService=true needs edge.websocket.enabled=true"}},
		"another port of a node":   {webSecure + ",edge.auth.mode=callout,edge.webtransport.enabled=true,edge.webtransport.service.type=NodePort", []string{"edge.webtransport.port=3480 needs edge.webtransport.nodePort=3480"}},
		"WebTransport on gossip":   {webSecure + ",edge.auth.mode=callout,edge.webtransport.enabled=true,edge.webtransport.port=7946", []string{"edge.webtransport.port is taken by gossip.port"}},
		"Variants on DNP":          {"edge.auth.mode=callout,edge.variant.enabled=true,edge.variant.port=3413", []string{"taken by edge.variant.port"}},
		"viewers without a login":  {"edge.auth.mode=callout,edge.replicas=1,edge.lludp.enabled=true,edge.lludp.public=192.0.2.1:9000", []string{"edge.lludp.enabled=true needs edge.websocket.enabled=true"}},
		"viewers of two edges":     {viewers + ",edge.lludp.public=192.0.2.1:9000,edge.replicas=2", []string{"edge.lludp.enabled=true needs edge.replicas=1", "or edge.hostNetwork=true"}},
		"viewers of scaled edges":  {viewers + ",edge.lludp.public=192.0.2.1:9000,edge.autoscaling.enabled=true", []string{"edge.lludp.enabled=true needs edge.replicas=1"}},
		"viewers told a pod":       {viewers, []string{"edge.lludp.enabled=true needs edge.lludp.public"}},
		"viewers told one of two":  {viewers + ",edge.replicas=2,edge.hostNetwork=true,edge.service.type=None,global.nodeNetworks[0]=10.0.0.0/16,edge.lludp.public=192.0.2.1:9000", []string{"edge.lludp.public is refused with several edges"}},
		"viewers told a name":      {viewers + ",edge.lludp.public=example.com:9000", []string{"lludp", "public"}},
		"viewers on DNP":           {viewers + ",edge.lludp.public=192.0.2.1:9000,edge.lludp.port=3413", []string{"taken by edge.lludp.port"}},
		"open by viewers":          {"edge.websocket.enabled=true,edge.replicas=1,edge.lludp.enabled=true,edge.lludp.public=192.0.2.1:9000,edge.lludp.service.type=NodePort", []string{"edge.auth.mode=open is refused with edge.lludp.service.type=NodePort"}},
		"open by Variants":         {"edge.variant.enabled=true,edge.variant.service.type=NodePort", []string{"edge.auth.mode=open is refused with edge.variant.service.type=NodePort"}},
		"WebTransport on DNP":      {webSecure + ",edge.auth.mode=callout,edge.webtransport.enabled=true,edge.webtransport.port=3413", []string{"taken by edge.webtransport.port"}},
		"WebSocket on health":      {"edge.websocket.enabled=true,edge.websocket.port=8414", []string{"edge.websocket.port=8414 is taken by edge.adminPort"}},
		"a listener's name":        {"edge.listeners[0].name=websocket,edge.listeners[0].port=1", []string{"name websocket twice, or it is one that the chart uses"}},
		"a page for an origin":     {"edge.config.websocketOrigins[0]=https://game.example/page", []string{"websocketOrigins"}},
		"a name for a proxy":       {"edge.config.trustedProxies[0]=proxy.example", []string{"trustedProxies"}},
		"no connections":           {"edge.config.websocketConnections=0", []string{"websocketConnections"}},
		"typo in an Ingress":       {"edge.websocket.ingress.host=a", []string{"ingress", "host"}},
		"no shards":                {"global.shards=0", []string{"shards"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, "--set", c.set)
			if err == nil {
				t.Fatalf("%s is accepted", c.set)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message lacks %q: %v", want, err)
				}
			}
		})
	}
}

// TestAllowed requires that values that resemble those mistakes are accepted.
func TestAllowed(t *testing.T) {
	for _, set := range []string{
		"edge.service.type=LoadBalancer,edge.auth.allowOpenOnPublicService=true",
		"edge.service.type=LoadBalancer,edge.auth.mode=token,edge.auth.tokenKeysSecret=keys",
		"edge.service.type=LoadBalancer,edge.auth.mode=callout",
		"nats.enabled=false,externalNats.existingSecret=a,externalNats.login=url",
		"edge.terminationGracePeriodSeconds=600",
		`redis.enabled=false,externalRedis.url=redis://a:6379\,rediss://b:6380`,
		webIngress + ",edge.auth.allowOpenOnPublicService=true",
		webIngress + ",edge.auth.mode=callout,edge.websocket.ingress.hosts[0]=*.example.com,edge.config.websocketOrigins[0]=*",
		"edge.websocket.enabled=true,edge.websocket.service.type=None",
		viewers + ",edge.replicas=3,edge.hostNetwork=true,edge.service.type=None,global.nodeNetworks[0]=10.0.0.0/16",
		viewers + ",edge.hostNetwork=true,edge.service.type=None,global.nodeNetworks[0]=10.0.0.0/16,edge.lludp.public=192.0.2.1:9000",
		"edge.auth.mode=callout,edge.webtransport.enabled=true,edge.tls.secret=a",
		webSecure + ",edge.auth.mode=callout,edge.webtransport.enabled=true,edge.webtransport.service.type=NodePort,edge.webtransport.port=30480,edge.webtransport.nodePort=30480",
		"redis.nodeSelector.disk=fast,redis.tolerations[0].operator=Exists",
	} {
		if _, err := render(t, "--set", set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestNoDashboards wants a chart without the files of the dashboards to say what writes them, where they are wanted.
func TestNoDashboards(t *testing.T) {
	bare := t.TempDir()
	if err := os.CopyFS(bare, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(bare + "/files/dashboards"); err != nil {
		t.Fatal(err)
	}
	if _, err := helm(t, "template", "r1", bare, "--kube-version=1.33.0"); err != nil {
		t.Error(err)
	}
	if _, err := helm(t, "template", "r1", bare, "--kube-version=1.33.0", "--set=metrics.dashboards.enabled=true"); err == nil || !strings.Contains(err.Error(), "`make dashboards`") {
		t.Errorf("the chart says %v, want what writes the dashboards", err)
	}
}
