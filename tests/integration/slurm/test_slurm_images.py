"""Pods with an image on a real Slurm, run by what a site may have: Charliecloud, or Slurm's own ``--container``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.virtual.provider import ContainerLogOptions
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.integration.slurm.test_slurm_provider import ended, pod, provider_on, state, status
from tests.support.servers.slurm import Slurm
from tests.support.servers.slurm_images import CHARLIECLOUD, CONTAINER, IMAGE
from tests.support.waiting import until

SECRET = "not for everybody"
Start = Callable[..., SlurmProvider]


@pytest.fixture
def start(slurm: Slurm, tmp_path: Path) -> Iterator[Start]:
    """Makes a provider with an ``image_command``."""
    made: list[SlurmProvider] = []

    def start(*image_command: str, **found: Any) -> SlurmProvider:
        made.append(provider_on(slurm, tmp_path, image_command=image_command, **found))
        return made[-1]

    yield start
    for provider in made:
        for each in provider.get_pods():
            provider.delete_pod(each)
        provider.close()


def in_image(name: str, script: str, **container: Any) -> dict[str, Any]:
    """Return a Pod whose shell is that of the image."""
    return pod(name, ["sh", "-c", script], container={"image": IMAGE, **container})


def said(provider: SlurmProvider, name: str) -> str:
    return b"".join(provider.get_container_logs("default", name, "app", ContainerLogOptions())).decode()


@pytest.mark.parametrize("runtime", [CHARLIECLOUD, CONTAINER], ids=["charliecloud", "container"])
def test_a_pod_has_its_image_files_variables_and_last_words(start: Start, runtime: tuple[str, ...]):
    provider = start(*runtime, config_maps={"default/texts": {"data": {"hi": "from a ConfigMap\n"}}})
    script = (
        'cat /etc/motd texts/hi; echo "$WORD $SLURM_JOB_PARTITION"; id -u; echo "$LD_PRELOAD"; ls /etc/slurm; '
        'echo "last words" > "$MINIK8S_TERMINATION_LOG"; exit 7'
    )
    made = in_image(
        "one",
        script,
        # outside of the image, the dynamic linker would complain of the second
        env=[{"name": "WORD", "value": "it's $HOME"}, {"name": "LD_PRELOAD", "value": "/nowhere.so"}],
        volumeMounts=[{"name": "texts", "mountPath": "texts"}],
    )
    made["spec"]["volumes"] = [{"name": "texts", "configMap": {"name": "texts"}}]
    provider.create_pod(made)
    found = ended(provider, "one")
    printed = said(provider, "one").splitlines()
    assert printed[:5] == ["of the image", "from a ConfigMap", "it's $HOME batch", "1000", "/nowhere.so"], printed
    assert "/etc/slurm: No such file" in printed[5]
    assert (found["exitCode"], found["message"]) == (7, "last words\n")


@pytest.mark.parametrize("runtime", [CHARLIECLOUD, CONTAINER], ids=["charliecloud", "container"])
def test_values_are_in_no_command_line_and_in_no_file_of_everybody(
    start: Start, slurm: Slurm, runtime: tuple[str, ...]
):
    provider = start(*runtime)
    provider.create_pod(in_image("one", "echo ready; sleep 600", env=[{"name": "WORD", "value": SECRET}]))
    until(lambda: "ready" in said(provider, "one"))
    assert SECRET not in slurm.run(["ps", "-eo", "args"])
    assert SECRET not in slurm.run(["scontrol", "-o", "show", "job"])
    places = "/home /run /tmp /var/spool /var/log"
    assert slurm.run(["sh", "-c", f"grep -rl '{SECRET}' {places} 2>/dev/null || true"], "munge") == ""


def test_a_deleted_pod_ends_what_runs_in_its_image(start: Start, slurm: Slurm):
    provider = start(*CHARLIECLOUD)
    provider.create_pod(in_image("one", "echo ready; sleep 4711"))
    until(lambda: "ready" in said(provider, "one"))
    assert "sleep 4711" in slurm.run(["ps", "-eo", "args"])
    provider.delete_pod(provider.get_pod("default", "one"))
    until(lambda: "sleep 4711" not in slurm.run(["ps", "-eo", "args"]))


def test_what_is_missing_says_so(start: Start):
    """An image that the site does not have, and a compute node without the program."""
    provider = start(*CHARLIECLOUD)
    absent = in_image("absent", "true")
    absent["spec"]["containers"][0] |= {"image": "tools/absent", "terminationMessagePolicy": "FallbackToLogsOnError"}
    provider.create_pod(absent)
    assert ended(provider, "absent")["exitCode"] != 0
    assert "/images/tools/absent" in state(provider, "absent")["terminated"]["message"]
    other = start("apptainer", "exec", "docker://{image}")
    other.create_pod(in_image("one", "true"))
    assert ended(other, "one")["exitCode"] == 127
    assert "this compute node has no apptainer" in said(other, "one")


def test_a_volume_may_be_at_an_absolute_path(start: Start):
    provider = start(*CHARLIECLOUD, secrets={"default/keys": {"data": {"key": "c2VjcmV0"}}})
    mounts = [{"name": "keys", "mountPath": "/etc/keys"}, {"name": "data", "mountPath": "/data"}]
    script = 'cat /etc/keys/key; touch /data/one && ls /data; grep " /data " /proc/self/mounts | wc -l'
    made = in_image("one", script, volumeMounts=mounts)
    made["spec"]["volumes"] = [{"name": "keys", "secret": {"secretName": "keys"}}, {"name": "data", "emptyDir": {}}]
    provider.create_pod(made)
    assert ended(provider, "one")["exitCode"] == 0, said(provider, "one")
    assert said(provider, "one") == "secretone\n1\n"


def test_an_image_has_a_working_directory_of_its_own(start: Start):
    provider = start(*CHARLIECLOUD)
    provider.create_pod(in_image("one", "pwd; cat motd", workingDir="/etc"))
    assert ended(provider, "one")["exitCode"] == 0
    assert said(provider, "one") == "/etc\nof the image\n"
    assert status(provider, "one")["phase"] == "Succeeded"


def test_an_image_is_fetched_as_the_pod_says(start: Start):
    """A site's script stands for a program that asks a registry: it copies the image into the user's own folder."""
    script = 'echo "fetches $0"; mkdir -p ~/own/tools && cp -a /images/tools/busybox ~/own/tools/'
    runtime = [word.replace("/images", "/home/student/own") for word in CHARLIECLOUD]
    test, pull = ["test", "-d", "/home/student/own/{image}"], ["sh", "-c", script, "{image}"]
    provider = start(*runtime, configured={"image_test_command": test, "image_pull_command": pull})
    seen = {}
    for number, policy in enumerate(("Never", "IfNotPresent", "IfNotPresent", "Always", "Never")):
        name = f"pulled-{number}"
        provider.create_pod(in_image(name, "cat /etc/motd", imagePullPolicy=policy))
        seen[name] = (policy, ended(provider, name)["exitCode"], said(provider, name))
    fetched = f"fetches {IMAGE}\n"
    never = f"minik8s: image {IMAGE} is not on this compute node, and imagePullPolicy Never forbids to fetch it\n"
    assert list(seen.values()) == [
        ("Never", 125, never),
        ("IfNotPresent", 0, f"{fetched}of the image\n"),
        ("IfNotPresent", 0, "of the image\n"),
        ("Always", 0, f"{fetched}of the image\n"),
        ("Never", 0, "of the image\n"),
    ]
