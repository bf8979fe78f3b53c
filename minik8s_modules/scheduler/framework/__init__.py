"""What plugins and the scheduler speak of: pods, nodes, a snapshot, statuses, the twelve extension points. Pure.

Names are those of kube-scheduler's framework (pkg/scheduler/framework of Kubernetes 1.32), as Python writes them.
"""
