"""Which certificates are issued, and why."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.install.certificates import (
    CertificateFiles,
    CertificateStep,
    DeclaredCertificate,
    Identity,
    address_of,
    plan_certificates,
)

ACCESS = ("root", "root", "0600")
NOW_S = 1_800_000_000.0
DAY_S = 86400.0
CA = DeclaredCertificate("/pki/ca.crt", "", Identity("minik8s", (), (), ()), "", ACCESS)
SERVER = DeclaredCertificate(
    "/pki/server.crt", "/pki/ca.crt", Identity("api", (), ("127.0.0.1",), ("server",)), "", ACCESS
)
ADMIN = DeclaredCertificate(
    "/admin", "/pki/ca.crt", Identity("admin", ("masters",), (), ("client",)), "https://a:6443", ACCESS
)


def present(wanted: DeclaredCertificate, **changed: Any) -> CertificateFiles:
    good = CertificateFiles(
        wanted.identity, NOW_S + 365 * DAY_S, trusted=True, key_fits=True, server=wanted.server, access=ACCESS
    )
    return good._replace(**changed)


def plan(*found: tuple[DeclaredCertificate, CertificateFiles | None]) -> list[CertificateStep]:
    state = {wanted.place: value for wanted, value in found}
    return plan_certificates([ADMIN, SERVER, CA], state, NOW_S, 90 * DAY_S)


def test_what_is_right_is_left_alone() -> None:
    assert plan((CA, present(CA)), (SERVER, present(SERVER)), (ADMIN, present(ADMIN))) == []


def test_on_a_fresh_machine_the_authority_comes_first() -> None:
    steps = plan()
    assert [step.place for step in steps] == ["/pki/ca.crt", "/admin", "/pki/server.crt"]
    assert {step.action for step in steps} == {"issue"}


def test_an_authority_that_is_issued_anew_takes_its_certificates_along() -> None:
    steps = plan((CA, present(CA, key_fits=False)), (SERVER, present(SERVER)), (ADMIN, present(ADMIN)))
    assert [step.reason for step in steps] == ["its key does not fit", *["its authority is issued again"] * 2]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"not_after_s": NOW_S + 89 * DAY_S}, "it ends in 89 days"),
        ({"not_after_s": NOW_S - DAY_S}, "it ends in 0 days"),
        ({"trusted": False}, "its authority did not sign it"),
        ({"key_fits": False}, "its key does not fit"),
        ({"identity": SERVER.identity._replace(common_name="x")}, "its common name changed from x to api"),
        ({"identity": SERVER.identity._replace(names=())}, "its names changed from none to 127.0.0.1"),
        ({"identity": SERVER.identity._replace(usages=("client",))}, "its usages changed from client to server"),
    ],
)
def test_a_certificate_is_issued_anew_for_a_reason(changed: dict[str, Any], reason: str) -> None:
    steps = plan((CA, present(CA)), (SERVER, present(SERVER, **changed)), (ADMIN, present(ADMIN)))
    assert steps == [CertificateStep("issue", SERVER.place, reason)]


def test_a_kubeconfig_follows_its_server() -> None:
    steps = plan((CA, present(CA)), (SERVER, present(SERVER)), (ADMIN, present(ADMIN, server="https://b:6443")))
    assert steps == [CertificateStep("issue", "/admin", "its server is 'https://b:6443', not 'https://a:6443'")]


def test_a_readable_key_is_protected_and_kept() -> None:
    open_key = present(SERVER, access=("root", "root", "0644"))
    steps = plan((CA, present(CA)), (SERVER, open_key), (ADMIN, present(ADMIN)))
    assert steps == [CertificateStep("protect", SERVER.place, "root:root 0644 becomes root:root 0600")]


@pytest.mark.parametrize("done", [0, 1, 2])
def test_after_a_crash_the_remaining_steps_are_planned(done: int) -> None:
    order = [CA, ADMIN, SERVER]
    steps = plan(*((wanted, present(wanted)) for wanted in order[:done]))
    assert [step.place for step in steps] == [wanted.place for wanted in order[done:]]


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("10.96.0.1", "10.96.0.1"), ("fd00::1", "fd00::1"), ("fd00:10:96::/112", "fd00:10:96::1"),
        ("10.96.0.0/16", None), ("kubernetes.default.svc", None), ("*.example.com", None), ("", None),
    ],
)  # fmt: skip
def test_an_alternative_name_is_an_address_or_that_of_dns(name: str, address: str | None):
    found = address_of(name)
    assert (str(found) if found else None) == address
