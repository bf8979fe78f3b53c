"""cert-manager's own chart, and objects of its kinds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from minik8s_modules.api.objects import JsonObject
from tests.support.gotools import CERT_MANAGER, TOOLS, module_path

VERSION = TOOLS["cert-manager-controller"].version
GROUP = "cert-manager.io/v1"
UNTRUSTED = "x509: certificate signed by unknown authority"
VALUES = ("--namespace", "cert-manager", "--set", "installCRDs=true,startupapicheck.enabled=false")


def chart(folder: Path) -> Path:
    """Make the chart as upstream's release tool does: with its version, and with the definitions as one template."""
    source = module_path(CERT_MANAGER, VERSION) / "deploy"
    made = shutil.copytree(source / "charts" / "cert-manager", folder / "cert-manager", copy_function=shutil.copyfile)
    template = (made / "Chart.template.yaml").read_text()
    (made / "Chart.yaml").write_text(re.sub(r"ersion: v0\.1\.0", f"ersion: {VERSION}", template))
    crds = "\n---\n".join(path.read_text() for path in sorted((source / "crds").glob("*.yaml")))
    (made / "templates" / "crds.yaml").write_text("{{- if .Values.installCRDs }}\n" + crds + "\n{{- end }}\n")
    return Path(made)


def kind(version: str, name: str, object_name: str, **fields: Any) -> JsonObject:
    annotations = fields.pop("annotations", {})
    return {
        "apiVersion": version,
        "kind": name,
        "metadata": {"name": object_name, "annotations": annotations},
        **fields,
    }


def authority() -> list[JsonObject]:
    """An authority that signs its own certificate, and what issues by it."""
    root = {"isCA": True, "commonName": "shop-ca", "secretName": "root", "issuerRef": {"name": "itself"}}
    return [
        kind(GROUP, "Issuer", "itself", spec={"selfSigned": {}}),
        kind(GROUP, "Certificate", "root", spec=root),
        kind(GROUP, "Issuer", "shop-ca", spec={"ca": {"secretName": "root"}}),
    ]


def probe() -> str:
    """Return an object that changes nothing in a dry run: whether the webhook answers, as startupapicheck asks."""
    return json.dumps(kind(GROUP, "Issuer", "probe", spec={"selfSigned": {}}))
