"""Workloads of kube-scheduler's scheduler_perf as upstream's YAML describes them, against any API server.

``operations`` reads and checks a case, ``templates`` its objects, ``seen`` watches pods and takes the samples, and
``workload`` does the operations. Source: kubernetes 1.32 ``test/integration/scheduler_perf``.
"""
