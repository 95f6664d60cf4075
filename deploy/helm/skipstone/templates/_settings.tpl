{{/* A setting as its variable wants it. Numbers of values files are floats: 1.073741824e+10 is no byte count. */}}
{{- define "skipstone.settingValue" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "map" . -}}
{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end }}

{{/* The variables of a service: what the release decides, then what `settings` says. Input: root, service. */}}
{{- define "skipstone.env" -}}
{{- $values := .root.Values -}}
{{- $service := .service -}}
{{- $settings := deepCopy $service.settings -}}
{{- $own := dict
      "host" $service.host
      "port" $service.port
      "metrics_port" (ternary $values.metrics.port 0 $values.metrics.enabled)
      "drain_grace_s" $service.drainSeconds -}}
{{- $speaksGrpc := eq $service.protocol "grpc" -}}
{{- if $speaksGrpc -}}
{{- $_ := set $own "max_connection_age_s" $service.maxConnectionAgeSeconds -}}
{{- end -}}
{{- if $service.stateful -}}
{{- $_ := set $own "data_dir" (printf "/var/lib/skipstone/%s" $service.program) -}}
{{- end -}}
{{- $facts := include "skipstone.facts" .root | fromYaml -}}
{{- range $key := $service.calls -}}
{{- $target := include "skipstone.target" (dict "root" $.root "key" $key "by" $service.key) -}}
{{- $_ := set $own (printf "%s_target" (get $facts $key).program) $target -}}
{{- end -}}
{{- if dig "gpu" "enabled" false $service -}}
{{- $_ := set $own "device" $service.gpu.device -}}
{{- end -}}
{{- if dig "model" "name" "" $service -}}
{{- $_ := set $own "model" $service.model.name -}}
{{- end -}}
{{- if $values.tls.enabled -}}
{{- if $speaksGrpc -}}
{{- $_ := set $own "health_port" $values.tls.healthPort -}}
{{- end -}}
{{- range $prefix := ternary (list "" "client_") (list "") (not (empty $service.calls)) -}}
{{- $_ := set $own (printf "%stls_cert_file" $prefix) "/etc/skipstone/tls/tls.crt" -}}
{{- $_ := set $own (printf "%stls_key_file" $prefix) "/etc/skipstone/tls/tls.key" -}}
{{- /* Browsers and kubelets have no certificate to show: callers of HTTP prove themselves by tokens. */ -}}
{{- if or $speaksGrpc $prefix -}}
{{- $_ := set $own (printf "%stls_ca_file" $prefix) "/etc/skipstone/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if and $service.calls $values.tls.serverName -}}
{{- $_ := set $own "client_tls_server_name" $values.tls.serverName -}}
{{- end -}}
{{- end -}}
{{- if and $values.access.secretName $speaksGrpc -}}
{{- $_ := set $own "access_file" "/etc/skipstone/access/access" -}}
{{- end -}}
{{- if $service.ownToken -}}
{{- $_ := set $own "client_token_file" "/etc/skipstone/token/token" -}}
{{- end -}}
{{- range $name, $value := mergeOverwrite $settings $own }}
- name: {{ printf "SKIPSTONE_%s_%s" $service.program $name | upper }}
  value: {{ include "skipstone.settingValue" $value | quote }}
{{- end }}
{{- end }}
