{{/* The controller's pods, and nothing else. Never changes: a Deployment's selector can't. */}}
{{- define "cosid.selector" -}}
app.kubernetes.io/name: cosid-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "cosid.labels" -}}
{{ include "cosid.selector" . }}
app.kubernetes.io/part-of: cosid
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A generated document, `.text`, with the labels of `.root`. */}}
{{- define "cosid.labelled" -}}
{{- $object := fromYaml .text }}
{{- $labels := fromYaml (include "cosid.labels" .root) }}
{{- toYaml (mergeOverwrite $object (dict "metadata" (dict "labels" $labels))) }}
{{- end }}

{{/* Which nodes the replicas share. Compared with those of the same revision only: with as many nodes as replicas, an
     upgrade that may not take one away first would find no place for the next. */}}
{{- define "cosid.spread" -}}
{{- $term := dict
  "topologyKey" "kubernetes.io/hostname"
  "labelSelector" (dict "matchLabels" (fromYaml (include "cosid.selector" .)))
  "matchLabelKeys" (list "pod-template-hash") }}
{{- $required := eq .Values.controller.spread "required" }}
affinity:
  podAntiAffinity:
    {{- if $required }}
    requiredDuringSchedulingIgnoredDuringExecution: {{- list $term | toYaml | nindent 4 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution: {{- list (dict "weight" 100 "podAffinityTerm" $term) | toYaml | nindent 4 }}
    {{- end }}
topologySpreadConstraints:
- topologyKey: topology.kubernetes.io/zone
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "cosid.selector" . | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}

{{/* Quantities as JSON: as texts, as the API takes them. */}}
{{- define "cosid.quantities" -}}
{{- $texts := dict }}
{{- range $name, $quantity := . }}
{{- $_ := set $texts $name (toString $quantity) }}
{{- end }}
{{- toJson $texts }}
{{- end }}

{{/* What agents get, as JSON. */}}
{{- define "cosid.agentResources" -}}
{"requests":{{ include "cosid.quantities" .Values.agent.resources.requests }},"limits":{{ include "cosid.quantities" .Values.agent.resources.limits }}}
{{- end }}
