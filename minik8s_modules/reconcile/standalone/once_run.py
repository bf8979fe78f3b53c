"""The shell of ``minik8s reconciler --once``: reads a folder, asks Docker, has Ansible realize, tells what came of it.

What is decided, and why nobody stays: ``once.py``.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import logging
import queue
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from docker import APIClient
from docker.errors import DockerException

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.core.fencing import stored_token
from minik8s_modules.module_utils.minik8s.core.files import write_atomically
from minik8s_modules.module_utils.minik8s.core.observations import observation_from_inspect
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.housekeeping.static_pods import parse_manifests
from minik8s_modules.reconcile.standalone.once import Round, Verdict, unfit
from minik8s_modules.reconcile.values.images import normalized
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, Runner
from minik8s_modules.reconcile.values.values import Settings

log = logging.getLogger(__name__)
OWN = ("bridge", "cluster_cidr", "pause_image")
"""What --settings may say here."""
SMALLEST = 29
TURN_S = 1.0


class Asked(NamedTuple):
    """What the command line asks for."""

    node: str
    manifests: Path
    cidr: str
    state_dir: Path
    run_dir: Path
    docker_socket: str
    project_dir: Path
    own: Mapping[str, Any]


class Engine(Protocol):
    """The machine's Docker."""

    def containers(self) -> list[JsonObject]:
        """Return the observations of the node's containers."""

    def images(self) -> list[str]:
        """Return the names of all images."""

    def pull(self, image: str) -> str:
        """Pull an image; return why that failed, "" where it did not."""


def read_pods(node: str, folder: Path) -> list[JsonObject]:
    """Return the pods of a folder's files.

    Raises:
        ConfigurationError: the folder cannot be read, or a file holds none that can run so; all such files are told.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        sent = [{"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()} for path in paths]
    except OSError as error:
        raise ConfigurationError(f"--manifests {folder}: {error.strerror}") from error
    parsed = parse_manifests(node, sent)
    wrong = {
        **parsed.errors,
        **{name: why for pod in parsed.pods if (why := unfit(pod)) for name in [objects.name(pod)]},
    }
    if wrong:
        raise ConfigurationError("; ".join(f"{name}: {why}" for name, why in sorted(wrong.items())))
    return parsed.pods


class LocalDocker:
    """The machine's Docker, by its socket."""

    def __init__(self, socket: str, node: str) -> None:
        self._own, self._node = Docker(socket), node
        self._client = APIClient(base_url=f"unix://{socket}", timeout=600)

    def containers(self) -> list[JsonObject]:
        """Return the observations of the node's containers."""
        found = (self._own.inspect(one["Id"]) for one in self._own.containers({labels.NODE: self._node}))
        return [observation_from_inspect(one) for one in found if one is not None]

    def images(self) -> list[str]:
        """Return the names of all images."""
        found = self._client.images()
        return [
            name for one in found for name in (one["Id"], *(one.get("RepoTags") or []), *(one.get("RepoDigests") or []))
        ]

    def pull(self, image: str) -> str:
        """Pull an image; return why that failed, "" where it did not."""
        try:
            repository, _at, digest = normalized(image).partition("@")
            name, _colon, tag = (repository, "", digest) if digest else repository.rpartition(":")
            self._client.pull(name, tag=tag)
        except (DockerException, ValueError) as error:
            return str(error)
        return ""


def check_cidr(text: str) -> str:
    """Return the range of pods' addresses. Raises ConfigurationError."""
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ConfigurationError(f"--pod-cidr {text}: {error}") from error
    if found.prefixlen > SMALLEST:
        raise ConfigurationError(f"--pod-cidr {text} is too small: /29 or larger")
    return str(found)


