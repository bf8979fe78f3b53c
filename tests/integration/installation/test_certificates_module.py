"""``minik8s_certificates`` on real files, judged by openssl."""

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
import json, sys
import ansible.modules, ansible.module_utils
ansible.modules.__path__.append(sys.argv[1])
ansible.module_utils.__path__.append(sys.argv[2])
from ansible.module_utils.testing import patch_module_args
from ansible.modules import minik8s_certificates
with patch_module_args(json.load(sys.stdin)):
    minik8s_certificates.main()
"""


def run(arguments: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    utils = LIBRARY.parent / "minik8s_modules" / "module_utils"
    data = json.dumps({**arguments, "_ansible_check_mode": check})
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(LIBRARY), str(utils)], input=data, capture_output=True, text=True, check=False
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def openssl(*argv: str) -> str:
    return subprocess.run(["openssl", *argv], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def declared(tmp_path: Path) -> dict[str, Any]:
    return {
        "authorities": [
            {"name": "cluster", "common_name": "test", "certificate": f"{tmp_path}/ca.crt", "key": f"{tmp_path}/ca.key"}
        ],
        "certificates": [
            {
                "certificate": f"{tmp_path}/server.crt",
                "key": f"{tmp_path}/server.key",
                "authority": "cluster",
                "common_name": "api",
                "names": ["kubernetes.default.svc", "127.0.0.1"],
                "usages": ["server"],
            }
        ],
        "kubeconfigs": [
            {
                "path": f"{tmp_path}/admin.kubeconfig",
                "server": "https://127.0.0.1:1",
                "authority": "cluster",
                "common_name": "admin",
                "organizations": ["system:masters"],
            }
        ],
    }


def test_openssl_accepts_them_for_their_use_only(declared: dict[str, Any], tmp_path: Path) -> None:
    assert run(declared)["changed"]
    server = [f"{tmp_path}/ca.crt", f"{tmp_path}/server.crt"]
    assert "OK" in openssl(
        "verify", "-purpose", "sslserver", "-x509_strict", "-verify_ip", "127.0.0.1", "-CAfile", *server
    )
    with pytest.raises(subprocess.CalledProcessError):
        openssl("verify", "-purpose", "sslclient", "-CAfile", *server)
    with pytest.raises(subprocess.CalledProcessError):
        openssl("verify", "-verify_hostname", "example.org", "-CAfile", *server)
    assert "O = system:masters" in openssl("x509", "-in", embedded(tmp_path), "-noout", "-subject")


def embedded(tmp_path: Path) -> str:
    config = yaml.safe_load((tmp_path / "admin.kubeconfig").read_text())
    target = tmp_path / "admin.b64"
    target.write_text(config["users"][0]["user"]["client-certificate-data"] + "\n")
    openssl("base64", "-d", "-A", "-in", str(target), "-out", f"{tmp_path}/admin.crt")
    return f"{tmp_path}/admin.crt"


def test_the_second_run_changes_nothing_and_keys_are_private(declared: dict[str, Any], tmp_path: Path) -> None:
    run(declared)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert not run(declared)["changed"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "server.crt": 0o644,
        "server.key": 0o600,
        "admin.kubeconfig": 0o600,
    }


def test_check_mode_tells_and_writes_nothing(declared: dict[str, Any], tmp_path: Path) -> None:
    result = run(declared, check=True)
    assert result["changed"]
    assert f"{tmp_path}/server.crt: absent or unreadable\n" in result["diff"]["before"]
    (line,) = [line for line in result["diff"]["after"].splitlines() if line.startswith(f"{tmp_path}/server.crt: ")]
    assert line.endswith("(its authority is issued again)")
    assert list(tmp_path.iterdir()) == []


def test_another_address_issues_that_certificate_only(declared: dict[str, Any], tmp_path: Path) -> None:
    run(declared)
    declared["certificates"][0]["names"].append("192.0.2.7")
    result = run(declared)
    assert [step["place"] for step in result["steps"]] == [f"{tmp_path}/server.crt"]
    before, after = result["diff"]["before"], result["diff"]["after"]
    assert before.startswith(f"{tmp_path}/server.crt: common name ")
    assert ("192.0.2.7" in before, "192.0.2.7" in after) == (False, True)


@pytest.mark.parametrize("broken", ["ca.crt", "ca.key", "server.crt", "server.key", "admin.kubeconfig"])
def test_a_damaged_file_is_replaced_with_what_depends_on_it(
    broken: str, declared: dict[str, Any], tmp_path: Path
) -> None:
    run(declared)
    (tmp_path / broken).write_text("not a certificate")
    assert len(run(declared)["steps"]) == (3 if broken.startswith("ca") else 1)
    assert not run(declared)["changed"]


def test_no_key_is_in_the_result(declared: dict[str, Any]) -> None:
    assert "PRIVATE" not in json.dumps(run(declared))


def test_an_unknown_authority_is_a_clear_error(declared: dict[str, Any]) -> None:
    declared["certificates"][0]["authority"] = "other"
    result = run(declared)
    assert result["failed"]
    assert "'other'" in result["msg"]


def test_ipv6_addresses_and_the_first_of_a_range_are_names(declared: dict[str, Any], tmp_path: Path) -> None:
    declared["certificates"][0]["names"] = ["fd00::21", "fd00:10:96::/112"]
    assert run(declared)["changed"]
    files = ["-CAfile", f"{tmp_path}/ca.crt", f"{tmp_path}/server.crt"]
    for address in ("fd00::21", "fd00:10:96::1"):
        assert "OK" in openssl("verify", "-verify_ip", address, *files)
    with pytest.raises(subprocess.CalledProcessError):
        openssl("verify", "-verify_ip", "fd00:10:96::2", *files)
    assert not run(declared)["changed"]
