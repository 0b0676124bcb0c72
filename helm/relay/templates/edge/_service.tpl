{{/* The spec of a service of edges, except its ports: (dict "root" $ "values" .Values.edge.service). */}}
{{- define "dnprelay.serviceSpec" -}}
{{- with .values -}}
type: {{ .type }}
{{- if or .externalIPs (ne .type "ClusterIP") }}
externalTrafficPolicy: {{ .externalTrafficPolicy }}
{{- end }}
{{- if eq .type "LoadBalancer" }}
{{- with .loadBalancerClass }}
loadBalancerClass: {{ . }}
{{- end }}
{{- with .loadBalancerIP }}
loadBalancerIP: {{ . }}
{{- end }}
{{- with .loadBalancerSourceRanges }}
loadBalancerSourceRanges:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not .allocateLoadBalancerNodePorts }}
allocateLoadBalancerNodePorts: false
{{- end }}
{{- with .healthCheckNodePort }}
healthCheckNodePort: {{ . }}
{{- end }}
{{- end }}
{{- with .externalIPs }}
externalIPs:
  {{- toYaml . | nindent 2 }}
{{- end }}
ipFamilyPolicy: {{ .ipFamilyPolicy }}
{{- with .ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
selector:
  {{- include "dnprelay.selector" (dict "root" .root "component" "edge") | nindent 2 }}
{{- end }}
