"""Whether the server lives and is ready, and what it is: /livez, /readyz, /healthz, /version.

``/livez`` fails only when this process cannot do its work any more (the hub's thread is gone): restarting
helps then. ``/readyz`` and ``/healthz`` also ask for what others must give: etcd answers, the cache is
loaded, the start-up objects exist. Texts are those of kube-apiserver: ``ok``, or one line a check, ``[+]``
or ``[-]``; ``?verbose`` always shows the lines, and ``/readyz/NAME`` runs one check. What passes and is worth a
remark has it behind the ``ok``: ``[+]etcd ok: slow: …``.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping

from minik8s_modules import __version__
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.structural import KUBERNETES_VERSION

Check = Callable[[], str]  # returns why it fails, "" when it does not


def report(name: str, checks: Mapping[str, Check], remarks: Mapping[str, Check], *, verbose: bool) -> tuple[str, bool]:
    """Return the text of a health endpoint and whether all checks passed; ``remarks`` are made on those that did."""
    failures = {label: check() for label, check in checks.items()}
    healthy = not any(failures.values())
    if healthy and not verbose:
        return "ok", True
    notes = {label: remarks[label]() for label, why in failures.items() if not why and label in remarks}
    lines = [
        f"[-]{label} failed: {why}" if why else f"[+]{label} ok{f': {notes[label]}' if notes.get(label) else ''}"
        for label, why in failures.items()
    ]
    lines.append(f"{name} check {'passed' if healthy else 'failed'}")
    return "\n".join(lines) + "\n", healthy


def version() -> JsonObject:
    """Return the version.Info: the Kubernetes version whose API is served, with ours as build metadata."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{KUBERNETES_VERSION}+minik8s-{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": sys.implementation.name,
        "platform": f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }",
    }
