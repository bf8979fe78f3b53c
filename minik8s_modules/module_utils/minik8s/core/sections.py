"""The sections of a NodeDocument, in the order in which they are realized.

Each has a module ``library/minik8s_<section>.py`` and a file of logic ``<section>.py`` beside this one.
"""

from __future__ import annotations

SECTIONS = (
    "network",
    "policies",
    "services",
    "secrets",
    "folders",
    "volumes",
    "sandboxes",
    "sidecars",
    "containers",
    "dns",
    "ingress",
)
HELD = frozenset({"network", "folders", "volumes", "sandboxes", "sidecars", "containers"})
"""Those whose keys are independent of each other, so that one can be left as somebody made it (option ``hold``)."""
