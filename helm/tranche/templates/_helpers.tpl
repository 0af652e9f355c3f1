{{/* Labels of one component: dict "root" $ "component" "scheduler"; without a component, the labels of the release. */}}
{{- define "tranche.labels" -}}
{{ include "tranche.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tranche
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Selector labels, which never change. */}}
{{- define "tranche.selector" -}}
app.kubernetes.io/name: tranche
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Reference of an image: dict "registry" "" "image" .Values.x.image "tag" "default". */}}
{{- define "tranche.image" -}}
{{- with .image.registry | default .registry }}{{ . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end }}

{{/* Release of the API server without what a vendor appended (v1.36.2+k3s1, v1.35.1-gke.100); pre-releases keep theirs.
Argo CD passes v1.36 without a patch level: then the first one, which is not newer than the API server. */}}
{{- define "tranche.kubeVersion" -}}
{{- $version := regexReplaceAll "^(v[0-9]+[.][0-9]+)$" .Capabilities.KubeVersion.Version "${1}.0" }}
{{- regexFind "^v[0-9]+[.][0-9]+[.][0-9]+(-(alpha|beta|rc)[.][0-9]+)?" $version
    | required "the cluster's release is unknown: set kubeScheduler.image.tag" -}}
{{- end }}

{{/* A file of the repository's manifests, labelled and in the release's namespace, without the Namespace object.
"drop" has names, kinds or KIND/NAME of objects to leave out, "accounts" gives the accounts their annotations, and "only"
limits the ClusterRole of a name to some resources. */}}
{{- define "tranche.manifest" -}}
{{- $common := include "tranche.labels" (dict "root" .root) | fromYaml }}
{{- $moved := .root.Files.Get .file | replace "namespace: tranche-system" (printf "namespace: %q" .root.Release.Namespace) }}
{{- $moved = $moved | replace "serviceaccount:tranche-system:" (printf "serviceaccount:%s:" .root.Release.Namespace) }}
{{- $drop := .drop | default list }}
{{- $accounts := .accounts | default dict }}
{{- $only := .only | default dict }}
{{- range splitList "\n---\n" $moved }}
{{- $object := fromYaml . }}
{{- $metadata := $object.metadata }}
{{- $one := printf "%s/%s" $object.kind $metadata.name }}
{{- if not (or (eq $object.kind "Namespace") (has $metadata.name $drop) (has $object.kind $drop) (has $one $drop)) }}
{{- $_ := set $metadata "labels" (merge $metadata.labels $common) }}
{{- if eq $object.kind "ServiceAccount" }}
{{- with get $accounts $metadata.name }}{{ $_ := set $metadata "annotations" . }}{{ end }}
{{- end }}
{{- if eq $object.kind "ClusterRole" }}
{{- with get $only $metadata.name }}
{{- $resources := . }}
{{- $rules := list }}
{{- range $object.rules }}
{{- if has (first .resources) $resources }}{{ $rules = append $rules . }}{{ end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{/* The restricted Pod Security standard, for a pod and for a container. */}}
{{- define "tranche.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "tranche.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Tolerations that let a pod leave a lost node after nodeLossSeconds instead of the default of 300 s. */}}
{{- define "tranche.nodeLoss" -}}
{{- range list "not-ready" "unreachable" }}
- {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ int64 $.nodeLossSeconds }}}
{{- end }}
{{- end }}

{{/* Scheduling constraints of a component: dict "root" $ "component" "scheduler". */}}
{{- define "tranche.placement" -}}
{{- $values := .root.Values }}
{{- $own := index $values .component }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $own.nodeSelector | default $values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
tolerations: {{ concat ($own.tolerations | default $values.tolerations | default list) (include "tranche.nodeLoss" $values | fromYamlArray) | toJson }}
{{- with $own.affinity | default $values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with $own.topologySpreadConstraints }}
topologySpreadConstraints: {{ toJson . }}
{{- else }}
{{- if gt (int ($own.replicas | default 1)) 1 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    # Two replicas on one node would both end with it. Without a second node that takes pods, they may share one.
    whenUnsatisfiable: DoNotSchedule
    nodeTaintsPolicy: Honor
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "tranche.selector" . | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Configuration of the second kube-scheduler, in the release's namespace. */}}
{{- define "tranche.schedulerConfig" -}}
{{- $config := .Files.Get "files/scheduler-config.yaml" | fromYaml }}
{{- $_ := set $config.clientConnection "qps" .Values.kubeScheduler.qps }}
{{- $_ := set $config.clientConnection "burst" .Values.kubeScheduler.burst }}
{{- $_ := set $config.leaderElection "resourceNamespace" .Release.Namespace }}
{{- range $config.extenders }}
{{- $_ := set . "httpTimeout" $.Values.kubeScheduler.extenderTimeout }}
{{- if $.Values.scheduler.bind }}{{ $_ := set . "bindVerb" "bind" }}{{ end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* The probes of a container: dict "values" .Values.x "port" "health" "scheme" "HTTP" "alive" "/healthz". */}}
{{- define "tranche.probes" -}}
{{- range $kind, $path := dict "startupProbe" .alive "livenessProbe" .alive "readinessProbe" "/readyz" }}
{{ $kind }}:
  httpGet: {path: {{ $path }}, port: {{ $.port }}, scheme: {{ $.scheme }}}
  {{- with index $.values $kind }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Container of one process of the scheduler: dict "root" $ "name" "planner" "args" list "ports" list "metrics" "metrics"
(name of the port with the probes) "resources" dict "mounts" list. */}}
{{- define "tranche.process" -}}
{{- $values := .root.Values }}
- name: {{ .name }}
  image: {{ include "tranche.image" (dict "registry" $values.image.registry "image" $values.scheduler.image "tag" .root.Chart.AppVersion) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  command: [tranche, {{ .name }}]
  args:
    {{- range .args }}
    - {{ . | quote }}
    {{- end }}
  env:
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- with $values.scheduler.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    {{- range .ports }}
    - {{ toJson . }}
    {{- end }}
  {{- include "tranche.probes" (dict "values" $values.scheduler "port" .metrics "scheme" "HTTP" "alive" "/healthz") | trim | nindent 2 }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  securityContext:
    {{- include "tranche.containerSecurity" . | nindent 4 }}
  {{- with .mounts }}
  volumeMounts:
    {{- range . }}
    - {{ toJson . }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* Peers of a NetworkPolicy: the given ones and the pod of helm test, or all pods of the cluster: dict "root" $ "from" list. */}}
{{- define "tranche.peers" -}}
{{- $test := include "tranche.selector" (dict "root" .root "component" "test") | fromYaml }}
{{- $test = dict "podSelector" (dict "matchLabels" $test) }}
{{- .from | empty | ternary (list (dict "namespaceSelector" dict)) (append (.from | default list) $test) | toJson }}
{{- end }}
