"""Everything that the extension puts into a cluster, as objects; the playbook applies and removes them.

python -m minik8s_virtual_machines.installation --address 192.0.2.1 --port 6452 --ca pki/ca.crt > objects.yml
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.api.definitions import definitions
from minik8s_virtual_machines.api.kinds import GROUP, MIGRATION, REPLICA_SET, SUBRESOURCES, VERSION, VM, VMI

NAMESPACE, SERVICE = "kubevirt", "virt-api"
NAME = "minik8s-virtual-machines"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
_LABELS = {"app.kubernetes.io/part-of": NAME}


def objects(addresses: Sequence[str], port: int, ca_pem: bytes) -> list[JsonObject]:
    """Return the objects, in the order in which they are made.

    Args:
        addresses: of the machines that run the daemon.
        port: at which it serves.
        ca_pem: the authority that signed its certificate for ``SERVER_NAME``.
    """
    bundle = base64.b64encode(ca_pem).decode()
    own = [*definitions(), *roles(), *policies()]
    return [*own, *_service(addresses, port), *_webhooks(bundle), _api_service(bundle)]


def roles() -> list[JsonObject]:
    """Return the roles of users and of the daemon."""
    text = resources.files(__package__ or "").joinpath("roles.yml").read_text(encoding="utf-8")
    return [dict(each) for each in yaml.safe_load_all(text)]


def policies() -> list[JsonObject]:
    """Return the policy by which nobody but the daemon makes launchers' pods."""
    text = resources.files(__package__ or "").joinpath("policies.yml").read_text(encoding="utf-8")
    return [dict(each) for each in yaml.safe_load_all(text)]


def _service(addresses: Sequence[str], port: int) -> list[JsonObject]:
    meta = {"name": SERVICE, "namespace": NAMESPACE, "labels": _LABELS}
    of_service = {**_LABELS, "kubernetes.io/service-name": SERVICE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": _LABELS}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port, "protocol": "TCP"}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": of_service},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
    ]


def _client(bundle: str, path: str) -> JsonObject:
    return {"caBundle": bundle, "service": {"namespace": NAMESPACE, "name": SERVICE, "port": 443, "path": path}}


def _webhooks(bundle: str) -> list[JsonObject]:
    common = {"sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10}
    write = {"operations": ["CREATE", "UPDATE"], "apiGroups": [GROUP], "apiVersions": [VERSION]}
    plurals = [kind.plural for kind in (VM, VMI, REPLICA_SET)]
    mutate = {
        "name": "defaults.kubevirt.io", "clientConfig": _client(bundle, "/admission/mutate"),
        "rules": [{**write, "resources": plurals}], **common,
    }  # fmt: skip
    validate = {
        "name": "validation.kubevirt.io", "clientConfig": _client(bundle, "/admission/validate"),
        "rules": [
            {**write, "resources": plurals},
            {**write, "operations": ["CREATE"], "resources": [MIGRATION.plural]},
        ],
        **common,
    }  # fmt: skip
    # an extension that is away must not hold up the drain of every node
    evict = {
        "name": "evictions.kubevirt.io", "clientConfig": _client(bundle, "/admission/evict"), "failurePolicy": "Ignore",
        "rules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}
        ],
        **common,
    }  # fmt: skip
    group = "admissionregistration.k8s.io/v1"
    meta = {"name": "kubevirt", "labels": _LABELS}
    return [
        {"apiVersion": group, "kind": "MutatingWebhookConfiguration", "metadata": meta, "webhooks": [mutate]},
        {
            "apiVersion": group,
            "kind": "ValidatingWebhookConfiguration",
            "metadata": meta,
            "webhooks": [validate, evict],
        },
    ]


def _api_service(bundle: str) -> JsonObject:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{SUBRESOURCES}", "labels": _LABELS},
        "spec": {
            "group": SUBRESOURCES,
            "version": VERSION,
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "caBundle": bundle,
            "service": {"namespace": NAMESPACE, "name": SERVICE, "port": 443},
        },
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the objects; return the exit code."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__)
    parser.add_argument("--address", action="append", default=[], help="of a machine that runs the daemon; repeatable")
    parser.add_argument("--port", type=int, required=True, help="at which the daemon serves")
    parser.add_argument(
        "--ca", type=Path, required=True, help="the authority that signed the daemon's certificate, PEM"
    )
    parsed = parser.parse_args(argv)
    yaml.safe_dump_all(objects(parsed.address, parsed.port, parsed.ca.read_bytes()), sys.stdout, sort_keys=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
