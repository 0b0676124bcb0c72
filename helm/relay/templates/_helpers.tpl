{{/* Names. */}}
{{- define "dnprelay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "dnprelay.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "dnprelay.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "dnprelay.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The name of the release, short enough for a suffix: a StatefulSet's name has to leave room for a hash in
63 characters. The charts of NATS and Redis use it, too. */}}
{{- define "dnprelay.release" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Labels that never change while a release lives: (dict "root" $ "component" "edge"). */}}
{{- define "dnprelay.selector" -}}
app.kubernetes.io/name: {{ include "dnprelay.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* All labels: (dict "root" $ "component" "edge"). */}}
{{- define "dnprelay.labels" -}}
{{ include "dnprelay.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dnprelay
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* metadata of an object: (dict "root" $ "component" "edge" "name" "edge" "labels" dict "annotations" dict),
or with "as" for a name that does not begin with that of the release. */}}
{{- define "dnprelay.metadata" -}}
name: {{ if .as }}{{ .as }}{{ else }}{{ include "dnprelay.fullname" .root }}-{{ .name }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "dnprelay.labels" . | nindent 2 }}
  {{- range $key, $value := (.labels | default dict) }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
{{- with merge (deepCopy (default dict .annotations)) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "dnprelay.image" -}}
{{- $i := .Values.image }}
{{- with default $i.registry .Values.global.imageRegistry }}{{ . }}/{{ end }}{{ $i.repository }}
{{- if $i.digest }}@{{ $i.digest }}{{ else }}:{{ default .Chart.AppVersion $i.tag }}{{ end }}
{{- end }}

{{- define "dnprelay.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "dnprelay.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{/* Secret with the keys of the gossip. */}}
{{- define "dnprelay.gossipSecret" -}}
{{- default (printf "%s-gossip" (include "dnprelay.fullname" .)) .Values.gossip.existingSecret }}
{{- end }}

{{/* A value of a flag as the programs read it. Numbers come as floats from YAML. */}}
{{- define "dnprelay.value" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . }}{{ end }}
{{- end }}

{{/* Arguments from a map of flags; a null is the program's own default. */}}
{{- define "dnprelay.flags" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%s" (kebabcase $name) (include "dnprelay.value" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Seconds of a duration such as 90s, 2m or 1m30s. */}}
{{- define "dnprelay.seconds" -}}
{{- $minutes := regexFind "[0-9]+m" . | trimSuffix "m" | default "0" | int }}
{{- $seconds := regexFind "[0-9]+s" . | trimSuffix "s" | default "0" | int }}
{{- add (mul 60 $minutes) $seconds }}
{{- end }}

{{/* 90 % of a memory limit, for the Go runtime; empty for unknown units. */}}
{{- define "dnprelay.goMemory" -}}
{{- $limit := toString (default "" (dig "limits" "memory" "" .)) }}
{{- if regexMatch "^[0-9]+Mi$" $limit }}{{ div (mul 9 (trimSuffix "Mi" $limit | int)) 10 }}MiB
{{- else if regexMatch "^[0-9]+Gi$" $limit }}{{ div (mul 9216 (trimSuffix "Gi" $limit | int)) 10 }}MiB{{ end }}
{{- end }}

{{/* Ports of addresses, as JSON: (dict "urls" "nats://a:4222,nats://b" "given" list "default" (list 4222)). Given
ports override the others; an address without a port has the default. */}}
{{- define "dnprelay.ports" -}}
{{- $ports := .given }}
{{- if not $ports }}
{{- range compact (splitList "," (default "" .urls)) }}
{{- $port := regexFind ":[0-9]+$" (urlParse (trim .)).host | trimPrefix ":" }}
{{- $ports = concat $ports (ternary (list (int $port)) $.default (ne $port "")) }}
{{- end }}
{{- end }}
{{- toJson (uniq (default .default $ports)) }}
{{- end }}

{{/* Whether helm test has something to test. */}}
{{- define "dnprelay.tested" -}}
{{- if and .Values.tests.enabled (ne .Values.edge.service.type "None") (or (eq .Values.edge.auth.mode "open") .Values.tests.tokenSecret) }}yes{{ end }}
{{- end }}

{{/* The values by which players come from outside the cluster; empty if they do not. */}}
{{- define "dnprelay.public" -}}
{{- $by := list }}
{{- range $name, $service := include "dnprelay.edgeServices" . | fromJson }}
{{- if has $service.type (list "LoadBalancer" "NodePort") }}{{ $by = append $by (printf "%s.type=%s" $name $service.type) }}
{{- else if $service.externalIPs }}{{ $by = append $by (printf "%s.externalIPs" $name) }}{{ end }}
{{- end }}
{{- with .Values.edge }}
{{- if .hostNetwork }}{{ $by = append $by "edge.hostNetwork=true" }}{{ end }}
{{- if .websocket.ingress.enabled }}{{ $by = append $by "edge.websocket.ingress.enabled=true" }}{{ end }}
{{- if .websocket.httpRoute.enabled }}{{ $by = append $by "edge.websocket.httpRoute.enabled=true" }}{{ end }}
{{- end }}
{{- join " and " $by }}
{{- end }}
