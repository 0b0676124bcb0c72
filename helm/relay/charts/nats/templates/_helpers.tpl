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

{{/* Users of the servers, each with a password in the Secret; secure.conf says what they may do. */}}
{{- define "nats.users" -}}relay edge publisher observer admin sys{{ range $role, $_ := .Values.secondUsers }} {{ $role }}2{{ end }}{{- end }}

{{/* A file of this chart with the prefix and the shards of this deployment, and the second users. A single
server has no cluster block. The tag of a server is in a file of its own. */}}
{{- define "nats.file" -}}
{{- $text := .root.Files.Get (printf "files/%s" .name) | replace "\"dnp.v1." (printf "\"%s." .root.Values.global.subjectPrefix)
  | replace "partition(64," (printf "partition(%d," (int .root.Values.global.shards)) }}
{{- if eq .name "nats-server.conf" }}
{{- $text = $text | replace "server_tags: $NATS_LOG_COPY\n" "" }}
{{- if eq (int .root.Values.replicas) 1 }}{{ $text = regexReplaceAll "(?s)\ncluster \\{.*?\n\\}\n" $text "\n" }}{{ end }}
{{- end }}
{{- if eq .name "secure.conf" }}{{ range $role, $_ := .root.Values.secondUsers }}
{{- $text = regexReplaceAll (printf `(?m)^( *\{ user: )%s(, password: \$NATS_)%s(_PASSWORD.*)$` $role (upper $role)) $text (printf "$0\n${1}%s2${2}%s2${3}" $role (upper $role)) }}
{{- end }}{{ end }}
{{- $text }}
{{- end }}

{{- define "nats.files" -}}secure.conf nats-server.conf mappings.conf roles.conf{{- end }}

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
