{{/* A probe: of the health service, or of the path of an HTTP service. Input: root, service, path. */}}
{{- define "skipstone.probe" -}}
{{- if eq .service.protocol "http" -}}
httpGet:
  port: {{ .service.port }}
  path: {{ .path }}
  scheme: {{ ternary "HTTPS" "HTTP" .root.Values.tls.enabled }}
{{- else -}}
grpc:
  port: {{ ternary .root.Values.tls.healthPort .service.port .root.Values.tls.enabled }}
  service: {{ .service.protoService }}
{{- end -}}
{{- end }}

{{/* The pod of a service. Input: root, service. */}}
{{- define "skipstone.pod" -}}
{{- $values := .root.Values -}}
{{- $service := .service -}}
{{- $gpu := dig "gpu" "enabled" false $service -}}
metadata:
  labels:
    {{- include "skipstone.labels" . | nindent 4 }}
    {{- with $service.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $service.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "skipstone.serviceAccount" . }}
  automountServiceAccountToken: false
  # The variables it would inject have the names of settings.
  enableServiceLinks: false
  # In the end the program closes what it has open, and the orchestrator saves what waits.
  terminationGracePeriodSeconds: {{ add $service.preStopSeconds $service.drainSeconds (dig "save_drain_s" 10 $service.settings) 20 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $service.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $service.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $service.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with ternary (merge (deepCopy $service.nodeSelector) (dig "gpu" "nodeSelector" dict $service)) $service.nodeSelector $gpu }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with ternary (concat $service.tolerations (dig "gpu" "tolerations" list $service)) $service.tolerations $gpu }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $service.topologySpread.enabled (not $service.stateful) }}
  topologySpreadConstraints:
    {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: {{ $service.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "skipstone.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $service.component }}
      image: {{ include "skipstone.image" . }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: [skipstone-{{ $service.component }}]
      {{- with $service.extraArgs }}
      args:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      env:
        {{- include "skipstone.env" . | trim | nindent 8 }}
        {{- with $service.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $service.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: {{ $service.protocol }}
          containerPort: {{ $service.port }}
        {{- if $values.metrics.enabled }}
        - name: metrics
          containerPort: {{ $values.metrics.port }}
        {{- end }}
        {{- if and $values.tls.enabled (eq $service.protocol "grpc") }}
        - name: health
          containerPort: {{ $values.tls.healthPort }}
        {{- end }}
      startupProbe:
        {{- include "skipstone.probe" (merge (dict "path" "/livez") .) | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add $service.startupSeconds 4) 5 }}
      readinessProbe:
        {{- include "skipstone.probe" (merge (dict "path" "/healthz") .) | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      # Slow on purpose: what is only busy must not be ended.
      livenessProbe:
        {{- include "skipstone.probe" (merge (dict "path" "/livez") .) | nindent 8 }}
        periodSeconds: 15
        timeoutSeconds: 10
        failureThreshold: 4
      {{- if $service.preStopSeconds }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ $service.preStopSeconds }}
      {{- end }}
      resources:
        {{- $resources := deepCopy $service.resources }}
        {{- if $gpu }}
        {{- $limits := merge (dict $service.gpu.resource $service.gpu.count) ($resources.limits | default dict) }}
        {{- $_ := set $resources "limits" $limits }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- if $service.stateful }}
        - name: data
          mountPath: /var/lib/skipstone
        {{- end }}
        {{- if $service.sharedMemorySize }}
        - name: shared-memory
          mountPath: /dev/shm
        {{- end }}
        {{- if dig "model" "existingClaim" "" $service }}
        - name: models
          mountPath: /models
          readOnly: true
        {{- end }}
        {{- if $values.tls.enabled }}
        - name: tls
          mountPath: /etc/skipstone/tls
          readOnly: true
        {{- end }}
        {{- if and $values.access.secretName (eq $service.protocol "grpc") }}
        - name: access
          mountPath: /etc/skipstone/access
          readOnly: true
        {{- end }}
        {{- if $service.ownToken }}
        - name: token
          mountPath: /etc/skipstone/token
          readOnly: true
        {{- end }}
        {{- with $service.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ $service.tmpSize }}
    {{- if $service.sharedMemorySize }}
    - name: shared-memory
      emptyDir:
        medium: Memory
        sizeLimit: {{ $service.sharedMemorySize }}
    {{- end }}
    {{- if $service.claim }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ $service.claim }}
    {{- else if $service.stateful }}
    - name: data
      emptyDir:
        sizeLimit: {{ $service.persistence.size }}
    {{- end }}
    {{- with dig "model" "existingClaim" "" $service }}
    - name: models
      persistentVolumeClaim:
        claimName: {{ . }}
        readOnly: true
    {{- end }}
    {{- if $values.tls.enabled }}
    - name: tls
      secret:
        secretName: {{ required "tls.enabled needs tls.secretName" $values.tls.secretName }}
        defaultMode: 0440
    {{- end }}
    {{- if and $values.access.secretName (eq $service.protocol "grpc") }}
    - name: access
      secret:
        secretName: {{ $values.access.secretName }}
        defaultMode: 0440
    {{- end }}
    {{- if $service.ownToken }}
    - name: token
      secret:
        secretName: {{ $values.access.clientTokenSecretName }}
        defaultMode: 0440
    {{- end }}
    {{- with $service.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
