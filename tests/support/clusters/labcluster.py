"""A whole cluster on lab machines, installed by the real playbooks from an inventory as a user writes one.

    with LabCluster("mine", control=1, workers=2) as cluster:
        cluster.kubectl("apply", "-f", "-", stdin=manifest)
        cluster.until(lambda: cluster.ready("web"))
        cluster.lab.cut_off("worker1")
        assert cluster.play("site.yml").changed == 0

Machines are called control1... and worker1...; without workers the machines of the control plane are the nodes. The
playbooks run here, by this environment's ansible-playbook with this tree, over SSH as root by `warm_ssh` (set
`ansible_connection: ssh` for the usual way); machines have no way out, so `minik8s_offline` is set. All of it,
inventory and kubeconfig too, lies in the lab's folder and goes with the lab.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient
from tests.lab.errors import LabError
from tests.lab.lab import Lab
from tests.lab.records import DEFAULT_RELEASE, Kind, NodeSpec, Release
from tests.support.kubectl import kubectl_path
from tests.support.waiting import nap

REPOSITORY = Path(__file__).resolve().parents[3]
PLAYBOOK_S, KUBECTL_S, READY_S = 1200, 90, 120
TAIL = 6000
VARIABLES = {"minik8s_offline": True, "minik8s_network_driver": "vxlan", "ansible_connection": "warm_ssh"}
RECAP = re.compile(r"^(\S+)\s+: (ok=\d.*)$", re.MULTILINE)
HOST_SOCKET = "unix:///var/run/docker.sock"


class CommandFailed(Exception):
    """A playbook or kubectl ended with another status than 0; the message has its first failure and its last words."""

    def __init__(self, argv: Sequence[str], status: int, words: str) -> None:
        begun = words.find("fatal: ")  # other machines may have gone on for long after it
        first = words[begun : begun + TAIL // 2] + "\n...\n" if 0 <= begun < len(words) - TAIL else ""
        super().__init__(f"{' '.join(argv)} ended with {status}:\n{first}{words[-TAIL:]}")
        self.words = words


@dataclass(frozen=True)
class Play:
    """What a run of a playbook said; ``recap`` is, by machine, Ansible's last table (ok, changed, failed...)."""

    output: str
    recap: dict[str, dict[str, int]]
    seconds: float

    @property
    def changed(self) -> int:
        """The tasks that changed something, on all machines."""
        return sum(counts["changed"] for counts in self.recap.values())


