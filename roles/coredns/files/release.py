#!/usr/bin/env python3
"""Takes CoreDNS out of a release's archive into the user's cache, once, and prints where it is.

    release.py ARCHIVE

CoreDNS is released as one ``.tgz`` a platform, which holds the one file ``coredns``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
import tempfile
from pathlib import Path

PROGRAM = "coredns"


def cache() -> Path:
    """Return the folder of the user's cache that is ours, as ``build.py`` has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minik8s"


def unpack(archive: Path, target: Path) -> None:
    """Write the archive's program to ``target``, whole or not at all; end where there is none in it."""
    with tarfile.open(archive, "r:gz") as tar:
        names = tar.getnames()
        found = next((one for one in tar if one.isfile() and os.path.normpath(one.name) == PROGRAM), None)
        source = tar.extractfile(found) if found else None
        if source is None:
            sys.exit(
                f"{archive} holds no file {PROGRAM}, as CoreDNS' releases do, but: {', '.join(names) or 'nothing'}"
            )
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="release-") as folder:
            partial = Path(folder, PROGRAM)
            partial.write_bytes(source.read())
            partial.chmod(0o755)
            partial.replace(target)


def main() -> None:
    """Unpack where needed; print the path."""
    parser = argparse.ArgumentParser(description="Take CoreDNS out of a release's archive; print where it is.")
    parser.add_argument("archive", type=Path)
    archive = parser.parse_args().archive
    try:
        target = cache() / f"release-{PROGRAM}-{hashlib.sha256(archive.read_bytes()).hexdigest()[:16]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            unpack(archive, target)
    except (OSError, EOFError, tarfile.TarError) as error:
        sys.exit(f"{archive} cannot be unpacked: {error}")
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
