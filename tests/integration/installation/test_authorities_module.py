"""``minik8s_authorities`` with ``minik8s_certificates``: an authority is exchanged while openssl verifies everybody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

LIBRARY = Path(__file__).resolve().parents[3] / "library"
RUN = """
import importlib, json, sys
import ansible.modules, ansible.module_utils
ansible.modules.__path__.append(sys.argv[1])
ansible.module_utils.__path__.append(sys.argv[2])
from ansible.module_utils.testing import patch_module_args
module = importlib.import_module("ansible.modules." + sys.argv[3])
with patch_module_args(json.load(sys.stdin)):
    module.main()
"""


def run(name: str, /, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """Run a module and return its result."""
    utils = LIBRARY.parent / "minik8s_modules" / "module_utils"
    argv = [sys.executable, "-c", RUN, str(LIBRARY), str(utils), name]
    data = json.dumps({**arguments, "_ansible_check_mode": check})
    done = subprocess.run(argv, input=data, capture_output=True, text=True, check=False)
    result: dict[str, Any] = json.loads(done.stdout)
    assert not result.get("failed"), result
    return result


class Place:
    """An authority with a server's certificate and a kubeconfig in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca: dict[str, Any] = {"certificate": f"{folder}/ca.crt", "key": f"{folder}/ca.key"}
        self.authority = {"name": "cluster", "common_name": "test", **self.ca}
        self.next = {**self.authority, "certificate": f"{folder}/ca.crt.next", "key": f"{folder}/ca.key.next"}

    def issue(self) -> list[str]:
        """Have everything issued that must be; return the files' names."""
        server = {"certificate": f"{self.folder}/s.crt", "key": f"{self.folder}/s.key", "authority": "cluster"}
        kubeconfig = {"path": f"{self.folder}/k", "server": "https://h:1", "authority": "cluster", "common_name": "k"}
        result = run(
            "minik8s_certificates",
            authorities=[self.authority],
            certificates=[{**server, "common_name": "s", "usages": ["server"]}],
            kubeconfigs=[kubeconfig],
        )
        return [Path(step["place"]).name for step in result["steps"]]

    def phase(self, phase: str, *, check: bool = False) -> dict[str, Any]:
        """Go one phase; ``prepare`` makes the next authority first."""
        if phase == "prepare" and run("minik8s_authorities", **self.ca)["stage"] != "switched":
            run("minik8s_certificates", authorities=[self.next], check=check)
        return run("minik8s_authorities", **self.ca, phase=phase, check=check)

    def trusted_by(self, bundle: Path) -> bool:
        """Return whether the server's certificate is good for who trusts ``bundle``."""
        argv = ["openssl", "verify", "-CAfile", str(bundle), f"{self.folder}/s.crt"]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def embedded(self) -> str:
        """Return what the kubeconfig trusts, as the text of its file has it."""
        document = yaml.safe_load((self.folder / "k").read_text())
        return str(document["clusters"][0]["cluster"]["certificate-authority-data"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.issue()
    return made


def test_whoever_trusted_before_or_after_a_phase_trusts_the_server(place: Place):
    ca = place.folder / "ca.crt"
    for phase, issued in (("prepare", ["k"]), ("switch", ["s.crt", "k"]), ("finish", ["k"])):
        before, embedded = place.folder / "before.crt", place.embedded()
        before.write_bytes(ca.read_bytes())
        assert place.phase(phase, check=True)["changed"] or phase == "prepare"
        assert ca.read_bytes() == before.read_bytes()
        assert place.phase(phase)["changed"]
        assert place.issue() == issued
        assert place.trusted_by(before)
        assert place.trusted_by(ca)
        assert place.embedded() != embedded
        assert not place.phase(phase)["changed"]
        assert place.issue() == []
    assert ca.read_text().count("BEGIN CERTIFICATE") == 1
    assert sorted(path.name for path in place.folder.iterdir() if "next" in path.name) == []
    assert (place.folder / "ca.key").stat().st_mode & 0o777 == 0o600


def test_a_half_made_next_authority_is_made_again(place: Place):
    run("minik8s_certificates", authorities=[place.next])
    (place.folder / "ca.crt.next").unlink()
    for phase in ("prepare", "switch", "finish"):
        place.phase(phase)
        place.issue()
    assert place.trusted_by(place.folder / "ca.crt")


def test_the_key_alone_taken_over_is_an_exchange_that_goes_on(place: Place):
    place.phase("prepare")
    place.issue()
    place.phase("switch")
    (place.folder / "ca.crt.next").write_text("left by a killed run")
    assert place.issue() == ["s.crt", "k"]
    for phase in ("prepare", "switch"):
        assert not place.phase(phase)["changed"]
    assert place.phase("finish")["changed"]
    place.issue()
    assert place.trusted_by(place.folder / "ca.crt")
