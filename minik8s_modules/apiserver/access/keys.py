"""Makes key files, for the pki role: ``python -m minik8s_modules.apiserver.access.keys signing-key|key-ring FILE``.

A file that exists is left alone. A new one appears complete, with mode 0600 from the start.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from minik8s_modules.store.at_rest import keyring


def signing_key() -> bytes:
    """Return a fresh P-256 key in PEM, for service-account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def key_ring() -> bytes:
    """Return a ring of one fresh key, for secrets at rest."""
    return keyring.dump([keyring.new_key()])


KINDS: Mapping[str, Callable[[], bytes]] = {"signing-key": signing_key, "key-ring": key_ring}


def write_new(path: Path, data: bytes) -> bool:
    """Write ``data`` (mode 0600) unless ``path`` exists; returns whether it was written."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink()
    return True


def main(arguments: list[str] | None = None) -> int:
    """Make one file; says ``made FILE`` or ``kept FILE``."""
    parser = argparse.ArgumentParser(prog="minik8s_modules.apiserver.access.keys", description="Makes key files.")
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("file", type=Path)
    asked = parser.parse_args(arguments)
    try:
        made = write_new(asked.file, KINDS[asked.kind]())
    except OSError as error:
        sys.stderr.write(f"cannot make {asked.file}: {error.strerror}\n")
        return 1
    sys.stdout.write(f"{'made' if made else 'kept'} {asked.file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
