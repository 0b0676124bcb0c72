{{- define "nats.selector" -}}
app.kubernetes.io/name: nats
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* (dict "root" $ "name" "-headless"). */}}
{{- define "nats.metadata" -}}
name: {{ .root.Release.Name }}-nats{{ .name }}
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

{{/* A file of the configuration with the prefix and the shards of this deployment. */}}
{{- define "nats.file" -}}
{{- .root.Files.Get (printf "files/%s" .name) | replace "\"dnp.v1." (printf "\"%s." .root.Values.global.subjectPrefix)
  | replace "partition(64," (printf "partition(%d," (int .root.Values.global.shards))
  | replace "include ./cluster.conf" (gt (int .root.Values.replicas) 1 | ternary "include ./cluster.conf" "") }}
{{- end }}

{{- define "nats.routes" -}}
{{- $urls := list }}
{{- range $i := until (int .Values.replicas) }}
{{- $urls = append $urls (printf "nats://%s-nats-%d.%s-nats-headless.%s.svc:6222" $.Release.Name $i $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- printf "[%s]" (join ", " $urls) }}
{{- end }}
