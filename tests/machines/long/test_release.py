"""What users are given, on lab machines: a wheel without a checkout, a bundle without a network, a release's successor.

The lab's machines reach nothing outside. What a bundle brings is taken from them first. The wheel's environment is made
by pip, from the index for the wheel, and from the bundle's folder alone in a network namespace for the bundle.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.lab.records import RELEASES, Release
from tests.machines.membership.members import Members
from tests.support.clusters import standing
from tests.support.clusters.labcluster import REPOSITORY, CommandFailed, LabCluster
from tests.support.released import built_wheel

PLAY_S = 2400.0
BUNDLED = ("nginx-light", "etcd-server", "etcd-client", "busybox-static", "inotify-tools", "python3-pyroute2")
"""What machines of the lab have and a bare Debian has not."""


def run(*argv: str | Path, cwd: Path) -> str:
    """Run a program as a user without this checkout's environment; return what it prints."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON", "VIRTUAL"))
    }
    words = [str(word) for word in argv]
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=PLAY_S)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


def environment(folder: Path, *pip: str | Path, alone: bool = False) -> Path:
    """Make a bare virtual environment and have pip install into it; ``alone``: with no network but loopback."""
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    run(*(["unshare", "--net"] if alone else []), python, "-m", "pip", "install", "--quiet", *pip, cwd=folder)
    return python.parent


def begun(cluster: LabCluster, programs: Path, folder: Path, *options: str | Path) -> None:
    """Have ``minik8s init`` write a folder for the cluster's machines, and playbooks be run from there."""
    machines = [*(["--control-plane", f"{name}=root@{cluster.address(name)}"] for name in cluster.control)]
    machines += [["--node", f"{name}=root@{cluster.address(name)}"] for name in cluster.nodes]
    run(
        programs / "minik8s", "init", folder, *(word for each in machines for word in each), *options, cwd=folder.parent
    )
    assert (folder / "roles").resolve().is_relative_to(programs.parent)
    cluster.tree, cluster.program = folder, [str(programs / "ansible-playbook")]
    cluster.beside.append(folder / "inventory" / "mine")  # the lab's own tells how ssh gets there


def carries_a_pod(cluster: LabCluster) -> None:
    """Have a pod run on each node."""
    cluster.apply(standing.namespace())
    for node in cluster.nodes:
        cluster.apply(standing.pod(f"on-{node}", standing.pod_spec(["sleep", "10000"], node)))
    for node in cluster.nodes:
        cluster.until(lambda name=f"on-{node}": cluster.ready(name, standing.NAMESPACE), 300)  # type: ignore[misc]


def test_a_cluster_is_installed_from_the_wheel_without_a_checkout(lab_name: str, tmp_path: Path) -> None:
    programs = environment(tmp_path, built_wheel(tmp_path))
    with LabCluster(lab_name, workers=1, install=False) as cluster:
        begun(cluster, programs, tmp_path / "cluster", "--set", "minik8s_offline=true")
        cluster.play("site.yml", timeout_s=PLAY_S)
        cluster.fetch_kubeconfig()
        carries_a_pod(cluster)
        assert cluster.play("site.yml", timeout_s=PLAY_S).changed == 0
        assert "on-worker1" in cluster.on("control1", ["minik8s", "get", "pods", "-n", standing.NAMESPACE])


FAMILY: dict[Release, str] = {"bookworm": "debian-12", "trixie": "debian-13"}


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    """Debian's, of the machines that a bundle is for."""
    return cast(Release, request.param)


