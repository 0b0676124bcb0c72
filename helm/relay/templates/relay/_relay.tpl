{{/* Arguments of a relay besides those of all nodes. */}}
{{- define "dnprelay.relayArgs" -}}
- --replicas={{ include "dnprelay.streamReplicas" . }}
{{- include "dnprelay.flags" (omit .Values.relay.config "replicas") }}
{{- range .Values.relay.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* How long a relay may take to hand its shards over. 10s is the default of --drain-timeout. */}}
{{- define "dnprelay.relayGrace" -}}
{{- $need := add (include "dnprelay.seconds" (default "10s" .Values.relay.config.drainTimeout)) 10 }}
{{- $given := int (default $need .Values.relay.terminationGracePeriodSeconds) }}
{{- if lt $given (int $need) }}
{{- fail (printf "relay.terminationGracePeriodSeconds=%d is too short: the drain (relay.config.drainTimeout) and a margin of 10 s need %d; leave it empty to have it computed" $given (int $need)) }}
{{- end }}
{{- $given }}
{{- end }}
