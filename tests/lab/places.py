"""Where things lie: the cache (image, kernels, key; lasts), the state (one folder a lab; gone with it), the project."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabUsage

PROJECT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).resolve().parent / "files"
DEFAULT_LAB = "lab"
# Nine: the host's network device is called mk8l-<lab>, and a device's name has 15 characters at most.
LAB_NAME = re.compile(r"[a-z][a-z0-9]{0,8}")
# Mount options and UML's command line separate by these.
UNSAFE = re.compile(r"[\s,:\\]")


@dataclass(frozen=True)
class Places:
    """The folders of all labs on this host."""

    cache: Path
    state: Path
    project: Path = PROJECT

    def __post_init__(self) -> None:
        """Refuse paths that mount options and UML's command line would tear apart."""
        for path in (self.cache, self.state):
            if UNSAFE.search(str(path)) or not path.is_absolute():
                raise LabUsage(
                    f"the folder {str(path)!r} cannot hold a lab:"
                    " its path must be absolute, without spaces, commas and colons"
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Places:
        """Return the user's cache folder and /var/lib/minik8s-lab, or what MINIK8S_LAB_CACHE and _STATE name.

        The state holds the nodes' disks and overlays: it must not lie on a tmpfs or an overlay.
        """
        home = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/root")) / ".cache")
        return cls(
            cache=Path(environment.get("MINIK8S_LAB_CACHE") or home / "minik8s-lab"),
            state=Path(environment.get("MINIK8S_LAB_STATE") or "/var/lib/minik8s-lab"),
        )

    def lab(self, name: str) -> Path:
        """Return the folder of the lab ``name``."""
        return self.state / name

    def inventory(self, name: str) -> Path | None:
        """Return where the project keeps the lab's inventory: only the default lab has one there."""
        return self.project / "inventory" / "lab" / "hosts.yml" if name == DEFAULT_LAB else None


def check_lab_name(name: str) -> str:
    """Return ``name``, or raise LabUsage where devices cannot be named after it."""
    if not LAB_NAME.fullmatch(name):
        raise LabUsage(f"{name!r} cannot name a lab: 1 to 9 lower-case letters and digits, a letter first")
    return name
