"""ReplicaSets, Deployments, StatefulSets, DaemonSets: from a template and a number to pods, revision by revision."""
