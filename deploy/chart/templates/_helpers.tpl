{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Of the cores of one cell, which no Service of the facades may select. */ -}}
{{- define "gateway.cellLabels" -}}
{{- $root := index . 0 -}}
{{- $cell := index . 1 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}-core
app.kubernetes.io/instance: {{ $root.Release.Name }}
model-gateway/cell: {{ $cell.name | quote }}
{{- end }}

{{- /* CORE_ADDRESS of the facades. */ -}}
{{- define "gateway.coreAddress" -}}
{{- range $index, $cell := .Values.cells -}}
{{- if $index }},{{ end }}{{ $cell.name }}={{ $.Release.Name }}-cell-{{ $cell.name }}:50051
{{- end -}}
{{- end }}

{{- /* Fails with a sentence for values that contradict each other. */ -}}
{{- define "gateway.check" -}}
{{- with .Values.grpc }}
{{- if and .enabled (not .tlsSecretName) (not .allowPlaintext) }}
{{- fail "grpc.enabled: set grpc.tlsSecretName, or grpc.allowPlaintext for a network that encrypts" }}
{{- end }}
{{- if and .tlsSecretName .allowPlaintext }}
{{- fail "grpc.tlsSecretName and grpc.allowPlaintext: set one of them" }}
{{- end }}
{{- if and .tlsSecretName (not .enabled) (not $.Values.cells) }}
{{- fail "grpc.tlsSecretName is set, and grpc.enabled is not" }}
{{- end }}
{{- end }}
{{- if .Values.cells }}
{{- if and (not .Values.grpc.tlsSecretName) (not .Values.grpc.allowPlaintext) }}
{{- fail "cells: set grpc.tlsSecretName, or grpc.allowPlaintext for a network that encrypts" }}
{{- end }}
{{- if or .Values.verifier.enabled .Values.backup.enabled }}
{{- fail "cells: verifier and backup look at one database; turn them off, and run them for each cell" }}
{{- end }}
{{- range .Values.cells }}
{{- if not (regexMatch "^[0-9]{2}$" (toString .name)) }}
{{- fail (printf "cells: the name %s is not two digits in quotes" (toString .name)) }}
{{- end }}
{{- if not .secretName }}
{{- fail (printf "cells: the cell %s has no secretName" .name) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" }}
{{- end }}
{{- end }}
{{- $host := (splitList ":" (urlParse (toString .Values.env.PUBLIC_URL)).host) | first }}
{{- with .Values.ingress }}
{{- if and .enabled (ne .host $host) }}
{{- fail (printf "ingress.host is %s, and env.PUBLIC_URL has %s: people reach the console at one of them" .host $host) }}
{{- end }}
{{- end }}
{{- with .Values.httpRoute }}
{{- if and .enabled (not .parentRefs) }}
{{- fail "httpRoute.enabled: name a gateway in httpRoute.parentRefs" }}
{{- end }}
{{- if and .enabled (not (has $host .hostnames)) }}
{{- fail (printf "httpRoute.hostnames lacks %s, the host of env.PUBLIC_URL" $host) }}
{{- end }}
{{- end }}
{{- with .Values.networkPolicy }}
{{- if and .enabled $.Values.serviceMonitor.enabled (not .metricsFrom) }}
{{- fail "serviceMonitor.enabled: let Prometheus in by networkPolicy.metricsFrom" }}
{{- end }}
{{- end }}
{{- with .Values.backup }}
{{- if and .enabled (not .volume) }}
{{- fail "backup.enabled: set backup.volume, such as persistentVolumeClaim.claimName" }}
{{- end }}
{{- end }}
{{- end }}
