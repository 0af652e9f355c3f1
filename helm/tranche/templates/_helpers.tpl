{{/* Labels of one component: dict "root" $ "component" "scheduler". */}}
{{- define "tranche.labels" -}}
{{ include "tranche.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tranche
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* What never changes of them. */}}
{{- define "tranche.selector" -}}
app.kubernetes.io/name: tranche
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Reference of an image: dict "registry" "" "image" .Values.x.image "tag" "default". */}}
{{- define "tranche.image" -}}
{{- with .registry }}{{ . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end }}

{{/* Release of the API server without what a vendor appended (v1.36.2+k3s1, v1.35.1-gke.100); pre-releases keep theirs. */}}
{{- define "tranche.kubeVersion" -}}
{{- regexFind "^v[0-9]+[.][0-9]+[.][0-9]+(-(alpha|beta|rc)[.][0-9]+)?" .Capabilities.KubeVersion.Version
    | required "the cluster's release is unknown: set kubeScheduler.image.tag" -}}
{{- end }}

{{/* A file of the repository's manifests, in the release's namespace; a Namespace object is helm's matter. */}}
{{- define "tranche.manifest" -}}
{{- $namespace := .root.Release.Namespace }}
{{- range splitList "\n---\n" (.root.Files.Get .file) }}
{{- if not (regexMatch "(?m)^kind: Namespace$" .) }}
---
{{ . | trim | replace "namespace: tranche-system" (printf "namespace: %s" $namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The restricted Pod Security standard, for a pod and for a container. */}}
{{- define "tranche.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "tranche.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where tranche's own pods may run. */}}
{{- define "tranche.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Configuration of the second kube-scheduler, in the release's namespace. */}}
{{- define "tranche.schedulerConfig" -}}
{{- $bind := .Values.scheduler.bind | ternary "\n    bindVerb: bind" "" }}
{{- .Files.Get "files/scheduler-config.yaml" | trim
    | replace "resourceNamespace: tranche-system" (printf "resourceNamespace: %s" .Release.Namespace)
    | replace "preemptVerb: preempt" (printf "preemptVerb: preempt%s" $bind) }}
{{- end }}

{{/* Command that succeeds when the scheduler's path answers 200. */}}
{{- define "tranche.probe" -}}
[python, -c, "import urllib.request as r; r.urlopen('http://127.0.0.1:10262/{{ . }}', timeout=4)"]
{{- end }}
