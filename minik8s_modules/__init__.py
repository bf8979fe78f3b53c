"""minik8s: a Kubernetes that is driven by Ansible. The rooms are described in ARCHITECTURE.md."""

from __future__ import annotations

__version__ = "0.1.0"
