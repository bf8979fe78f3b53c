"""The page about Ingresses: its commands make what it shows, and what changes nothing is warned of."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.kinds import INGRESS_CLASS
from tests.integration.apiserver.conftest import Namespace

PAGE = (Path(__file__).parents[3] / "docs/how-to/ingress.md").read_text(encoding="utf-8")
ANNOTATION = "nginx.ingress.kubernetes.io"


def kubectl(namespace: Namespace, *arguments: str) -> tuple[str, str]:
    done = namespace.server.kubectl("-n", namespace.name, *arguments)
    return done.stdout, done.stderr


def command(verb: str) -> list[str]:
    """Return the words of the page's command that begins with ``kubectl <verb>``."""
    found = re.search(rf"^kubectl ({re.escape(verb)} .*?)( +#.*)?$", PAGE, re.MULTILINE)
    assert found is not None, verb
    return shlex.split(found[1])


def test_the_pages_commands_make_the_ingress_that_it_shows(namespace: Namespace) -> None:
    kubectl(namespace, *command("create ingress"))
    made: dict[str, Any] = json.loads(kubectl(namespace, "get", "ingress", "shop", "-o", "json")[0])
    shown = yaml.safe_load(PAGE.split("```yaml\n")[1].split("```")[0])
    assert made["spec"] == shown["spec"]
    _, warned = kubectl(namespace, *command("patch ingress"))
    made = json.loads(kubectl(namespace, "get", "ingress", "shop", "-o", "json")[0])
    assert made["spec"]["tls"] == [{"hosts": ["shop.example"], "secretName": "shop-tls"}]
    assert warned == ""


def test_annotations_that_change_nothing_are_warned_of(namespace: Namespace) -> None:
    kubectl(namespace, *command("create ingress"))
    _, warned = kubectl(namespace, "annotate", "ingress", "shop", f"{ANNOTATION}/ssl-redirect=false")
    assert warned == ""
    _, warned = kubectl(namespace, "annotate", "ingress", "shop", f"{ANNOTATION}/whitelist-source-range=10.0.0.0/8")
    assert (
        f"metadata.annotations[{ANNOTATION}/whitelist-source-range]: stored, but minik8s does not act on it" in warned
    )
    assert "ssl-redirect alone" in warned


def test_annotations_for_another_controller_are_its_own(namespace: Namespace) -> None:
    others = {"metadata": {"name": f"others-{namespace.name}"}, "spec": {"controller": "example.com/others"}}
    namespace.server.kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": INGRESS_CLASS.api_version, "kind": "IngressClass", **others}),
    )
    words = [*command("create ingress"), f"--class={others['metadata']['name']}"]
    assert kubectl(namespace, *words, f"--annotation={ANNOTATION}/rewrite-target=/")[1] == ""
