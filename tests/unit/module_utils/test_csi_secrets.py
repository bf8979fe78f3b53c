"""Secrets that drivers are told: read for the call, and in no message."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.rpc.protobuf import encode
from minik8s_modules.module_utils.minik8s.volumes import csi, csi_calls, csi_secrets

ENTRY = {"driver": "d", "handle": "h", "secrets": {"stage": "shop/disk", "expand": "shop/disk"}}


def stand(run_dir: Path, **values: bytes) -> None:
    folder = run_dir / "secrets" / "shop" / "disk"
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_bytes(value)


def test_each_call_is_told_its_own(tmp_path: Path):
    stand(tmp_path, key=b"very secret")
    fields = {"key": "very secret"}
    assert csi_secrets.read(str(tmp_path), ENTRY) == {"stage": fields, "publish": {}, "expand": fields}
    assert csi_secrets.read(str(tmp_path), {}) == {"stage": {}, "publish": {}, "expand": {}}


def test_what_is_not_there_or_no_text_is_said_without_its_value(tmp_path: Path):
    with pytest.raises(KeyFault, match="the values of secret shop/disk") as missing:
        csi_secrets.read(str(tmp_path), ENTRY)
    assert missing.value.reason == "SecretMissing"
    stand(tmp_path, key=b"\xff\xfe-value")
    with pytest.raises(KeyFault, match="key key of secret shop/disk is not UTF-8") as binary:
        csi_secrets.read(str(tmp_path), ENTRY)
    assert "value" not in str(binary.value)
    assert binary.value.__cause__ is None


def test_a_driver_that_repeats_a_secret_is_not_repeated():
    fields = {"stage": {"key": "very secret", "id": "a"}}
    with pytest.raises(KeyFault) as found, csi_secrets.hidden(fields):
        raise KeyFault("FailedMount", "login with very secret failed at a")
    assert (found.value.reason, str(found.value)) == ("FailedMount", "login with (secret) failed at a")
    with pytest.raises(KeyFault, match="plain"), csi_secrets.hidden(fields):
        raise KeyFault("FailedMount", "plain")


@pytest.mark.parametrize(
    ("call", "number"), [("NodeStageVolume", 5), ("NodePublishVolume", 7), ("NodeExpandVolume", 6)]
)
def test_secrets_have_the_numbers_of_the_protocol(call: str, number: int):
    asked, _ = csi_calls._PAIRS[f"csi.v1.Node/{call}"]
    assert encode(asked, {"secrets": {"k": "v"}})[0] == number << 3 | 2


@pytest.mark.parametrize("secrets", [{"other": "shop/disk"}, {"stage": "disk"}, {"stage": "shop/../disk"}])
def test_names_that_are_none_are_refused(secrets: dict[str, str]):
    with pytest.raises(KeyFault):
        csi.check("u/v", {**ENTRY, "secrets": secrets})
