"""From a manifest to the canonical object: dialect, version, defaults, in this order.

``dialect`` turns the original MiniK8s' manifests into Kubernetes' form, ``conversion`` other versions of a kind into
the stored one, and ``defaults`` (with one module for each family of kinds) fills in what Kubernetes fills in.
"""