class LabCluster:
    """One cluster on a lab of its own; see the module's text.

    Args:
        name: Of the lab, 1 to 9 lower-case letters and digits.
        control: Machines of the control plane; etcd has as many members.
        workers: Nodes that are not in the control plane.
        kind: Of all machines, native or uml.
        variables: For all machines, over the defaults of the inventory (vxlan, offline, warm_ssh).
        host_variables: For single machines.
        memory_mib: Of a UML machine.
        control_is_node: Whether machines of the control plane are nodes as well; None: where there are no workers.
        releases: Debian's release of single machines; the others have the lab's own.
        spare: Further machines, switched on and in no group: to be added later. They are called spare1...
        beside: Folders of ``inventory/`` that are read beside the written inventory, and win.
        install: Whether entering installs the cluster; else ``install`` does.
    """

    def __init__(
        self,
        name: str,
        *,
        control: int = 1,
        workers: int = 2,
        kind: Kind = "native",
        variables: Mapping[str, Any] | None = None,
        host_variables: Mapping[str, Mapping[str, Any]] | None = None,
        memory_mib: int | None = None,
        control_is_node: bool | None = None,
        releases: Mapping[str, Release] | None = None,
        spare: int = 0,
        beside: Sequence[str] = (),
        install: bool = True,
    ) -> None:
        self.lab = Lab(name)
        self.kind, self.memory_mib, self.releases = kind, memory_mib, dict(releases or {})
        self.control = [f"control{i}" for i in range(1, control + 1)]
        self.workers = [f"worker{i}" for i in range(1, workers + 1)]
        self.spare = [f"spare{i}" for i in range(1, spare + 1)]
        both = control_is_node if control_is_node is not None else not workers
        self.nodes = [*(self.control if both else []), *self.workers]
        self.variables = {**VARIABLES, **(variables or {})}
        self.host_variables = {name: dict(given) for name, given in (host_variables or {}).items()}
        self.tree = REPOSITORY
        """Whose playbooks are run: this checkout, or the folder of a release."""
        self.program = [str(Path(sys.executable).with_name("ansible-playbook"))]
        self.folder = self.lab.folder / "cluster"
        self.inventory = self.folder / "inventory"
        self.beside = [REPOSITORY / "inventory" / folder for folder in beside]
        self._install = install

    # --- its life

    def __enter__(self) -> Self:
        """Switch the machines on and install the cluster."""
        try:
            self.up()
            if self._install:
                self.install()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove everything; MINIK8S_KEEP in the environment keeps a lab whose test failed (`lab down` ends it)."""
        if kind is None or not os.environ.get("MINIK8S_KEEP"):
            self.close()

    def up(self) -> None:
        """Switch the machines on and write the inventory."""
        names = [*self.control, *self.workers, *self.spare]
        asked = {name: self.releases.get(name, DEFAULT_RELEASE) for name in names}
        self.lab.up([NodeSpec(name, self.kind, self.memory_mib, asked[name]) for name in names])
        self.folder.mkdir(exist_ok=True)
        self.write_inventory()

    def install(self, *arguments: str) -> Play:
        """Run site.yml and take the administrator's kubeconfig; all nodes are Ready then."""
        done = self.play("site.yml", *arguments)
        self.fetch_kubeconfig()
        return done

    def close(self) -> None:
        """Remove the machines and all that lies here of them."""
        self.lab.down()

    # --- the inventory

    def write_inventory(self) -> None:
        """Write the inventory from ``control``, ``nodes``, ``variables`` and ``host_variables`` as they are now."""
        of_lab = yaml.safe_load(self.lab.inventory.read_text(encoding="utf-8"))["all"]["vars"]
        hosts = {
            name: {"ansible_host": self.address(name), **self.host_variables.get(name, {})}
            for name in dict.fromkeys([*self.control, *self.nodes])
        }
        groups = {"control_plane": self.control, "etcd": self.control, "nodes": self.nodes}
        tree = {
            "vars": {**of_lab, **self.variables},
            "hosts": hosts,
            "children": {group: {"hosts": dict.fromkeys(names)} for group, names in groups.items()},
        }
        self.inventory.mkdir(parents=True, exist_ok=True)
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump({"all": tree}, sort_keys=False), encoding="utf-8")

    def address(self, machine: str) -> str:
        """Return the address of a machine."""
        return self.lab.machine(machine).address

    # --- commands

    def play(self, playbook: str, *arguments: str, timeout_s: float = PLAYBOOK_S) -> Play:
        """Run a playbook of ``playbooks/`` (or a path) on this inventory.

        Raises:
            CommandFailed: A task failed, or a machine was not reached; ``words`` is the whole output.
        """
        argv, environment = self._ansible(playbook, arguments)
        begun = time.monotonic()
        done = subprocess.run(
            argv,
            env=environment,
            cwd=self.tree,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(["ansible-playbook", Path(playbook).name, *arguments], done.returncode, done.stdout)
        return Play(done.stdout, recap(done.stdout), time.monotonic() - begun)

    @contextlib.contextmanager
    def playing(self, playbook: str, *arguments: str) -> Iterator[Path]:
        """Run a playbook while this lasts, kill it at the end, and yield the file of its output."""
        argv, environment = self._ansible(playbook, arguments)
        log = self.folder / "playing.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv,
                env=environment,
                cwd=self.tree,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            yield log
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    def _ansible(self, playbook: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of a run on this inventory."""
        path = Path(playbook) if "/" in playbook else self.tree / "playbooks" / playbook
        argv = [*self.program]
        argv += [word for folder in (self.inventory, *self.beside) for word in ("-i", str(folder))] + [str(path)]
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        # a former release's plugins import its own package, not that of the checkout whose environment runs them
        own = {"ANSIBLE_CONFIG": str(self.tree / "ansible.cfg"), "PYTHONPATH": str(self.tree), "ANSIBLE_NOCOLOR": "1"}
        environment = {**inherited, **own}
        return [*argv, *arguments], environment

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, usable here; its server is the first machine of the control plane."""
        return self.folder / "admin.kubeconfig"

    def fetch_kubeconfig(self, control: str = "") -> Path:
        """Take the kubeconfig of a machine of the control plane (the first), write and return it."""
        name = control or self.control[0]
        text = self.on(name, ["cat", "/etc/minik8s/admin.kubeconfig"])
        target = self.kubeconfig if not control else self.folder / f"{control}.kubeconfig"
        target.touch(mode=0o600)
        target.write_text(re.sub(r"https://[^:/]+:", f"https://{self.address(name)}:", text), encoding="utf-8")
        return target

    def kubectl(self, *argv: str, stdin: str | None = None, control: str = "", timeout_s: float = KUBECTL_S) -> str:
        """Run the real kubectl 1.32 here as the administrator and return its standard output.

        Args:
            argv: Its arguments.
            stdin: Its standard input, as for ``apply -f -``.
            control: The machine whose API server is asked; the first by default.
            timeout_s: How long it may take.

        Raises:
            CommandFailed: It ended with another status than 0.
        """
        config = self.fetch_kubeconfig(control) if control else self.kubeconfig
        words = [str(kubectl_path()), f"--kubeconfig={config}", "--request-timeout=30s", *argv]
        done = subprocess.run(words, input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise CommandFailed(["kubectl", *argv], done.returncode, done.stdout + done.stderr)
        return done.stdout

    def client(self) -> ApiClient:
        """Return a client of the API as the administrator; the caller closes it."""
        return ApiClient.from_kubeconfig(self.kubeconfig, user_agent="lab-cluster")

    def on(self, machine: str, argv: Sequence[str], *, text: str = "", timeout_s: float = 60) -> str:
        """Run a command on a machine as root and return what it printed (``Lab.run``)."""
        return self.lab.run(machine, argv, text=text, timeout_s=timeout_s)

    def load_image(self, image: str, machines: Sequence[str] = ()) -> None:
        """Load an image of this host's Docker on machines, by default all nodes."""
        archive = self.lab.folder / "share" / "image.tar"
        subprocess.run(["docker", "-H", HOST_SOCKET, "save", "-o", str(archive), image], check=True)
        try:
            for machine in machines or self.nodes:
                self.on(machine, ["docker", "load", "--quiet", "--input", f"/mnt/host/{archive.name}"], timeout_s=180)
        finally:
            archive.unlink()

    # --- objects

    def apply(self, *objects: JsonObject) -> None:
        """Apply objects by kubectl."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, *argv: str) -> JsonObject:
        """Return what ``kubectl get ARGV -o json`` prints."""
        found: JsonObject = json.loads(self.kubectl("get", *argv, "-o", "json"))
        return found

    def ready(self, pod: str, namespace: str = "default") -> bool:
        """Return whether a pod is Ready."""
        return is_true(self.get("pod", pod, "-n", namespace), "Ready")

    def ready_nodes(self) -> list[str]:
        """Return the names of the nodes that are Ready."""
        return [node["metadata"]["name"] for node in self.get("nodes")["items"] if is_true(node, "Ready")]

    def inside(self, pod: str, *argv: str, namespace: str = "default", timeout_s: float = KUBECTL_S) -> str:
        """Run a command in a pod's first container by kubectl exec."""
        return self.kubectl("exec", pod, "-n", namespace, "--", *argv, timeout_s=timeout_s)

    def until(self, condition: Callable[[], Any], timeout_s: float = READY_S, told: str = "") -> Any:
        """Return the first true value of ``condition``; refusals and unreachable servers count as not yet."""
        begun, last = time.monotonic(), ""
        while True:
            try:
                if value := condition():
                    return value
                last = ""
            except (CommandFailed, StatusError, TemporaryError) as error:
                last = str(error)
            assert time.monotonic() < begun + timeout_s, f"not within {timeout_s} s: {told} {last}\n{self.report()}"
            nap(begun)

    def report(self) -> str:
        """Return what helps to understand a failure: nodes, pods, last words of the control plane."""
        argv = ["journalctl", "--no-pager", "--lines=40", "--unit=minik8s-*"]
        parts = [_words(lambda: self.kubectl("get", "nodes,pods", "-A", "-o", "wide"))]
        parts += [f"--- {name}\n" + _words(lambda name=name: self.on(name, argv)) for name in self.control]  # type: ignore[misc]  # mypy cannot infer the default
        return "\n".join(parts)


def recap(output: str) -> dict[str, dict[str, int]]:
    """Return Ansible's last table by machine."""
    _, _, table = output.rpartition("PLAY RECAP")
    return {
        name: {word: int(count) for word, count in (pair.split("=") for pair in counts.split())}
        for name, counts in RECAP.findall(table)
    }


def is_true(thing: JsonObject, condition: str) -> bool:
    """Return whether an object's status has a condition that is True."""
    found = thing.get("status", {}).get("conditions") or []
    return any(one["type"] == condition and one["status"] == "True" for one in found)


def _words(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except (CommandFailed, LabError, OSError, subprocess.SubprocessError) as error:
        return str(error)
