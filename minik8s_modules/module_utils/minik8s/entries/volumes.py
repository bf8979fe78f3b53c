"""Entries of the section ``volumes``, key ``<pod uid>/<volume>``: a class for each kind."""

from typing import Annotated, Literal, Optional, TypedDict, Union

from ..core.schema import Default


class VolumeFile(TypedDict):
    """A file with its content in clear."""

    data: str
    """Content, in base64."""
    mode: int
    """Permission bits, as a decimal number."""


class SecretFile(TypedDict):
    """A file with a value of the volume's Secret."""

    key: str
    """Key of the Secret."""
    mode: int
    """Permission bits, as a decimal number."""


class _RequiredProjectedFile(SecretFile):
    secret: str
    """C(<namespace>/<name>) of the Secret. Tokens of service accounts come as the secret C(<namespace>/<pod
    uid>__<volume>)."""


class ProjectedFile(_RequiredProjectedFile, total=False):
    """A file with a value of any Secret."""

    uid: Optional[int]
    """User who owns the file; null for root."""


class _Grouped(TypedDict, total=False):
    fs_group: Optional[int]
    """The pod's C(fsGroup), which files and folders then belong to; null for none. Not for V(hostPath) and
    V(nfs), as in Kubernetes."""


class _RequiredEmptyDir(TypedDict):
    kind: Literal["emptyDir"]
    """Kind of the volume."""


class EmptyDir(_RequiredEmptyDir, _Grouped, total=False):
    """V(emptyDir): a folder that lives as long as its pod."""

    medium: Annotated[Literal["", "HugePages", "Memory"], Default("")]
    """With V(emptyDir): empty for the node's disk, V(Memory) for a tmpfs, V(HugePages) for a hugetlbfs."""
    page_bytes: Optional[int]
    """With V(emptyDir) on V(HugePages): size of the pages in bytes."""
    size_bytes: Optional[int]
    """With V(emptyDir): limit in bytes, null for none, enforced here for V(Memory) and V(HugePages). With V(csi): the
    PersistentVolume's capacity; a larger one than before has the driver expand the volume."""


class _RequiredHostPath(TypedDict):
    kind: Literal["hostPath"]
    """Kind of the volume."""
    path: str
    """With V(hostPath) and V(local): path on the node."""


class HostPath(_RequiredHostPath, total=False):
    """V(hostPath): a path of the node; never deleted."""

    type: Annotated[str, Default("")]
    """With V(hostPath): what must be there, or is made, as C(hostPath.type) of a pod; empty for no check."""


class _RequiredLocal(TypedDict):
    kind: Literal["local"]
    """Kind of the volume."""
    path: str
    """With V(hostPath) and V(local): path on the node."""


class Local(_RequiredLocal, _Grouped):
    """V(local): a folder of the node that a PersistentVolume names; it must be there, and is never deleted."""


class _RequiredNfs(TypedDict):
    kind: Literal["nfs"]
    """Kind of the volume."""
    server: str
    """With V(nfs): name or address of the server."""
    path: str
    """With V(nfs): path that the server exports."""


class Nfs(_RequiredNfs, total=False):
    """V(nfs): a folder of an NFS server, mounted before the pod's containers and taken away after them."""

    options: Annotated[list[str], Default(())]
    """With V(nfs) and V(csi): C(mountOptions) of the PersistentVolume. None: NFS 4.2 or what the server speaks,
    V(hard). Others take effect at the next mount."""


class _RequiredCsi(TypedDict):
    kind: Literal["csi"]
    """Kind of the volume."""
    driver: str
    """With V(csi): name of the driver, which must be registered on the node."""
    handle: str
    """With V(csi): the driver's id of the volume."""


class Csi(_RequiredCsi, _Grouped, total=False):
    """V(csi): a volume that a CSI driver on the node mounts before the pod's containers, and takes away after them."""

    inline: Annotated[bool, Default(False)]
    """With V(csi): whether the volume is the pod's own, which the driver makes and removes with it."""
    read_only: Annotated[bool, Default(False)]
    """With V(csi): whether the driver is to mount it for reading alone."""
    fs_type: Annotated[str, Default("")]
    """With V(csi): C(fsType) of the PersistentVolume."""
    access_mode: Annotated[str, Default("ReadWriteOnce")]
    """With V(csi): the first access mode of the PersistentVolume."""
    attributes: Annotated[dict[str, str], Default({})]
    """With V(csi): C(volumeAttributes), and what the driver is told of the pod."""
    publish_context: Annotated[dict[str, str], Default({})]
    """With V(csi): what the driver's controller said when it attached the volume."""
    options: Annotated[list[str], Default(())]
    """With V(nfs) and V(csi): C(mountOptions) of the PersistentVolume. None: NFS 4.2 or what the server speaks,
    V(hard). Others take effect at the next mount."""
    size_bytes: Optional[int]
    """With V(emptyDir): limit in bytes, null for none, enforced here for V(Memory) and V(HugePages). With V(csi): the
    PersistentVolume's capacity; a larger one than before has the driver expand the volume."""
    secrets: Annotated[dict[str, str], Default({})]
    """With V(csi): C(<namespace>/<name>) of the Secrets that the driver is told, by the call: V(stage), V(publish),
    V(expand)."""
    had_bytes: Optional[int]
    """With V(csi): the claim's capacity, if it is less than the volume's; the driver then expands the volume once it
    is mounted."""


class _RequiredClearVolume(TypedDict):
    kind: Literal["configMap", "downwardAPI"]
    """Kind of the volume."""
    files: dict[str, VolumeFile]
    """With V(configMap), V(downwardAPI) and V(projected): files by path."""


class ClearVolume(_RequiredClearVolume, _Grouped):
    """V(configMap), V(downwardAPI): files whose content documents may show."""


class _RequiredSecretVolume(TypedDict):
    kind: Literal["secret"]
    """Kind of the volume."""
    secret: str
    """With V(secret): C(<namespace>/<name>) of the Secret; empty for an optional one that does not exist."""
    hmac: str
    """With V(secret): HMAC of its values, as in the section C(secrets)."""
    items: dict[str, SecretFile]
    """With V(secret): files by path. With V(projected): files from Secrets by path."""


class SecretVolume(_RequiredSecretVolume, _Grouped):
    """V(secret): values of one Secret, on a tmpfs."""


class _RequiredProjectedVolume(TypedDict):
    kind: Literal["projected"]
    """Kind of the volume."""
    files: dict[str, VolumeFile]
    """With V(configMap), V(downwardAPI) and V(projected): files by path."""
    items: dict[str, ProjectedFile]
    """With V(secret): files by path. With V(projected): files from Secrets by path."""
    hmacs: dict[str, str]
    """With V(projected): HMAC of the values of each Secret, by C(<namespace>/<name>)."""


class ProjectedVolume(_RequiredProjectedVolume, _Grouped):
    """V(projected): files from several sources, on a tmpfs."""


VolumeEntry = Union[EmptyDir, HostPath, Local, Nfs, Csi, ClearVolume, SecretVolume, ProjectedVolume]
"""A volume of a pod."""
