apiVersion: helm.example.org/v1
kind: Shop
metadata:
  name: {{ .Release.Name }}
spec:
  colour: {{ .Values.colour }}
  ports: {{ .Values.ports | toJson }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .Release.Name }}-shops
rules:
  - {apiGroups: [helm.example.org], resources: [shops], verbs: [get, list, watch]}
