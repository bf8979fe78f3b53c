"""Where playbooks, roles and modules are: in a checkout, in an installation, or in a wheel.

    checkout        minik8s_modules/ and all else side by side
    installation    <prefix>/venv has the package, <prefix>/share all of it (role ``application``)
    wheel           site-packages/minik8s_modules and, beside it, minik8s_release with all else (``setup.py``)

The roles want one folder that has everything, where they may also write a ``.cache``. Of a wheel, that is a folder of
links (:func:`lay_out`): what a new version of the wheel brings is there without a copy, and ``site-packages`` may
belong to somebody else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
RELEASE = "minik8s_release"
LOCAL = "inventory/local"
"""This machine is the whole cluster; a user may change it, so it is no link."""
BESIDE = (
    "LICENSE", "README.md", "ansible.cfg", "examples", LOCAL, "inventory/sample", "library", "playbooks",
    "pyproject.toml", "requirements.txt", "roles", "templates",
)  # fmt: skip
"""What a wheel carries beside the package."""


def project() -> Path | None:
    """Return the folder that has playbooks, roles, modules and the package; None where they are nowhere."""
    for folder in (PACKAGE.parent, Path(sys.prefix).parent / "share"):
        if is_whole(folder):
            return folder
    if not _carried().is_dir():
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return lay_out(Path(home, "minik8s", "release"))


def is_whole(folder: Path) -> bool:
    """Return whether a folder has what a run of Ansible needs."""
    wanted = ("ansible.cfg", "library", "playbooks/site.yml", "roles", "minik8s_modules")
    return all((folder / name).exists() for name in wanted)


def lay_out(folder: Path) -> Path:
    """Have ``folder`` look like a checkout, by links to what is installed; return it.

    Raises:
        FileExistsError: something else has one of the names; nothing of it is touched.
        OSError: the folder cannot be written.
    """
    links = {folder / name: path for name, path in _parts().items()}
    for link in links:
        if link.exists() and not link.is_symlink():
            raise FileExistsError(f"{link} is there already, and no link of minik8s init")
    for link, path in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        partial = link.with_name(f".{link.name}.{os.getpid()}")
        partial.symlink_to(path)
        partial.replace(link)  # another run may read it meanwhile
    return folder


def root() -> Path:
    """Return the folder that has what stands beside the package."""
    return _carried() if _carried().is_dir() else project() or PACKAGE.parent


def _carried() -> Path:
    return PACKAGE.with_name(RELEASE)


def _parts() -> dict[str, Path]:
    """Return what is linked, by its name in the folder."""
    found = {name: root() / name for name in BESIDE if name != LOCAL and (root() / name).exists()}
    return {**found, "minik8s_modules": PACKAGE}


if __name__ == "__main__":  # the collection's roles ask this way (extensions/collection)
    sys.stdout.write(f"{project() or ''}\n")
