{{/* The parts of an edge for clients that do not speak UDP. */}}

{{/* Whether edges have a certificate. They use it for all listeners of this kind. */}}
{{- define "dnprelay.edgeTLS" -}}
{{- if or .Values.edge.webtransport.enabled (and .Values.edge.websocket.enabled .Values.edge.websocket.tls) }}yes{{ end }}
{{- end }}

{{- define "dnprelay.webArgs" -}}
{{- with .Values.edge }}
{{- if .websocket.enabled }}
- --websocket=:{{ .websocket.port }}
{{- end }}
{{- if .webtransport.enabled }}
- --webtransport=:{{ .webtransport.port }}
{{- end }}
{{- if .variant.enabled }}
- --variant=:{{ .variant.port }}
{{- end }}
{{- if .lludp.enabled }}
- --lludp=:{{ .lludp.port }}
{{- with .lludp.region }}
- {{ printf "--lludp-region=%s" . | quote }}
{{- end }}
{{- with .lludp.public }}
- --lludp-public={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- if include "dnprelay.edgeTLS" . }}
- --tls-cert=/etc/dnprelay/tls/tls.crt
- --tls-key=/etc/dnprelay/tls/tls.key
{{- end }}
{{- end }}

{{/* The port of a service: clients learn from the edge to which one to connect, so it is that of the listener. */}}
{{- define "dnprelay.webtransportPort" -}}
- name: webtransport
  protocol: UDP
  port: {{ .port }}
  targetPort: webtransport
  {{- with .nodePort }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}

