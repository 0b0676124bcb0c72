{{/* Arguments of an edge besides those of all nodes. */}}
{{- define "dnprelay.edgeArgs" -}}
{{- range .Values.edge.listeners }}
{{- $options := list }}
{{- with .profile }}{{ $options = append $options (printf "profile=%s" .) }}{{ end }}
{{- with .probe }}{{ $options = append $options (printf "probe=%s" .) }}{{ end }}
- {{ printf "--listen=udp://:%d%s" (int .port) (empty $options | ternary "" (printf "?%s" (join "&" $options))) | quote }}
{{- end }}
- --auth={{ .Values.edge.auth.mode }}
{{- if eq .Values.edge.auth.mode "token" }}
- --token-keys=/etc/dnprelay/token/{{ .Values.edge.auth.tokenKeysKey }}
{{- end }}
{{- include "dnprelay.webArgs" . }}
{{- include "dnprelay.flags" (omit .Values.edge.config "sessionReplicas") }}
{{- if include "dnprelay.durable" . }}
- --session-replicas={{ .Values.edge.config.sessionReplicas | default (ge (int (include "dnprelay.streamReplicas" .)) 3 | ternary 3 1) | int }}
{{- end }}
{{- if and (include "dnprelay.durable" .) (ne (int .Values.edge.forward.port) 7947) }}
- --forward-listen=:{{ .Values.edge.forward.port }}
{{- end }}
{{- range .Values.edge.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Whether sessions are durable. */}}
{{- define "dnprelay.durable" -}}
{{- if eq (default "none" .Values.edge.config.sessionDurability) "log" }}yes{{ end }}
{{- end }}

{{/* How long an edge may take to leave: its drain, the time in which it forwards orphan datagrams, and
a margin for the rest. 55s and 3s are the defaults of --drain-timeout and --drain-linger. */}}
{{- define "dnprelay.edgeGrace" -}}
{{- $c := .Values.edge.config }}
{{- $need := add (include "dnprelay.seconds" (default "55s" $c.drainTimeout)) (include "dnprelay.seconds" (default "3s" $c.drainLinger)) 7 }}
{{- $given := int (default $need .Values.edge.terminationGracePeriodSeconds) }}
{{- if lt $given (int $need) }}
{{- fail (printf "edge.terminationGracePeriodSeconds=%d is too short: the drain (edge.config.drainTimeout), the linger (edge.config.drainLinger) and a margin of 7 s need %d; leave it empty to have it computed" $given (int $need)) }}
{{- end }}
{{- $given }}
{{- end }}

{{/* The addresses of Redis, if sessions are durable and use it. */}}
{{- define "dnprelay.redisEnv" -}}
{{- if .Values.redis.enabled }}
{{- $name := printf "%s-redis" (include "dnprelay.release" .) }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ default $name .Values.redis.existingSecret }}, key: password}}
- name: DNP_REDIS
  {{- $urls := list }}
  {{- range ternary (list "" "-second") (list "") (eq (int .Values.redis.servers) 2) }}
  {{- $urls = append $urls (printf "redis://:$(REDIS_PASSWORD)@%s%s.%s.svc:6379" $name . $.Release.Namespace) }}
  {{- end }}
  value: {{ join "," $urls }}
{{- else if .Values.externalRedis.existingSecret }}
- name: DNP_REDIS
  valueFrom: {secretKeyRef: {name: {{ .Values.externalRedis.existingSecret }}, key: {{ .Values.externalRedis.key }}}}
{{- else if .Values.externalRedis.url }}
- name: DNP_REDIS
  value: {{ .Values.externalRedis.url | quote }}
{{- end }}
{{- end }}
