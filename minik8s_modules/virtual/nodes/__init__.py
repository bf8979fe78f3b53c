"""Node objects of virtual nodes: made, kept alive and told; virtual-kubelet's ``NodeController``.

declared    the Node as it is first registered
patching    what to change of the one that is there: others' conditions, labels and annotations stay
controller  pings, Leases and statuses of all nodes of a process
"""
