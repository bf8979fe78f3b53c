"""Names and hosts: the cluster's own domain, which namespace may have which host, and which route gets it.

``ingress_routes`` decides by ``host_grants`` and ``cluster_names``, for API server, controllers and reconciler alike.
"""