@pytest.fixture(scope="module")
def bundle(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for a release, unpacked where `make bundle` has not made it; MINIK8S_BUNDLE names one that is there."""
    if given := os.environ.get("MINIK8S_BUNDLE", ""):
        return Path(given)
    folder = tmp_path_factory.mktemp("bundle")
    wheel = built_wheel(folder)
    given = f'{{"bundle_families": ["{FAMILY[release]}"], "bundle_wheel": "{wheel}", "bundle_directory": "{folder}"}}'
    program = Path(sys.executable).with_name("ansible-playbook")
    run(program, "-i", "inventory/local", "playbooks/bundle.yml", "-e", given, cwd=REPOSITORY)
    (archive,) = folder.glob("*.tar")
    unpacked = folder / "elsewhere"
    unpacked.mkdir()
    run("tar", "--extract", f"--file={archive}", cwd=unpacked)
    return unpacked / archive.stem


def test_three_machines_are_installed_from_a_bundle_without_any_network(
    lab_name: str, release: Release, bundle: Path, tmp_path: Path
) -> None:
    programs = environment(tmp_path, "--no-index", f"--find-links={bundle}/wheels", "minik8s", alone=True)
    releases = dict.fromkeys(("control1", "worker1", "worker2"), release)
    with LabCluster(lab_name, workers=2, releases=releases, install=False) as cluster:
        machines = [*cluster.control, *cluster.workers]
        for name in machines:
            purge = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "purge", "--yes", "--quiet=2", *BUNDLED]
            cluster.on(name, purge, timeout_s=300)
            cluster.on(name, ["sh", "-c", "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin"])
        begun(cluster, programs, tmp_path / "cluster", "--bundle", bundle)
        cluster.play("site.yml", "-e", f"minik8s_cache_dir={tmp_path}/cache", timeout_s=PLAY_S)
        cluster.fetch_kubeconfig()
        carries_a_pod(cluster)
        again = cluster.play("site.yml", "-e", f"minik8s_cache_dir={tmp_path}/cache", timeout_s=PLAY_S)
        assert again.changed == 0, again.output
        for name in cluster.workers:
            policy = cluster.on(name, ["apt-cache", "policy", "nginx-light"])
            assert "file:/var/lib/minik8s/packages" in policy
        cluster.play("reset.yml", timeout_s=PLAY_S)
        assert not cluster.on(
            "worker1", ["sh", "-c", "ls /etc/apt/sources.list.d /etc/apt/preferences.d | grep minik8s; true"]
        )


def former() -> str:
    """Return the commit to upgrade from: a given one, the last tag, or that of a week ago."""
    asked = ("describe", "--tags", "--abbrev=0"), ("rev-list", "-1", "--before=6 days ago", "HEAD")
    if given := os.environ.get("MINIK8S_UPGRADE_FROM", ""):
        return given
    for words in asked:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    pytest.skip("there is no earlier commit here: a clone without history")


def test_an_upgrade_from_the_last_release_fails_no_request(lab_name: str, tmp_path: Path) -> None:
    """Machines of the former release get this one under load; no container of a pod is started again."""
    commit, old = former(), tmp_path / "former"
    old.mkdir()
    archive = subprocess.check_output(["git", "archive", commit], cwd=REPOSITORY)
    subprocess.run(["tar", "--extract", f"--directory={old}"], input=archive, check=True)
    with LabCluster(lab_name, workers=2, install=False) as cluster:
        cluster.tree = old
        try:
            cluster.play("site.yml", timeout_s=PLAY_S)
        except CommandFailed:  # the former one may wait too short for a busy machine; the next run goes on
            cluster.play("site.yml", timeout_s=PLAY_S)
        cluster.fetch_kubeconfig()
        cluster.apply(standing.namespace())
        members = Members(cluster)
        members.serve()
        pods = standing.pods(cluster)
        containers = {one["metadata"]["name"]: one["status"]["containerStatuses"][0]["containerID"] for one in pods}

        cluster.tree = REPOSITORY
        play = cluster.play("upgrade.yml", timeout_s=PLAY_S)

        assert play.recap["control1"]["changed"], "nothing was upgraded, so this shows nothing"
        cluster.until(lambda: set(cluster.ready_nodes()) == {*cluster.nodes}, 300)
        after = standing.pods(cluster)
        assert {
            one["metadata"]["name"]: one["status"]["containerStatuses"][0]["containerID"] for one in after
        } == containers
        counted = members.tally()
        print(f"upgraded from {commit} in {play.seconds:.0f} s: {counted.good} requests answered, {counted.bad} failed")
        assert counted.bad == 0, counted
        assert counted.good > 100
        assert cluster.play("upgrade.yml", timeout_s=PLAY_S).changed == 0
