"""A Pod's image on a compute node: the words of the site's own command, and what of an image is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.slurm.entries import asked
from minik8s_modules.virtual.providers.slurm.fetching import NOTHING, Fetching, lines
from minik8s_modules.virtual.providers.slurm.fetching import faults as fetching_faults
from minik8s_modules.virtual.providers.slurm.images import faults, in_image
from tests.unit.virtual.test_slurm_entries import CLUSTER, pod

APPTAINER = ["apptainer", "exec", "docker://{image}"]
# prints its words and variables as a program in a container would see them
STAND_IN = ["env", "-C", "{folder}", "IMAGE=/images/{image}.sif", "WORKDIR={workdir}"]


def script(site: list[str], **container: Any) -> str:
    made: str = asked(pod(container={"image": "alpine:3", **container}), "batch", CLUSTER, site).entry["script"]
    return made


def run(text: str, work: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script where a job runs it: in ``work``, with its termination log beside that folder."""
    env = {"PATH": "/usr/bin:/bin", "MINIK8S_TERMINATION_LOG": str(work.parent / "termination-log"), **environment}
    return subprocess.run(["/bin/sh", "-c", text], cwd=work, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A job's working folder, with a name that a shell would take apart."""
    found = tmp_path / "it's a $HOME" / "work"
    found.mkdir(parents=True)
    return found


def test_an_image_is_run_by_what_the_site_has():
    container = {"image": "registry.example:5000/a/b@sha256:0f", "args": ["$(A)"], "env": [{"name": "A", "value": "x"}]}
    last = script(APPTAINER, **container).splitlines()[-1]
    assert last.startswith("exec apptainer exec docker://registry.example:5000/a/b@sha256:0f /bin/sh -c 'while ")
    assert last.endswith("""exec "$@"' sh A -- true "${MINIK8S_ENV_A}\"""")
    bare = script(APPTAINER, **{**container, "args": [], "env": []})
    assert bare.splitlines()[-1] == "exec apptainer exec docker://registry.example:5000/a/b@sha256:0f true"
    assert script(APPTAINER, image=IMAGE) == "#!/bin/sh\nexec true\n"


def test_a_variable_that_would_take_anothers_place_is_refused():
    with pytest.raises(InvalidInput, match="env MINIK8S_ENV_A"):
        script(APPTAINER, env=[{"name": "A", "value": "x"}, {"name": "MINIK8S_ENV_A", "value": "y"}])
    assert script(APPTAINER, image=IMAGE, env=[{"name": "MINIK8S_ENV_A", "value": "y"}])


def test_the_command_is_told_the_image_the_folder_and_the_working_directory(work: Path):
    asks = ["sh", "-c", 'echo "$PWD|$IMAGE|$WORKDIR"; echo said > "$MINIK8S_TERMINATION_LOG"']
    done = run(script(STAND_IN, command=asks), work)
    assert (done.stdout, done.stderr) == (f"{work}|/images/alpine:3.sif|{work}\n", "")
    assert (work.parent / "termination-log").read_text() == "said\n"
    done = run(script(STAND_IN, command=asks, workingDir="/in the/image"), work)
    assert done.stdout == f"{work}|/images/alpine:3.sif|/in the/image\n"


def test_a_second_run_tells_its_last_words_too_whatever_the_first_left_in_their_place(work: Path, tmp_path: Path):
    """Slurm requeues jobs; what a container left in its folder leads the shell outside of it nowhere."""
    foreign = tmp_path / "foreign"
    foreign.write_text("of somebody else")
    says = script(STAND_IN, command=["sh", "-c", 'echo again > "$MINIK8S_TERMINATION_LOG"'])
    (work / ".termination-log").symlink_to(foreign)
    assert run(says, work).returncode == 0
    assert (foreign.read_text(), (work.parent / "termination-log").read_text()) == ("of somebody else", "again\n")


def test_a_compute_node_without_the_program_is_named(work: Path):
    done = run(script(["/opt/no such/apptainer", "{image}"]), work)
    assert (done.returncode, done.stdout) == (127, "")
    assert "this compute node has no /opt/no such/apptainer" in done.stderr


@pytest.mark.parametrize(
    "image", ["-x", "a b", "a;id", "$(id)", "a\nb", "", "a//b", "a/", "a/../../../home", "a/./b", "/a"]
)
def test_a_name_that_leads_elsewhere_is_no_image(image: str):
    with pytest.raises(InvalidInput, match="image"):
        script(APPTAINER, image=image)


def test_a_working_directory_in_an_image_needs_a_place():
    with pytest.raises(InvalidInput, match="workdir"):
        script(APPTAINER, workingDir="/app")
    with pytest.raises(InvalidInput, match="absolute path"):
        script(STAND_IN, workingDir="app")
    with pytest.raises(InvalidInput, match="runs no container images"):
        in_image({"image": "alpine:3"}, [])


def mounting(*paths: str, **spec: Any) -> dict[str, Any]:
    """Return a Pod's fields with an emptyDir at each of ``paths``."""
    names = [f"v{number}" for number in range(len(paths))]
    mounts = [{"name": name, "mountPath": path} for name, path in zip(names, paths, strict=True)]
    volumes = [{"name": name, "emptyDir": {}} for name in names]
    return {"container": {"image": "alpine:3", "volumeMounts": mounts}, "volumes": volumes, **spec}


BINDS = ["env", "BINDS={folder}", "BIND={source}:{target}", "IMAGE={image}"]


def test_a_volume_at_an_absolute_path_is_bound_there(work: Path):
    found = asked(pod(**mounting("/etc/app/", "src", "/data")), "batch", CLUSTER, BINDS)
    assert sorted(found.values["files"]) == [".volumes/0/.keep", ".volumes/2/.keep", "src/.keep"]
    words = found.entry["script"].splitlines()[-1]
    assert 'BIND="$PWD"/.volumes/0:/etc/app BIND="$PWD"/.volumes/2:/data' in words.replace("'", "")
    assert run(found.entry["script"], work).returncode == 0
    assert (work / ".volumes" / "0").is_dir()
    assert "BIND=" not in script(BINDS).splitlines()[-1]


@pytest.mark.parametrize(
    ("path", "site", "spec"),
    [
        ("/data", STAND_IN, {}),
        ("/data", BINDS, {"restartPolicy": "OnFailure"}),
        ("/a:/etc", BINDS, {}),
        ("/a,/home:/b", BINDS, {}),
        ("/a/../b", BINDS, {}),
        ("/a b", BINDS, {}),
        ("/$(id)", BINDS, {}),
        ("/", BINDS, {}),
        (".volumes/0", BINDS, {}),
    ],
)
def test_a_path_that_would_be_another_option_is_none(path: str, site: list[str], spec: dict[str, Any]):
    with pytest.raises(InvalidInput, match="mountPath"):
        asked(pod(**mounting(path, **spec)), "batch", CLUSTER, site)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([], ""),
        (APPTAINER, ""),
        (["apptainer", "exec"], "{image} in a word behind it"),
        (["{image}", "{image}"], "must name a program"),
        (["apptainer", "exec", "--bind={home}", "{image}"], "{home} stands for nothing"),
        (["podman", "run", "--volume", "{source}", "{image}"], "in the same word"),
    ],
)
def test_a_command_that_cannot_be_meant_is_told(command: list[str], says: str):
    assert says in faults(command)
    assert bool(says) == bool(faults(command))