def run(
    turn: Round,
    engine: Engine,
    make_runner: Callable[[Callable[[Outcome], None]], Runner],
    clock: Clock,
    stop: threading.Event,
) -> dict[str, Verdict]:
    """Turn until each pod has a verdict that is over, or until ``stop``; return the verdicts."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    runner = make_runner(outcomes.put)
    runner.start()
    said: dict[str, Verdict] = {}
    number = 0
    try:
        while not stop.is_set():
            turn.see(engine.containers(), engine.images(), clock)
            turn.decide(clock)
            item = turn.item(number, clock)
            if item is not None:
                number += 1
                runner.submit(item)
                outcome = _next(outcomes, stop)
                if outcome is None:
                    break
                turn.take(outcome, clock)
                continue
            said = _tell(turn.verdicts(), said)
            if all(one.over for one in said.values()):
                break
            for image in turn.pulls():
                log.info("pulling %s", image)
                turn.on_pulled(image, engine.pull(image), clock)
            clock.wait(stop, TURN_S)
    finally:
        runner.stop()
    return said


def _next(outcomes: queue.SimpleQueue[Outcome], stop: threading.Event) -> Outcome | None:
    """Return what became of an item, however slow the machine is; None once this is to stop."""
    while not stop.is_set():
        try:
            return outcomes.get(timeout=TURN_S)
        except queue.Empty:
            continue
    return None


def _tell(now: dict[str, Verdict], before: Mapping[str, Verdict]) -> dict[str, Verdict]:
    for name, one in now.items():
        if one != before.get(name):
            log.info("pod %s: %s", name, one.word)
    return now


def settings_of(own: Mapping[str, Any]) -> Settings:
    """Return the settings of a machine by itself: no names, no ways in, no API.

    Raises:
        ConfigurationError: --settings says what nothing here looks at.
    """
    if unknown := sorted(set(own) - set(OWN)):
        raise ConfigurationError(f"--settings: {unknown[0]} would do nothing with --once; known are {', '.join(OWN)}")
    usual = Settings()
    bridge, cidr, image = (str(own.get(name, getattr(usual, name))) for name in OWN)
    return usual._replace(bridge=bridge, cluster_cidr=cidr, pause_image=image)


def _key(path: Path) -> bytes:
    """Return the key of digests, which is made once: another one would make volumes again."""
    if not path.exists():
        write_atomically(str(path), secrets.token_hex(32).encode("ascii"), sync=True)
    return path.read_bytes()


def main(asked: Asked, check: Callable[[str, str], None], clock: Clock, stop: threading.Event) -> int:
    """Make the pods; return the exit code: 0 where each runs or has succeeded, else 1. Raises ConfigurationError."""
    settings = settings_of(asked.own)
    pods = read_pods(asked.node, asked.manifests)
    if stored_token(str(asked.state_dir)) is not None:
        raise ConfigurationError(
            f"{asked.state_dir} is a node's of a cluster: static pods there are files in the folder of its manifests "
            "(control_plane_housekeeping, -c node.yml); or name another --state-dir"
        )
    check(asked.docker_socket, settings.pause_image)
    work = asked.run_dir / "once"
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    variables = {
        "ansible_connection": "warm_local",
        "minik8s_state_dir": str(asked.state_dir),
        "minik8s_run_dir": str(asked.run_dir),
        "minik8s_docker_socket": asked.docker_socket,
    }
    inventory = work / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"hosts": {asked.node: variables}}}), encoding="utf-8")

    def make(on_outcome: OnOutcome) -> Runner:
        return AnsibleRunner(
            inventory=inventory, private_data_dir=work / "r", project_dir=asked.project_dir, on_outcome=on_outcome
        )

    settings = settings._replace(hmac_key=_key(asked.state_dir / "once.key"))
    engine = LocalDocker(asked.docker_socket, asked.node)
    found = run(Round(asked.node, check_cidr(asked.cidr), pods, settings), engine, make, clock, stop)
    for name, one in sorted(found.items()):
        sys.stdout.write(f"{name}\t{one.word}\n")
    return 0 if len(found) == len(pods) and all(one.good for one in found.values()) else 1
