"""Entries of the section ``folders``, key ``<PersistentVolume>``."""

from typing import Annotated, Literal, Optional, TypedDict

from ..core.schema import Default


class _RequiredFolder(TypedDict):
    root: str
    """Folder in which the volume has its own: an absolute path, no part of it a symbolic link."""
    name: str
    """Name of the volume's own folder in it."""
    owner: str
    """UID of the PersistentVolume."""
    state: Literal["present", "absent"]
    """V(present): made where it is missing. V(absent): deleted with all that is in it, if this module has made it for
    the same owner; another folder of the name is left alone, with the error C(NotOurs)."""


class FolderEntry(_RequiredFolder, total=False):
    """The folder of a PersistentVolume that was made for a claim, on the machine that has the data."""

    exported: Annotated[bool, Default(False)]
    """Whether the machine's NFS server is to export it; where its table has no such folder, the key has the error
    C(NotExported)."""
    size_bytes: Optional[int]
    """What the folder may hold, enforced by a project quota of its file system; null for no limit. Where that has none,
    no folder is made, and the key has the error C(QuotaUnavailable)."""
