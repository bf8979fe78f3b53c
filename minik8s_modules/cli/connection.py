"""Finds the kubeconfig the way kubectl does, with the cluster's admin file as the last resort."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.output import warn
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.bearer import in_cluster, own_namespace
from minik8s_modules.client.kubeconfig import find_kubeconfig


def connect(options: argparse.Namespace) -> ApiClient:
    """Return a client for the cluster that the options or the environment name; settles ``options.namespace``.

    In a pod, where no kubeconfig is named and none lies in the home directory, it is the pod's own account, as with
    kubectl.
    """
    asks_for_namespace = getattr(options, "namespace", "") is None
    own = None if _chosen(options.kubeconfig) else in_cluster()
    if own is not None:
        if asks_for_namespace:
            options.namespace = own_namespace()
        return ApiClient.of(own, warn=warn)
    path = find_kubeconfig(options.kubeconfig)
    if asks_for_namespace:
        options.namespace = context_namespace(path, options.context)
    return ApiClient.from_kubeconfig(path, warn=warn, context=options.context)


def client_for(argv: Sequence[str]) -> ApiClient:
    """Return a client for the cluster that kubectl's arguments name by ``--kubeconfig`` and ``--context``."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    reader.add_argument("--kubeconfig", default="")
    reader.add_argument("--context", default="")
    return connect(reader.parse_known_args(list(argv))[0])


def _chosen(option: str, environ: Mapping[str, str] = os.environ) -> bool:
    return bool(option or environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().is_file())


def read_config(path: Path) -> dict[str, Any]:
    """Return the kubeconfig as it stands in the file.

    Raises:
        UsageError: it cannot be read, or is no mapping.
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read kubeconfig {path}: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"kubeconfig {path} must hold a mapping at its top level")
    return config


def named(config: Mapping[str, Any], group: str, name: str) -> dict[str, Any] | None:
    """Return the entry ``name`` of ``contexts``, ``clusters`` or ``users``, or None."""
    entries = [entry for entry in config.get(group) or [] if isinstance(entry, dict)]
    return next((entry for entry in entries if entry.get("name") == name), None)


def context_namespace(path: Path, context: str) -> str:
    """Return the namespace of ``context``, else of the current one; ``default`` where it names none."""
    config = read_config(path)
    entry = named(config, "contexts", context or str(config.get("current-context") or ""))
    return str(((entry or {}).get("context") or {}).get("namespace") or "default")