TEST, PULL = ("test", "-e", "/images/{image}"), ("fetch", "{image}")
BOTH = Fetching(TEST, PULL)
POLICIES: list[tuple[str, str, Fetching, str]] = [
    ("Never", "tools:1", Fetching(TEST), "test -e /images/tools:1 >/dev/null 2>&1 || "),
    (
        "IfNotPresent",
        "tools:1",
        BOTH,
        "test -e /images/tools:1 >/dev/null 2>&1 || fetch tools:1 >&2 || ",
    ),
    ("", "tools:1", Fetching(TEST, PULL), "test -e /images/tools:1 >/dev/null 2>&1 || fetch tools:1 >&2 || "),
    ("", "tools", Fetching(TEST, PULL), "fetch tools >&2 || "),
    ("Always", "tools:1", Fetching(TEST, PULL), "fetch tools:1 >&2 || "),
    ("IfNotPresent", "tools:1", Fetching(TEST), ""),
    ("Always", "tools", NOTHING, ""),
]


@pytest.mark.parametrize(("policy", "image", "fetching", "line"), POLICIES)
def test_an_image_is_looked_for_and_fetched_by_its_policy(policy: str, image: str, fetching: Fetching, line: str):
    said = "".join(lines({"image": image, "imagePullPolicy": policy}, fetching))
    assert said.startswith(line)
    assert said.endswith("exit 125; }\n" if line else "")
    assert not said or line


@pytest.mark.parametrize(("policy", "image"), [("Never", "tools"), ("Always", "tools:1"), ("IfNotPresent", "tools")])
def test_a_policy_that_nobody_honours_is_refused(policy: str, image: str):
    with pytest.raises(InvalidInput, match=rf"imagePullPolicy {policy}: .*_command of its provider is not set"):
        [*lines({"image": image, "imagePullPolicy": policy}, NOTHING)]


@pytest.mark.parametrize("wrong", [Fetching(pull=PULL), Fetching(("test",)), Fetching(("{image}", "x"))])
def test_commands_that_cannot_be_used_are_refused(wrong: Fetching):
    assert "image_" in fetching_faults(wrong, APPTAINER)
    assert not fetching_faults(Fetching(TEST, PULL), APPTAINER)


@pytest.mark.parametrize("given", [Fetching(TEST), Fetching(TEST, PULL)])
def test_commands_for_images_that_no_job_runs_in_are_refused(given: Fetching):
    assert "need an image_command" in fetching_faults(given, ())
    assert not fetching_faults(NOTHING, ())
