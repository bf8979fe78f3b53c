"""Finds the kubeconfig the way kubectl does, with the cluster's admin file as the last resort."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from minik8s_modules.cli.output import warn
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.bearer import in_cluster, own_namespace
from minik8s_modules.client.kubeconfig import context_namespace, find_kubeconfig, is_chosen


def connect(options: argparse.Namespace) -> ApiClient:
    """Return a client for the cluster that the options or the environment name; settles ``options.namespace``.

    In a pod, where no kubeconfig is named and none lies in the home directory, it is the pod's own account, as with
    kubectl.
    """
    asks_for_namespace = getattr(options, "namespace", "") is None
    own = None if is_chosen(options.kubeconfig) else in_cluster()
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
