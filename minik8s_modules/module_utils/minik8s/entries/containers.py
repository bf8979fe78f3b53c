"""Entries of the section ``containers``, key ``<pod uid>/<container>``."""

from typing import Annotated, Literal, Optional, TypedDict, Union

from ..core.schema import Default
from .identity import PodIdentity

ContainerType = Literal["app", "init", "ephemeral"]
RestartPolicy = Literal["Always", "OnFailure", "Never"]


class Stop(TypedDict):
    """How a container is stopped."""

    grace_s: Union[int, float]
    """Seconds by the node's clock from the stop signal, which is sent once, to SIGKILL."""


class _RequiredMount(TypedDict):
    volume: str
    """Name of the pod's volume."""
    kind: str
    """Kind of the volume, such as V(emptyDir). Mounts of V(configMap), V(secret), V(projected) and V(downwardAPI) are
    always read-only."""
    target: str
    """Absolute path in the container."""


class MountEntry(_RequiredMount, total=False):
    """A volume in a container."""

    read_only: Annotated[bool, Default(False)]
    """Whether the container may not write there."""
    sub_path: Annotated[str, Default("")]
    """Path below the volume that is mounted instead of the whole volume."""
    host_path: Annotated[str, Default("")]
    """The node's path, for the kind V(hostPath)."""
    propagation: Annotated[Literal["", "HostToContainer", "Bidirectional"], Default("")]
    """Whether mounts that are made later below the node's path come into the container, and with V(Bidirectional)
    the container's out to the node; empty for neither."""
    host_type: Annotated[str, Default("")]
    """What must be at C(host_path), such as V(Directory); C(hostPath.type) of the pod."""


class DeviceEntry(TypedDict):
    """A resource of the node that a container asks for."""

    resource: str
    """Name of the resource, such as V(nvidia.com/gpu)."""
    count: int
    """How many it gets."""
    paths: list[str]
    """The devices there are; the node chooses among those that are free. A later attempt keeps those of the one
    before."""
    shared: bool
    """Whether containers share the first of C(paths), and there is nothing to choose."""
    beside: list[str]
    """Devices that come along."""
    permissions: str
    """What the container may do with each: of V(r), V(w) and V(m) (make device files)."""


class TerminationMessage(TypedDict):
    """Where a container leaves its termination message."""

    path: str
    """Absolute path in the container, where a file of C(state_dir) is mounted."""
    policy: str
    """V(File), or V(FallbackToLogsOnError): the end of the log where a failed container left the file empty."""


class Security(TypedDict, total=False):
    """What a container may do, and the namespaces it shares; only what differs from every container's is given."""

    cap_add: Annotated[list[str], Default(())]
    """Capabilities beyond Docker's."""
    cap_drop: Annotated[list[str], Default(())]
    """Capabilities taken from Docker's."""
    no_new_privileges: Annotated[bool, Default(False)]
    """Whether programs may not gain privileges (setuid, file capabilities)."""
    read_only_root: Annotated[bool, Default(False)]
    """Whether the root file system is read-only."""
    seccomp: Annotated[str, Default("")]
    """Seccomp profile: empty for Docker's, V(unconfined), or V(localhost/FILE), a file below C(seccomp) in
    C(state_dir)."""
    apparmor: Annotated[str, Default("")]
    """AppArmor profile: empty for Docker's, V(unconfined), or the name of one that the node has loaded."""
    selinux: Annotated[list[str], Default(())]
    """SELinux labels, such as V(type:container_t)."""
    groups: Annotated[list[int], Default(())]
    """Supplementary groups."""
    group: Optional[int]
    """Group, where C(user) is left out: the user is then the image's."""
    non_root: Annotated[bool, Default(False)]
    """Whether an image whose user is root, or has no number, is refused."""
    unmasked_proc: Annotated[bool, Default(False)]
    """Whether all of C(/proc) is visible and writable."""
    pid: Annotated[str, Default("")]
    """Process namespace: empty for its own, V(host), V(pod), or V(container/NAME), that of the pod's container NAME."""
    ipc: Annotated[str, Default("")]
    """IPC namespace: empty for the pod's, or V(host)."""