{{/* Refuses values for these clients that contradict each other. */}}
{{- define "dnprelay.webChecks" -}}
{{- with .Values.edge }}
{{- $proxied := list }}
{{- if .websocket.ingress.enabled }}{{ $proxied = append $proxied "edge.websocket.ingress" }}{{ end }}
{{- if .websocket.httpRoute.enabled }}{{ $proxied = append $proxied "edge.websocket.httpRoute" }}{{ end }}
{{- range $proxied }}
{{- if not $.Values.edge.websocket.enabled }}{{ fail (printf "%s.enabled=true needs edge.websocket.enabled=true: edges do not listen for WebSockets otherwise." .) }}{{ end }}
{{- if eq $.Values.edge.websocket.service.type "None" }}{{ fail (printf "%s.enabled=true needs a service: edge.websocket.service.type=None is refused, ClusterIP suffices." .) }}{{ end }}
{{- if not $.Values.edge.config.trustedProxies }}
{{- fail (printf "%s.enabled=true needs edge.config.trustedProxies: the networks from which its proxies connect to edges (CIDR), those of pods if they are pods. Without them all players count as one address, of which edge.config.sessionsPerAddress lets in few." .) }}
{{- end }}
{{- end }}
{{- if and .websocket.httpRoute.enabled (not .websocket.httpRoute.parentRefs) }}
{{- fail "edge.websocket.httpRoute.enabled=true needs edge.websocket.httpRoute.parentRefs: the Gateway that serves the route, as [{name: NAME, namespace: NAMESPACE}]." }}
{{- end }}
{{- if and .websocket.enabled .websocket.tls (not .tls.secret) }}
{{- fail "edge.websocket.tls=true needs edge.tls.secret: a Secret with the certificate (kubectl create secret tls NAME --cert=FILE --key=FILE)." }}
{{- end }}
{{- if and .webtransport.enabled (not .tls.secret) }}
{{- fail "edge.webtransport.enabled=true needs edge.tls.secret: a Secret with the certificate (kubectl create secret tls NAME --cert=FILE --key=FILE), because WebTransport is always encrypted." }}
{{- end }}
{{- if and .webtransport.enabled .websocket.enabled (not .websocket.tls) }}
{{- fail "edge.websocket.tls=false is refused with edge.webtransport.enabled=true: an edge that has a certificate uses it for both, so its WebSocket port speaks TLS. Set edge.websocket.tls=true; an Ingress or Gateway then has to speak HTTPS to edges." }}
{{- end }}
{{- if and .tls.secret (not (include "dnprelay.edgeTLS" $)) }}
{{- fail "edge.tls.secret is given and nothing uses it: set edge.websocket.enabled=true and edge.websocket.tls=true, or edge.webtransport.enabled=true." }}
{{- end }}
{{- if and .webtransport.enabled .webtransport.onWebSocketService (or (not .websocket.enabled) (eq .websocket.service.type "None")) }}
{{- fail "edge.webtransport.onWebSocketService=true needs edge.websocket.enabled=true and a service of it: edge.websocket.service.type must not be None." }}
{{- end }}
{{- $type := .webtransport.onWebSocketService | ternary .websocket.service.type .webtransport.service.type }}
{{- if and .webtransport.enabled (eq $type "NodePort") (ne (int .webtransport.port) (int .webtransport.nodePort)) }}
{{- fail (printf "edge.webtransport.port=%d needs edge.webtransport.nodePort=%d with a service of type NodePort: clients learn from the edge to which port to connect, and it knows its own only." (int .webtransport.port) (int .webtransport.port)) }}
{{- end }}
{{- if .lludp.enabled }}
{{- if not .websocket.enabled }}{{ fail "edge.lludp.enabled=true needs edge.websocket.enabled=true: viewers log in there." }}{{ end }}
{{- $several := or .autoscaling.enabled (gt (int .replicas) 1) }}
{{- if and $several (not .hostNetwork) }}
{{- fail "edge.lludp.enabled=true needs edge.replicas=1 without edge.autoscaling, or edge.hostNetwork=true: a viewer has to reach the edge that took its login, which a service before several edges does not know." }}
{{- end }}
{{- if and (not .hostNetwork) (not .lludp.public) }}
{{- fail "edge.lludp.enabled=true needs edge.lludp.public: the IPv4 address and port of its service (203.0.113.7:9000), which viewers are told. An edge knows the address of its pod only." }}
{{- end }}
{{- if and $several .lludp.public }}
{{- fail "edge.lludp.public is refused with several edges: it would lead the viewers of all to one of them." }}
{{- end }}
{{- end }}
{{- if and .websocket.enabled (has (int .websocket.port) (list (int .adminPort) (int $.Values.gossip.port))) }}
{{- fail (printf "edge.websocket.port=%d is taken by %s." (int .websocket.port) (eq (int .websocket.port) (int .adminPort) | ternary "edge.adminPort" "gossip.port")) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The services of edges by the names of their values, as a map: (dict "edge.service" .Values.edge.service). */}}
{{- define "dnprelay.edgeServices" -}}
{{- $all := dict "edge.service" .Values.edge.service }}
{{- with .Values.edge }}
{{- if .websocket.enabled }}{{ $_ := set $all "edge.websocket.service" .websocket.service }}{{ end }}
{{- if and .webtransport.enabled (not .webtransport.onWebSocketService) }}{{ $_ := set $all "edge.webtransport.service" .webtransport.service }}{{ end }}
{{- if .variant.enabled }}{{ $_ := set $all "edge.variant.service" .variant.service }}{{ end }}
{{- if .lludp.enabled }}{{ $_ := set $all "edge.lludp.service" .lludp.service }}{{ end }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* What NOTES.txt says about these clients. */}}
{{- define "dnprelay.webNotes" -}}
{{- $full := include "dnprelay.fullname" . }}
{{- $ns := .Release.Namespace }}
{{- with .Values.edge }}
{{- $scheme := .websocket.tls | ternary "wss" "ws" }}
{{- if or .websocket.enabled .webtransport.enabled }}
Browsers:
{{- end }}
{{- if .websocket.enabled }}
{{- if .websocket.ingress.enabled }}
  {{ empty .websocket.ingress.tlsSecret | ternary "ws" "wss" }}://{{ .websocket.ingress.hosts | first | default "HOST" }}/dnp, over the Ingress {{ $full }}-edge-websocket:
  kubectl -n {{ $ns }} get ingress {{ $full }}-edge-websocket
{{- end }}
{{- if .websocket.httpRoute.enabled }}
  wss://{{ .websocket.httpRoute.hostnames | first | default "HOST" }}/dnp, over the listener of your Gateway:
  kubectl -n {{ $ns }} describe httproute {{ $full }}-edge-websocket
{{- end }}
{{- if eq .websocket.service.type "LoadBalancer" }}
  {{ $scheme }}://ADDRESS:{{ default .websocket.port .websocket.servicePort }}/dnp, with the address of the balancer or its name:
  kubectl -n {{ $ns }} get service {{ $full }}-edge-websocket -o jsonpath='{.status.loadBalancer.ingress[0]}'
{{- else if eq .websocket.service.type "NodePort" }}
  {{ $scheme }}://NODE:PORT/dnp, with the address of a node that has an edge and the port of
  kubectl -n {{ $ns }} get service {{ $full }}-edge-websocket -o jsonpath='{.spec.ports[0].nodePort}'
{{- else if .hostNetwork }}
  {{ $scheme }}://NODE:{{ .websocket.port }}/dnp, with the address of a node that has an edge.
{{- else if eq .websocket.service.type "None" }}
  {{ $scheme }}://POD:{{ .websocket.port }}/dnp; edge.websocket.service.type=None leaves the way there to you.
{{- else if not (or .websocket.ingress.enabled .websocket.httpRoute.enabled) }}
  {{ $scheme }}://{{ $full }}-edge-websocket.{{ $ns }}.svc:{{ default .websocket.port .websocket.servicePort }}/dnp, from inside the cluster only. For players outside, turn edge.websocket.ingress or
  edge.websocket.httpRoute on, or set edge.websocket.service.type=LoadBalancer.
{{- end }}
{{- if and .websocket.tls .websocket.ingress.enabled }}
  Edges speak TLS, so the Ingress controller has to speak HTTPS to them. ingress-nginx is told so; for another one, add its annotation.
{{- end }}
{{- if and .websocket.tls .websocket.httpRoute.enabled }}
  Edges speak TLS, so the Gateway has to speak HTTPS to them: it needs a BackendTLSPolicy for the service {{ $full }}-edge-websocket.
{{- end }}
{{- end }}
{{- if .webtransport.enabled }}
{{- $of := printf "the service %s-edge-%s" $full (.webtransport.onWebSocketService | ternary "websocket" "webtransport") }}
{{- if .hostNetwork }}{{ $of = "the nodes" }}
{{- else if and (not .webtransport.onWebSocketService) (eq .webtransport.service.type "None") }}{{ $of = "the pods" }}{{ end }}
  WebTransport: UDP port {{ .webtransport.port }} of {{ $of }}. Browsers look for it at the host of their WebSocket: both need one address.
{{- end }}
{{- if .lludp.enabled }}
  Viewers of Second Life log in at the address of the WebSockets, path /lludp/login instead of /dnp, and are told {{ default (printf "UDP port %d of the node" (int .lludp.port)) .lludp.public }}.
{{- end }}
{{- if and .websocket.enabled (not .websocket.tls) (has .websocket.service.type (list "LoadBalancer" "NodePort")) }}

WARNING: WebSockets are plain text (edge.websocket.tls=false), unless the balancer ends TLS. Pages that came over HTTPS cannot open them.
{{- end }}
{{- if and (or .websocket.enabled .webtransport.enabled) (not (include "dnprelay.durable" $)) }}

WARNING: with edge.config.sessionDurability=none, a browser whose connection breaks begins a new session, unless it comes to the same edge again.
{{- end }}
{{- end }}
{{- end }}
