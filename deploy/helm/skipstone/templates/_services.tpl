{{/*
What the six services are: the same for every release. `calls` decides targets and policies. Who has
`ownEngines`, the default first, keeps data in its pod while `engineSetting` names one of them. Who has
`protocol: http` has one address, is asked over HTTP whether it serves, and has no token of its own,
which would be that of every caller without one; all others speak gRPC.
*/}}
{{- define "skipstone.facts" -}}
orchestrator:
  component: orchestrator
  program: orchestrator
  port: 50050
  protoService: skipstone.orchestrator.v1.Orchestrator
  calls: [embedding, vectorIndex, latentKv, denoise]
embedding:
  component: embedding
  program: embedding
  port: 50051
  protoService: skipstone.embedding.v1.Embedding
  calls: []
vectorIndex:
  component: vector-index
  program: vector_index
  port: 50052
  protoService: skipstone.vector_index.v1.VectorIndex
  calls: []
  engineSetting: engine
  ownEngines: [hnswlib]
latentKv:
  component: latent-kv
  program: latent_kv
  port: 50053
  protoService: skipstone.latent_kv.v1.LatentKV
  calls: []
  engineSetting: store
  ownEngines: [lmdb, memory]
denoise:
  component: denoise
  program: denoise
  port: 50054
  protoService: skipstone.denoise.v1.Denoise
  calls: [latentKv]
gateway:
  component: gateway
  program: gateway
  port: 8080
  protocol: http
  calls: [orchestrator, latentKv]
{{- end }}

{{/* The services that a release installs, as one YAML object by key: facts, common values, own ones. */}}
{{- define "skipstone.services" -}}
{{- $root := . -}}
{{- $services := dict -}}
{{- range $key, $facts := include "skipstone.facts" . | fromYaml -}}
{{- $own := get $root.Values $key -}}
{{- if $own.enabled -}}
{{- $service := mergeOverwrite (deepCopy $root.Values.common) (deepCopy $own) $facts -}}
{{- $_ := set $service "key" $key -}}
{{- $_ := set $service "protocol" ($facts.protocol | default "grpc") -}}
{{- $_ := set $service "ownToken" (and $root.Values.access.clientTokenSecretName $facts.calls (ne $service.protocol "http")) -}}
{{- $_ := set $service "fullname" (printf "%s-%s" (include "skipstone.fullname" $root) $facts.component) -}}
{{- $engine := include "skipstone.ownEngine" (dict "root" $root "key" $key) -}}
{{- $_ := set $service "stateful" (not (empty $engine)) -}}
{{- $_ := set $service "claim" (include "skipstone.claim" $service) -}}
{{- $_ := set $service "autoscaled" (dig "autoscaling" "enabled" false $own) -}}
{{- if and $service.stateful (or (gt (int $service.replicas) 1) $service.autoscaled) -}}
{{- fail (printf "%s keeps its data itself (%s: %s), which only one process may: replicas must be 1, without autoscaling" $key $facts.engineSetting $engine) -}}
{{- end -}}
{{- $_ := set $services $key $service -}}
{{- end -}}
{{- end -}}
{{- if not $services -}}
{{- fail "no service is enabled" -}}
{{- end -}}
{{- toYaml $services -}}
{{- end }}

{{/* The engine with which a service keeps its data itself, empty if it does not. Input: root, key. */}}
{{- define "skipstone.ownEngine" -}}
{{- $facts := get (include "skipstone.facts" .root | fromYaml) .key -}}
{{- with $facts.ownEngines -}}
{{- $engine := dig "settings" $facts.engineSetting (first .) (get $.root.Values $.key) -}}
{{- if has $engine . }}{{ $engine }}{{ end -}}
{{- end -}}
{{- end }}

{{/*
The claim of a service, empty without one. A claim cannot change its class, so that another class is
another claim, and the one before stays.
*/}}
{{- define "skipstone.claim" -}}
{{- if and .stateful .persistence.enabled -}}
{{- .persistence.existingClaim | default (list .fullname "data" .persistence.storageClass | compact | join "-") -}}
{{- end -}}
{{- end }}

{{/*
What follows the name of a service in that of its headless Service. Who may keep its data itself has two
Services, whatever its engine: none can become headless or cease to be, so callers change between them.
*/}}
{{- define "skipstone.headlessSuffix" -}}
{{ if .ownEngines }}-pods{{ end }}
{{- end }}

{{/* gRPC target of a service, for those that call it. Input: root, key, by. */}}
{{- define "skipstone.target" -}}
{{- $own := get .root.Values .key -}}
{{- $facts := get (include "skipstone.facts" .root | fromYaml) .key -}}
{{- if and $own.enabled $own.target -}}
{{- fail (printf "%s.target is for releases that do not install it: unset it, or %s.enabled" .key .key) -}}
{{- else if $own.enabled -}}
{{- $suffix := ternary (include "skipstone.headlessSuffix" $facts) "" (empty (include "skipstone.ownEngine" .)) -}}
dns:///{{ include "skipstone.fullname" .root }}-{{ $facts.component }}{{ $suffix }}:{{ $facts.port }}
{{- else if $own.target -}}
{{ $own.target }}
{{- else if not (and (eq .key "latentKv") (has .by (list "denoise" "gateway"))) -}}
{{- fail (printf "%s calls %s: enable it, or set %s.target" .by .key .key) -}}
{{- end -}}
{{- end }}
