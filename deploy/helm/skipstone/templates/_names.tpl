{{/* 38 characters leave room for the component and for the hash of a StatefulSet's revision. */}}
{{- define "skipstone.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 38 | trimSuffix "-" -}}
{{- end }}

{{- define "skipstone.releaseSelector" -}}
app.kubernetes.io/name: skipstone
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Input: root, service. */}}
{{- define "skipstone.selector" -}}
{{ include "skipstone.releaseSelector" .root }}
app.kubernetes.io/component: {{ .service.component }}
{{- end }}

{{- define "skipstone.labels" -}}
{{ include "skipstone.selector" . }}
app.kubernetes.io/part-of: skipstone
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "skipstone.image" -}}
{{- $repository := .service.image.repository | default .service.component -}}
{{- $tag := .service.image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{ .root.Values.image.registry }}/{{ $repository }}:{{ $tag }}{{ with .service.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "skipstone.serviceAccount" -}}
{{ .service.serviceAccount.name | default .service.fullname }}
{{- end }}
