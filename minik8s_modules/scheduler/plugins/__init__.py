"""The plugins in tree, as kube-scheduler 1.32 has them, and the three policies of the original MiniK8s.

Names, arguments, order and words of the reasons are Kubernetes' (pkg/scheduler/framework/plugins).
"""
