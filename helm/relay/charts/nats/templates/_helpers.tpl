{{- define "nats.selector" -}}
app.kubernetes.io/name: nats
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* (dict "root" $ "name" "-headless"). */}}
{{- define "nats.metadata" -}}
name: {{ include "dnprelay.release" .root }}-nats{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "nats.selector" .root | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/part-of: dnprelay
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "nats.image" -}}
{{- $i := .Values.image }}
{{- with default $i.registry .Values.global.imageRegistry }}{{ . }}/{{ end }}{{ $i.repository }}
{{- if $i.digest }}@{{ $i.digest }}{{ else }}:{{ default .Chart.AppVersion $i.tag }}{{ end }}
{{- end }}

{{/* Users of the servers; roles.conf has their permissions. */}}
{{- define "nats.roles" -}}relay edge publisher observer admin{{- end }}

{{/* A file of this chart with the prefix and the shards of this deployment. A single
server has no cluster block; all servers have the roles. The tag of a server is in a file of its own. */}}
{{- define "nats.file" -}}
{{- $text := .root.Files.Get (printf "files/%s" .name) | replace "\"dnp.v1." (printf "\"%s." .root.Values.global.subjectPrefix)
  | replace "partition(64," (printf "partition(%d," (int .root.Values.global.shards)) }}
{{- if eq .name "nats-server.conf" }}
{{- $text = $text | replace "server_tags: $NATS_LOG_COPY\n" "" }}
{{- if eq (int .root.Values.replicas) 1 }}{{ $text = regexReplaceAll "(?s)\ncluster \\{.*?\n\\}\n" $text "\n" }}{{ end }}
{{- if not (contains "include ./roles.conf" $text) }}{{ $text = printf "%s\ninclude ./roles.conf\n" $text }}{{ end }}
{{- end }}
{{- $text }}
{{- end }}

{{- define "nats.files" -}}nats-server.conf mappings.conf roles.conf{{- end }}

{{- define "nats.routes" -}}
{{- $name := include "dnprelay.release" . }}
{{- $urls := list }}
{{- range $i := until (int .Values.replicas) }}
{{- $urls = append $urls (printf "nats://%s-nats-%d.%s-nats-headless.%s.svc:6222" $name $i $name $.Release.Namespace) }}
{{- end }}
{{- printf "[%s]" (join ", " $urls) }}
{{- end }}

{{- define "nats.secret" -}}
{{- default (printf "%s-nats-auth" (include "dnprelay.release" .)) .Values.existingSecret }}
{{- end }}
