"""AuthorizationPolicies: who may call what, kept by the Envoy of whoever is called.

policies, EndpointSlices ─▶ guards (pure): the policies of one Pod ─▶ filters (pure): Envoy's own, in its YAML
following: the policies there are; enforcing: which sidecars enforce them, written into their status
"""
