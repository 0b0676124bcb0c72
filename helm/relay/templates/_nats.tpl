{{/* The addresses of NATS and the logins. */}}

{{/* Addresses of the servers of the chart, each by the name of its pod, so that no client is
sent to one that has just died. */}}
{{- define "dnprelay.natsBundled" -}}
{{- $name := printf "%s-nats" (include "dnprelay.release" .) }}
{{- $urls := list }}
{{- range $i := until (int .Values.nats.replicas) }}
{{- $urls = append $urls (printf "nats://%s-%d.%s-headless.%s.svc:4222" $name $i $name $.Release.Namespace) }}
{{- end }}
{{- join "," $urls }}
{{- end }}

{{/* Secret with the passwords of the chart's own servers. */}}
{{- define "dnprelay.natsSecret" -}}
{{- default (printf "%s-nats-auth" (include "dnprelay.release" .)) .Values.nats.existingSecret }}
{{- end }}

{{/* Environment of a container that connects to NATS: (dict "root" $ "role" "edge"). */}}
{{- define "dnprelay.natsEnv" -}}
{{- $root := .root }}
{{- $e := $root.Values.externalNats }}
{{- $secret := default $e.existingSecret (get $e.existingSecrets .role) }}
{{- $user := ternary (printf "%s2" .role) .role (eq (get $root.Values.nats.secondUsers .role) "used") }}
{{- if $root.Values.nats.enabled }}
- name: DNP_NATS_URL
  value: {{ include "dnprelay.natsBundled" $root | quote }}
- name: DNP_NATS_USER
  value: {{ $user }}
- name: DNP_NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "dnprelay.natsSecret" $root }}, key: {{ $user }}}}
{{- else if and $secret (eq $e.login "url") }}
- name: DNP_NATS_URL
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: url}}
{{- else }}
- name: DNP_NATS_URL
  value: {{ $e.url | quote }}
{{- if and $secret (eq $e.login "password") }}
- name: DNP_NATS_USER
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: username}}
- name: DNP_NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: password}}
{{- else if $secret }}
- name: {{ eq $e.login "nkey" | ternary "DNP_NATS_NKEY" "DNP_NATS_CREDS" }}
  value: /etc/dnprelay/nats/nats.{{ $e.login }}
{{- end }}
{{- if $e.clientCertSecret }}
- name: DNP_NATS_CERT
  value: /etc/dnprelay/nats-tls/tls.crt
- name: DNP_NATS_KEY
  value: /etc/dnprelay/nats-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/* Mounts and volumes of a container that connects to NATS: (dict "root" $ "role" "edge"). */}}
{{- define "dnprelay.natsMounts" -}}
{{- if include "dnprelay.natsFile" . }}
- {name: nats, mountPath: /etc/dnprelay/nats, readOnly: true}
{{- end }}
{{- if and (not .root.Values.nats.enabled) .root.Values.externalNats.clientCertSecret }}
- {name: nats-tls, mountPath: /etc/dnprelay/nats-tls, readOnly: true}
{{- end }}
{{- if .root.Values.trustedCA.existingSecret }}
- {name: ca, mountPath: /etc/dnprelay/ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "dnprelay.natsVolumes" -}}
{{- $e := .root.Values.externalNats }}
{{- with include "dnprelay.natsFile" . }}
- name: nats
  secret: {secretName: {{ . }}, items: [{key: nats.{{ $e.login }}, path: nats.{{ $e.login }}}]}
{{- end }}
{{- if and (not .root.Values.nats.enabled) $e.clientCertSecret }}
- name: nats-tls
  secret: {secretName: {{ $e.clientCertSecret }}}
{{- end }}
{{- with .root.Values.trustedCA.existingSecret }}
- name: ca
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{/* Secret with the file with which a role logs in; empty if it uses none. */}}
{{- define "dnprelay.natsFile" -}}
{{- $e := .root.Values.externalNats }}
{{- if and (not .root.Values.nats.enabled) (has $e.login (list "creds" "nkey")) }}{{ default $e.existingSecret (get $e.existingSecrets .role) }}{{ end }}
{{- end }}

{{/* Copies of the streams: the operator's number, or as many as the servers of the chart. */}}
{{- define "dnprelay.streamReplicas" -}}
{{- if .Values.relay.config.replicas }}{{ int .Values.relay.config.replicas }}
{{- else if .Values.nats.enabled }}{{ min 3 (int .Values.nats.replicas) }}
{{- else }}{{ int .Values.externalNats.replicas }}{{ end }}
{{- end }}
