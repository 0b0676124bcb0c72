{{/* Where NATS is and how to log in there. */}}

{{/* Addresses of the servers of the chart, each by the name of its pod, so that nobody is
sent to one that has just died: (dict "root" $ "login" "user:password@"). */}}
{{- define "dnprelay.natsBundled" -}}
{{- $name := printf "%s-nats" .root.Release.Name }}
{{- $urls := list }}
{{- range $i := until (int .root.Values.nats.replicas) }}
{{- $urls = append $urls (printf "nats://%s%s-%d.%s-headless.%s.svc:4222" $.login $name $i $name $.root.Release.Namespace) }}
{{- end }}
{{- join "," $urls }}
{{- end }}

{{/* Secret with the passwords of the chart's own servers. */}}
{{- define "dnprelay.natsSecret" -}}
{{- default (printf "%s-nats-auth" .Release.Name) .Values.nats.existingSecret }}
{{- end }}

{{/* Environment of a container that speaks to NATS: (dict "root" $ "role" "edge"). */}}
{{- define "dnprelay.natsEnv" -}}
{{- $root := .root }}
{{- $e := $root.Values.externalNats }}
{{- if $root.Values.nats.enabled }}
- name: NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "dnprelay.natsSecret" $root }}, key: {{ .role }}}}
- name: DNP_NATS_URL
  value: {{ include "dnprelay.natsBundled" (dict "root" $root "login" (printf "%s:$(NATS_PASSWORD)@" .role)) | quote }}
{{- else if and $e.existingSecret (eq $e.login "password") }}
- name: NATS_USER
  valueFrom: {secretKeyRef: {name: {{ $e.existingSecret }}, key: username}}
- name: NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $e.existingSecret }}, key: password}}
- name: DNP_NATS_URL
  value: {{ $e.url | replace "://" "://$(NATS_USER):$(NATS_PASSWORD)@" | quote }}
{{- else if and $e.existingSecret (eq $e.login "url") }}
- name: DNP_NATS_URL
  valueFrom: {secretKeyRef: {name: {{ $e.existingSecret }}, key: url}}
{{- else }}
- name: DNP_NATS_URL
  value: {{ $e.url | quote }}
{{- if $e.existingSecret }}
- name: DNP_NATS_CREDS
  value: /etc/dnprelay/nats/nats.creds
{{- end }}
{{- end }}
{{- end }}

{{/* Whether a file with credentials is mounted. */}}
{{- define "dnprelay.natsCreds" -}}
{{- $e := .Values.externalNats }}
{{- if and (not .Values.nats.enabled) $e.existingSecret (eq $e.login "creds") }}yes{{ end }}
{{- end }}

{{/* Copies of the streams: what the operator says, or as many as the servers of the chart. */}}
{{- define "dnprelay.streamReplicas" -}}
{{- if .Values.relay.config.replicas }}{{ int .Values.relay.config.replicas }}
{{- else if .Values.nats.enabled }}{{ min 3 (int .Values.nats.replicas) }}
{{- else }}{{ int .Values.externalNats.replicas }}{{ end }}
{{- end }}
