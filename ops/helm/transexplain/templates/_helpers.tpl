{{/* Names, labels and what all pods have in common. */}}

{{- define "transexplain.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "transexplain.labels" -}}
app.kubernetes.io/name: transexplain
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "transexplain.selector" -}}
app.kubernetes.io/name: transexplain
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* What a pod's spec begins with: whose rights it has, and where its image comes from. */}}
{{- define "transexplain.pod" -}}
{{- with .Values.serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "transexplain.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Variables of a container; `url` is the key of the Secret that its database's URL lies under. */}}
{{- define "transexplain.env" -}}
- name: TRANSEXPLAIN_DATABASE_URL_FILE
  value: /run/secrets/transexplain/{{ .url }}
{{- if .broker }}
- name: TRANSEXPLAIN_BROKER_URL_FILE
  value: /run/secrets/transexplain/{{ .root.Values.secret.brokerUrl }}
{{- end }}
{{- with .root.Values.snapshots }}
{{- if .claim }}
- name: TRANSEXPLAIN_SNAPSHOT_DIR
  value: {{ .path }}
{{- end }}
{{- end }}
- name: HOME  # caches of compiled steps; nothing else of the container can be written
  value: /tmp
{{- range $name, $key := .root.Values.extraSecrets }}
- name: {{ $name }}_FILE
  value: /run/secrets/transexplain/{{ $key }}
{{- end }}
{{- range $name, $value := .root.Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "transexplain.mounts" -}}
- name: secrets
  mountPath: /run/secrets/transexplain
  readOnly: true
- name: scratch
  mountPath: /tmp
{{- with .Values.snapshots }}
{{- if .claim }}
- name: snapshots
  mountPath: {{ .path }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of a pod; `keys` are those of the Secret that it may read. */}}
{{- define "transexplain.volumes" -}}
- name: secrets
  secret:
    secretName: {{ .root.Values.secret.name }}
    defaultMode: 0440
    items:
      {{- range $key := uniq (concat .keys (values .root.Values.extraSecrets)) }}
      - key: {{ $key }}
        path: {{ $key }}
      {{- end }}
- name: scratch
  emptyDir: {}
{{- with .root.Values.snapshots }}
{{- if .claim }}
- name: snapshots
  persistentVolumeClaim:
    claimName: {{ .claim }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The query of `transexplain fleet waiting --sql` for a class of workers. */}}
{{- define "transexplain.waiting" -}}
{{- $plan := `run.plan LIKE '%"dtype":"%","device":"cpu%'` -}}
{{- if eq .deviceClass "gpu" -}}
{{- $plan = $plan | replace " LIKE " " NOT LIKE " -}}
{{- end -}}
{{- $looks := list -}}
{{- range sortAlpha .modalities -}}
{{- $looks = append $looks (printf `run.plan LIKE '%%"modality":"%s","classes":%%'` .) -}}
{{- end -}}
SELECT COALESCE(SUM(CASE WHEN most_workers < shards THEN most_workers ELSE shards END), 0) AS shards FROM (SELECT run.most_workers, COUNT(shard.run_id) + CASE WHEN run.paused IS NULL THEN COALESCE(MAX((pending_shards.stop - pending_shards.start + pending_shards.size - 1) / pending_shards.size), 0) ELSE 0 END AS shards FROM run LEFT JOIN shard ON shard.run_id = run.id AND shard.state IN ('queued', 'running') AND (run.paused IS NULL OR shard.state = 'running') LEFT JOIN pending_shards ON pending_shards.run_id = run.id WHERE run.state = 'running' AND {{ $plan }}{{ if $looks }} AND ({{ join " OR " $looks }}){{ end }} GROUP BY run.id, run.most_workers, run.paused) AS need
{{- end -}}
