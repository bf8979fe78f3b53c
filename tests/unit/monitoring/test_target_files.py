"""Target files follow objects: made, replaced whole, removed; what others changed is put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.monitoring.target_files import TargetFiles
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until


class Kept:
    """Files below ``folder`` of a cluster in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.api = folder, FakeApi()
        self.registry = Registry()
        self._parts: list[Any] = []

    def start(self) -> None:
        """Begin."""
        informers = Informers(self.api)
        self._parts = [informers, TargetFiles(informers, self.folder, self.registry)]
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """End."""
        self.api.cut_watches()
        for part in reversed(self._parts):
            part.stop()
        self._parts = []

    def files(self) -> dict[str, str]:
        """Return what is there; a file may go while it is looked at."""
        found = {}
        for path in self.folder.rglob("*.yml"):
            with contextlib.suppress(FileNotFoundError):
                found[str(path.relative_to(self.folder))] = path.read_text()
        return found

    def node(self, name: str, address: str) -> None:
        """Register a node."""
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        self.api.create(NODE, {"metadata": {"name": name}, "status": status})

    def pod(self, name: str, port: str = "80") -> str:
        """Make a pod that asks to be scraped; returns its uid."""
        labels = {"monitor": "prometheus", "monitorPort": port}
        status = {"podIP": "10.0.0.1", "phase": "Running"}
        meta = {"name": name, "namespace": "default", "labels": labels}
        return objects.uid(self.api.create(POD, {"metadata": meta, "status": status}))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.stop()


def test_files_come_and_go_with_nodes_and_pods(kept: Kept):
    kept.start()
    kept.node("n1", "192.0.2.1")
    uid = kept.pod("p")
    until(lambda: kept.files().keys() == {"nodes/n1.yml", f"pods/{uid}.yml"})
    assert kept.files()["nodes/n1.yml"] == "- targets:\n  - 192.0.2.1:8090"
    kept.api.delete(NODE, "n1")
    kept.api.delete(POD, "p", "default", grace_s=0)
    until(lambda: not kept.files())


def test_a_pod_of_the_same_name_has_a_file_of_its_own(kept: Kept):
    kept.start()
    first = kept.pod("p")
    until(lambda: f"pods/{first}.yml" in kept.files())
    kept.api.delete(POD, "p", "default", grace_s=0)
    second = kept.pod("p")
    until(lambda: kept.files().keys() == {f"pods/{second}.yml"})


def test_what_happened_while_it_was_away_is_made_good(kept: Kept):
    kept.start()
    kept.node("n1", "192.0.2.1")
    kept.node("n2", "192.0.2.2")
    until(lambda: len(kept.files()) == 2)
    kept.stop()
    kept.api.delete(NODE, "n1")
    (kept.folder / "nodes" / "n2.yml").write_text("- targets: [somebody:1]")
    (kept.folder / "nodes" / "stray.yml").write_text("")
    kept.registry = Registry()
    kept.start()
    until(lambda: kept.files() == {"nodes/n2.yml": "- targets:\n  - 192.0.2.2:8090"})


def test_one_bad_label_stops_nobody_and_is_counted(kept: Kept):
    kept.start()
    kept.pod("bad", "x")
    good = kept.pod("good")
    until(lambda: kept.files().keys() == {f"pods/{good}.yml"})
    until(lambda: "monitoring_refused_targets 1.0" in kept.registry.text())
    assert 'monitoring_target_files{directory="pods"} 1.0' in kept.registry.text()
