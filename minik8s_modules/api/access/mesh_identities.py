"""What the pilot asks the signer for: a certificate that says which service account a Pod in the mesh has.

Its authority is one of the mesh alone: who has a certificate of the cluster is nobody in the mesh, and the other way
round. With the certificate comes what to trust: every certificate in the authority's file, so that during an exchange
of authorities all sidecars come to know the next one.
"""

from __future__ import annotations

MESH = "minik8s.io/mesh"
"""Name of the signer."""
SIDECAR = "sidecar"
"""The common name, which says nothing."""
USAGES = frozenset({"digital signature", "client auth", "server auth"})