class _RequiredContainer(TypedDict):
    pod: PodIdentity
    """The pod of the container; the key begins with its uid."""
    name: str
    """Name of the container in its pod; the key ends with it."""
    type: ContainerType
    """Which list of the pod's spec the container stands in. A sidecar is an V(init) with C(restart_policy)
    V(Always)."""
    attempt: int
    """Number of the attempt, from 0. An attempt that exited is left alone, the reconciler answers with the next one. At
    most one dead earlier attempt is kept, for its log."""
    sandbox_attempt: int
    """Attempt of the sandbox that the container runs in. Another one is the error C(SandboxMissing)."""
    state: Literal["running", "kept"]
    """V(running): C(attempt) exists and was started. V(kept): it is neither started nor removed; one that runs
    has the limits declared."""
    image: str
    """Name of an image that is on the node; nothing is pulled here."""


class ContainerEntry(_RequiredContainer, total=False):
    """A container of a pod. One that is not declared is removed by force."""

    stop: Optional[Stop]
    """Stops the container; null where it is not to be stopped."""
    entrypoint: Optional[list[str]]
    """Program and arguments in place of the image's ENTRYPOINT; its CMD then does not count either."""
    cmd: Optional[list[str]]
    """Arguments in place of the image's CMD."""
    env: Annotated[list[list[str]], Default(())]
    """Environment, as rows of name and value."""
    links: Annotated[list[list[str]], Default(())]
    """Variables that tell Services (C(enableServiceLinks)), as rows of name and value. They are given when the
    container is made and never compared; the entry of a container that runs leaves them out."""
    secret_env: Annotated[list[list[str]], Default(())]
    """Environment from Secrets, as rows of name, C(<namespace>/<name>) of the Secret, key, and HMAC of the value.
    Values are read from C(run_dir) when the container is made."""
    working_dir: Optional[str]
    """Working directory; null for the image's."""
    user: Optional[str]
    """User, or C(user:group); null for the image's."""
    privileged: Annotated[bool, Default(False)]
    """Whether the container has all rights on the node."""
    tty: Annotated[bool, Default(False)]
    """Whether it has a terminal."""
    stdin: Annotated[bool, Default(False)]
    """Whether its standard input is open."""
    stdin_once: Annotated[bool, Default(False)]
    """Whether standard input is closed for good when the first client leaves."""
    cpu_shares: Annotated[int, Default(2)]
    """Relative weight of CPU time, as Docker's C(--cpu-shares)."""
    cpu_quota_us: Annotated[int, Default(0)]
    """Microseconds of CPU time in each 100 ms; 0 for no limit."""
    memory_bytes: Annotated[int, Default(0)]
    """Limit of memory in bytes, without swap beyond it; 0 for no limit."""
    oom_score_adj: Annotated[int, Default(0)]
    """Which processes the kernel kills first when memory runs out, -1000 to 1000. A negative one becomes 0 on a machine
    that refuses it."""
    restart_policy: Optional[RestartPolicy]
    """What becomes of the container when it exits while nobody attends the node; otherwise it does not count. Null is
    V(Always) for an app and V(Never) for an init container. It then also starts a container that is V(kept) through its
    back-off."""
    mounts: Annotated[list[MountEntry], Default(())]
    """Volumes in the container."""
    devices: Annotated[list[DeviceEntry], Default(())]
    """Devices of the node, from its setting C(minik8s_devices). One that is taken away, or whose permissions change,
    has the container made again."""
    message: Optional[TerminationMessage]
    """Where the container leaves its termination message; null for nowhere."""
    security: Annotated[Security, Default({})]
    """What the container may do, and the namespaces it shares. It is compared as the text of the label
    C(minik8s.io/security)."""
