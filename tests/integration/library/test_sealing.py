"""Secrets that an earlier release sealed open, too."""

from __future__ import annotations

import hmac
import subprocess

from minik8s_modules.module_utils.minik8s.core.sealing import unseal

KEY, DATA = b"k" * 32, b"secret " * 1000


def derived(purpose: str) -> bytes:
    return hmac.new(KEY, purpose.encode(), "sha256").digest()


def test_a_copy_of_an_earlier_release_opens():
    argv = ["openssl", "enc", "-aes-256-ctr", "-pbkdf2", "-iter", "10000", "-pass", f"pass:{derived('encrypt').hex()}"]
    hidden = subprocess.run([*argv, "-e", "-salt"], input=DATA, capture_output=True, check=True).stdout
    assert unseal(KEY, hidden + hmac.new(derived("authenticate"), hidden, "sha256").digest()) == DATA
