"""Finds the kubeconfig the way kubectl does, with the cluster's admin file as the last resort."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.output import YELLOW, Paint
from minik8s_modules.client.api import ApiClient

ADMIN_KUBECONFIG = Path("/etc/minik8s/admin.kubeconfig")


def kubeconfig_path(option: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the first kubeconfig that is given or exists: option, $KUBECONFIG, ~/.kube/config, the admin's.

    Raises:
        UsageError: the named file does not exist, or there is none at all.
    """
    named = option or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if named:
        if not Path(named).is_file():
            raise UsageError(f"kubeconfig {named} does not exist; check --kubeconfig and $KUBECONFIG")
        return Path(named)
    for candidate in (Path("~/.kube/config").expanduser(), ADMIN_KUBECONFIG):
        if candidate.is_file():
            return candidate
    raise UsageError(
        f"no kubeconfig found; give --kubeconfig FILE, or install a cluster (it writes {ADMIN_KUBECONFIG})"
    )


def connect(option: str) -> ApiClient:
    """Return a client for the cluster that ``option`` or the environment names."""
    return ApiClient.from_kubeconfig(kubeconfig_path(option), warn=_warn)


def _warn(text: str) -> None:
    print(Paint(sys.stderr)(f"Warning: {text}", YELLOW), file=sys.stderr)
