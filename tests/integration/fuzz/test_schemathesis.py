"""Schemathesis against the server's own OpenAPI: no answer of 500, and every refusal is a proper Status.

``MINIK8S_FUZZ_EXAMPLES`` is the number of requests per operation (3 in ``make test``: 1,150 in 25 s).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import KINDS
from tests.integration.fuzz.conftest import NAMESPACE, seed, stored
from tests.support.apiserver import ApiServerProcess

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
EXAMPLES = int(os.environ.get("MINIK8S_FUZZ_EXAMPLES", "3"))
# values at the edges of every schema are tried one by one in long runs only
PHASES = "fuzzing" if EXAMPLES <= 10 else "coverage,fuzzing"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
# half of the requests meet what exists, the other half what does not
_NAMES = {"namespace": [NAMESPACE, "none"], "name": ["web", "none"]}
_VALUES = {
    "dryRun": ["All"],
    "fieldValidation": ["Strict", "Warn", "Ignore"],
    "force": [True, False],
    "propagationPolicy": ["Background", "Foreground", "Orphan"],
}


@pytest.fixture(scope="module")
def program() -> Path:
    """Schemathesis' command, in a virtual environment that is made the first time."""
    requirements = HERE / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    place = ROOT / ".cache" / f"schemathesis-{digest}"
    place.parent.mkdir(exist_ok=True)
    with (place.parent / "schemathesis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            pip = [str(place / "bin" / "pip"), "install", "--quiet", "--requirement", str(requirements)]
            subprocess.run(pip, check=True, timeout=300)
            (place / "complete").touch()
    return place / "bin" / "st"


def document(server: ApiServerProcess) -> dict[str, Any]:
    """Return all documents of the server as one, with parameters and kinds that lead somewhere."""
    whole: dict[str, Any] = {"openapi": "3.0.0", "info": {"title": "all", "version": "1"}, "paths": {}}
    components: dict[str, dict[str, Any]] = {"schemas": {}, "responses": {}, "requestBodies": {}, "parameters": {}}
    for address in server.request("GET", "/openapi/v3").json["paths"].values():
        part = server.request("GET", address["serverRelativeURL"]).json
        whole["paths"].update(part["paths"])
        for name, found in components.items():
            found.update(part["components"][name])
    named = {kind.definition: (kind.api_version, kind.kind) for kind in KINDS.all()}
    for name, (version, kind) in {**named, _DELETE_OPTIONS: ("v1", "DeleteOptions")}.items():
        _name(components["schemas"][name]["properties"], version, kind)
    for parameter in components["parameters"].values():
        _give_values(parameter)
    for path, operations in whole["paths"].items():
        for method, operation in operations.items():
            for parameter in operation if method == "parameters" else operation["parameters"]:
                _give_values(parameter)
        if path.endswith("/namespaces/{name}") and "delete" in operations:
            del operations["delete"]  # it would take the ground from under the others
    return {**whole, "components": components}


def _name(properties: dict[str, Any], version: str, kind: str) -> None:
    """Have objects name their own kind: what names another is refused before anything else of it is looked at."""
    properties["apiVersion"]["enum"], properties["kind"]["enum"] = [version], [kind]


def _give_values(parameter: dict[str, Any]) -> None:
    values = _NAMES if parameter.get("in") == "path" else _VALUES
    if parameter.get("name") in values:
        parameter["schema"]["enum"] = values[parameter["name"]]


def test_no_request_that_the_schema_allows_or_almost_allows_breaks_the_server(
    server: ApiServerProcess, program: Path, tmp_path: Path
):
    seed(server)
    schema = tmp_path / "openapi.json"
    schema.write_text(json.dumps(document(server)))
    argv = [
        *(str(program), "run", str(schema), "--url", server.url, "--tls-verify", str(server.authority.ca)),
        *("--request-cert", str(server.admin.cert), "--request-cert-key", str(server.admin.key)),
        *("--checks", "failures_are_statuses", "--phases", PHASES, "--max-examples", str(EXAMPLES), "--seed", "1"),
        *("--no-shrink", "--suppress-health-check", "all", "--warnings", "off", "--continue-on-failure"),
    ]
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.integration.fuzz.hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=7200, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-3_000:]
    print(done.stdout[-600:])
    for kind in stored():  # whatever was let in can be read
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        root = f"{'/apis/' if kind.group else '/api/'}{kind.api_version}/{kind.plural}"
        assert server.request("GET", root, headers=table).code == 200
