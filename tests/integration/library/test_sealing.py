"""Sealed copies open, whoever made them: an earlier release, the library, or the command."""

from __future__ import annotations

import hmac
import subprocess

import pytest

from minik8s_modules.module_utils.minik8s.core import sealing
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.sealing import seal, unseal

KEY, DATA = b"k" * 32, b"secret " * 1000


def derived(purpose: str) -> bytes:
    return hmac.new(KEY, purpose.encode(), "sha256").digest()


def openssl(data: bytes, rounds: int, *mode: str) -> bytes:
    word = f"pass:{derived('encrypt').hex()}"
    argv = ["openssl", "enc", "-aes-256-ctr", "-pbkdf2", "-iter", str(rounds), "-pass", word, *mode]
    return subprocess.run(argv, input=data, capture_output=True, check=True).stdout


@pytest.fixture(params=["library", "command"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How this node seals."""
    if request.param == "command":
        monkeypatch.setattr(sealing, "_library", lambda: None)
    assert (sealing._library() is None) == (request.param == "command")
    return str(request.param)


def test_a_copy_of_an_earlier_release_opens(way: str) -> None:
    for mark, rounds in ((b"", 10_000), (sealing.MARK, 1)):
        hidden = mark + openssl(DATA, rounds, "-e", "-salt")
        assert unseal(KEY, hidden + hmac.new(derived("authenticate"), hidden, "sha256").digest()) == DATA


@pytest.mark.parametrize("data", [b"", b"x", DATA, b"\0" * (3 << 20)], ids=["nothing", "a byte", "some", "much"])
def test_what_is_sealed_is_what_the_command_opens(way: str, data: bytes) -> None:
    sealed = seal(KEY, data)
    assert openssl(sealed[len(sealing.MARK) : -sealing.MAC_BYTES], 1, "-d") == data
    assert unseal(KEY, sealed) == data
    assert seal(KEY, data) != sealed


def test_a_copy_that_somebody_changed_does_not_open() -> None:
    sealed = bytearray(seal(KEY, DATA))
    sealed[100] ^= 1
    with pytest.raises(KeyFault, match="sent again"):
        unseal(KEY, bytes(sealed))
