{{/* The common parts of the pods of edges and relays. Each template takes
(dict "root" $ "component" "edge" "values" .Values.edge). */}}

{{/* Restricted Pod Security. */}}
{{- define "dnprelay.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.global.runAsUser }}
runAsUser: {{ int . }}
runAsGroup: {{ int . }}
fsGroup: {{ int . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "dnprelay.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Arguments of all nodes. */}}
{{- define "dnprelay.commonArgs" -}}
- serve
- --gossip-bind=:{{ .root.Values.gossip.port }}
- --gossip-advertise=$(POD_IP)
- --gossip-join={{ include "dnprelay.fullname" .root }}-gossip.{{ .root.Release.Namespace }}.svc:{{ .root.Values.gossip.port }}
- --gossip-key-file=/etc/dnprelay/gossip/keys
- --http=:{{ .values.adminPort }}
- --log-level={{ .root.Values.log.level }}
- --log-format={{ .root.Values.log.format }}
{{- if and (eq .component "edge") .root.Values.log.addresses }}
- --log-addresses
{{- end }}
{{- if .root.Values.adminToken.existingSecret }}
- --http-token=/etc/dnprelay/admin/token
{{- end }}
{{- if ne .root.Values.global.subjectPrefix "dnp.v1" }}
- --subject-prefix={{ .root.Values.global.subjectPrefix }}
{{- end }}
{{- if ne (int .root.Values.global.shards) 64 }}
- --shards={{ int .root.Values.global.shards }}
{{- end }}
{{- if .root.Values.startTimeout }}
- --start-timeout={{ .root.Values.startTimeout }}
{{- end }}
{{- end }}

{{/* The authorities that TLS connections trust. */}}
{{- define "dnprelay.caEnv" -}}
{{- if .Values.trustedCA.existingSecret }}
- name: SSL_CERT_FILE
  value: /etc/dnprelay/ca/{{ .Values.trustedCA.key }}
{{- end }}
{{- end }}

{{- define "dnprelay.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{ include "dnprelay.natsEnv" (dict "root" .root "role" .component) }}
{{- with include "dnprelay.goMemory" .values.resources }}
- name: GOMEMLIMIT
  value: {{ . }}
{{- end }}
{{- include "dnprelay.caEnv" .root }}
{{- with .root.Values.otel }}
{{- if .endpoint }}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: OTEL_SERVICE_NAME
  value: {{ $.component }}
- name: OTEL_RESOURCE_ATTRIBUTES
  {{- $attributes := printf "k8s.pod.name=$(POD_NAME),k8s.pod.uid=$(POD_UID),k8s.namespace.name=%s,k8s.node.name=$(NODE_NAME)" $.root.Release.Namespace }}
  {{- range $key, $value := .resourceAttributes }}
  {{- $attributes = printf "%s,%s=%s" $attributes $key ($value | urlquery | replace "+" "%20") }}
  {{- end }}
  value: {{ $attributes | quote }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .protocol }}
{{- if .metrics }}
- {name: OTEL_METRICS_EXPORTER, value: otlp}
{{- end }}
{{- if .logs }}
- {name: OTEL_LOGS_EXPORTER, value: otlp}
{{- end }}
- name: OTEL_TRACES_SAMPLER
  value: {{ .sampler }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .samplerArg | quote }}
{{- end }}
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Liveness depends on the process alone, never on NATS: a restart would not bring back what a node
misses, and its log and /readyz say what that is. */}}
{{- define "dnprelay.probes" -}}
{{- with .values.probes }}
startupProbe:
  httpGet: {path: /livez, port: http}
  {{- toYaml .startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: http}
  {{- toYaml .liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  {{- toYaml .readiness | nindent 2 }}
{{- end }}
{{- end }}

{{- define "dnprelay.mounts" -}}
- {name: gossip, mountPath: /etc/dnprelay/gossip, readOnly: true}
{{- include "dnprelay.natsMounts" (dict "root" .root "role" .component) }}
{{- if .root.Values.adminToken.existingSecret }}
- {name: admin, mountPath: /etc/dnprelay/admin, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "dnprelay.volumes" -}}
- name: gossip
  secret: {secretName: {{ include "dnprelay.gossipSecret" .root }}, items: [{key: keys, path: keys}]}
{{- include "dnprelay.natsVolumes" (dict "root" .root "role" .component) }}
{{- with .root.Values.adminToken.existingSecret }}
- name: admin
  secret: {secretName: {{ . }}, items: [{key: token, path: token}]}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Placement. By default pods avoid zones and nodes that have a pod of their kind, as far as possible. Two constraints for topologySpread would not do that: the scheduler ignores nodes
that lack the label of either, so without zones nothing would be spread. */}}
{{- define "dnprelay.placement" -}}
{{- with concat .root.Values.imagePullSecrets .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values }}
{{- if .topologySpread }}
topologySpreadConstraints:
  {{- range .topologySpread }}
  - {{- toYaml . | nindent 4 }}
    labelSelector:
      matchLabels:
        {{- include "dnprelay.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
affinity:
{{- if .affinity }}
  {{- toYaml .affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- range $i, $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
      - weight: {{ sub 100 (mul 50 $i) }}
        podAffinityTerm:
          topologyKey: {{ $key }}
          labelSelector:
            matchLabels:
              {{- include "dnprelay.selector" $ | nindent 14 }}
      {{- end }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Warnings about kinds of pods of which one node has too many. The pods are those before an upgrade; at an
installation, and where Helm does not ask the cluster, there are none. */}}
{{- define "dnprelay.crowded" -}}
{{- $nodes := dict }}
{{- if .Release.IsUpgrade }}
{{- range (lookup "v1" "Pod" .Release.Namespace "").items }}
{{- $labels := default dict .metadata.labels }}
{{- if and (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) (eq (get $labels "app.kubernetes.io/part-of") "dnprelay") .spec.nodeName (not .metadata.deletionTimestamp) (eq .status.phase "Running") }}
{{- $kind := get $labels "app.kubernetes.io/component" | default (get $labels "app.kubernetes.io/name") }}
{{- $_ := set $nodes $kind (append (get $nodes $kind | default list) .spec.nodeName) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "dnprelay.crowdedOn" $nodes }}
{{- end }}

{{/* The warnings, from the nodes of the pods by kind: (dict "nats" (list "node-1" "node-1" "node-2")). */}}
{{- define "dnprelay.crowdedOn" -}}
{{- $nats := get . "nats" | default list }}
{{- if gt (len $nats) (len (uniq $nats)) }}
WARNING: before this upgrade, two NATS servers were on one node ({{ join ", " $nats }}): its loss stops everything.
{{- end }}
{{- $redis := get . "redis" | default list }}
{{- if gt (len $redis) (len (uniq $redis)) }}
WARNING: before this upgrade, both Redis servers were on one node ({{ first $redis }}): its loss takes all claims.
{{- end }}
{{- $edges := get . "edge" | default list }}
{{- if and (gt (len $edges) 1) (eq (len (uniq $edges)) 1) }}
WARNING: before this upgrade, all edges were on one node ({{ first $edges }}): its loss leaves players no edge.
{{- end }}
{{- end }}

{{/* metadata of a pod. */}}
{{- define "dnprelay.podMetadata" -}}
labels:
  {{- include "dnprelay.labels" . | nindent 2 }}
  dnprelay.io/gossip: member
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
