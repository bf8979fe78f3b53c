"""minik8s: a Kubernetes that is driven by Ansible. The rooms are described in ARCHITECTURE.md."""

from __future__ import annotations

from minik8s_modules.base.seldom import come_later, is_daemon

__version__ = "0.1.0"

if is_daemon():
    come_later()  # before anything else is imported: see there
