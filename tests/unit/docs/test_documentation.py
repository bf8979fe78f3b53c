"""The documentation names what there is: paths, make targets, variables, configuration keys; and stays short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.network.load_balancers import REFUSED, WITHOUT_ADDRESS
from minik8s_modules.cli.causes.faults import RECOVERED
from minik8s_modules.controllers.network.load_balancers import UNCHECKED
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from tests.support.repository import docs_site

REPOSITORY = Path(__file__).parents[3]
TOP = [REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
PAGES = [*TOP, *sorted((REPOSITORY / "docs").rglob("*.md"))]
ROOTS = ("minik8s_modules", "library", "roles", "playbooks", "inventory", "templates", "examples", "tests", "docs")
# a file, from one of the folders that pages take for granted
FILE = re.compile(r"[a-z_]+(/[a-z_]+)+\.(py|yml|c)\Z")
PACKAGE = REPOSITORY / "minik8s_modules"
FOLDERS = (REPOSITORY, PACKAGE, PACKAGE / "module_utils/minik8s", PACKAGE / "controllers", REPOSITORY / "roles/node")
# made by a reader or a command, so not in a checkout
MADE = ("inventory/mine", "inventory/lab/hosts.yml")
# the files whose keys docs/reference/configuration.md lists, and where the code reads them
READERS = {"Configuration", "configuration", "settings"}
KEY = re.compile(r"[a-z_]+(\.[a-z_]+)*\Z")


def words(page: Path) -> Iterator[str]:
    """Yield what stands between backticks, and the words of code blocks."""
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            yield from line.split()
        else:
            yield from re.findall(r"`([^`]+)`", line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = {word.rstrip("/") for word in words(page) if word.split("/")[0] in ROOTS or FILE.match(word)}
    plain = {word for word in named if "/" in word and not set(word) & set("<>*…={}") and not word.startswith(MADE)}
    assert [word for word in sorted(plain) if not any((folder / word).exists() for folder in FOLDERS)] == []


@pytest.mark.parametrize("page", TOP, ids=lambda page: page.name)
def test_every_link_of_the_pages_at_the_top_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (REPOSITORY / link).exists()] == []


@pytest.mark.parametrize(("name", "lines"), [("README.md", 120), ("ARCHITECTURE.md", 200)])
def test_the_pages_everybody_reads_are_short(name: str, lines: int) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    assert len(text) <= lines
    assert max(map(len, text)) <= 120


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z0-9-]+)", page.read_text(encoding="utf-8"))}
    assert len(named) > 5
    assert named <= targets


def test_every_role_variable_that_a_page_names_exists() -> None:
    specs = (yaml.safe_load(file.read_text()) for file in REPOSITORY.glob("roles/*/meta/argument_specs.yml"))
    known = {name for spec in specs for entry in spec["argument_specs"].values() for name in entry.get("options", {})}
    prefix = re.compile(r"(minik8s|control_plane|coredns|pki|membership_lock|application|kubectl|images)_[a-z_]+\Z")
    others = {path.stem for folder in ("library", "playbooks") for path in (REPOSITORY / folder).iterdir()}
    others |= {path.stem for path in REPOSITORY.glob("minik8s_modules/plugins/*/*.py")}
    others |= {path.name for path in (REPOSITORY / "roles").iterdir()} | {
        "minik8s_modules",
        "minik8s_pod",
        "minik8s_pods",
        "minik8s_tunnels",
        "minik8s_nodes",
        "minik8s_sidecar",
    }
    counting = (*PACKAGE.glob("virtual/**/figures.py"), PACKAGE / "mesh/figures.py")
    figures = "".join(path.read_text(encoding="utf-8") for path in counting)
    others |= set(re.findall(r'"(minik8s_[a-z_]+)"', figures))
    named = {word for page in PAGES for word in words(page) if prefix.match(word)} - others
    assert len(named) > 20
    assert named <= known


def read_by(*rooms: str) -> set[str]:
    """Return the literal keys that the daemons' code looks up in a ``Configuration``, or asks to be there."""
    files = (file for room in rooms for file in (REPOSITORY / "minik8s_modules" / room).rglob("*.py"))
    calls = (node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in READERS
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
        and KEY.match(call.args[0].value)
    }


def test_every_configuration_key_is_documented() -> None:
    page = REPOSITORY / "docs" / "reference" / "configuration.md"
    read = read_by(
        "apiserver",
        "client",
        "controllers",
        "gateway",
        "mesh",
        "monitoring",
        "reconcile",
        "scheduler",
        "streams",
        "virtual",
    )
    documented = {word for word in words(page) if KEY.match(word)}
    assert len(read) > 60
    assert sorted(key for key in read if key not in documented and f"{key}." not in page.read_text()) == []


def test_every_metric_of_nodes_is_documented() -> None:
    code = (PACKAGE / "apiserver" / "nodes" / "node_metrics.py").read_text(encoding="utf-8")
    names = set(re.findall(r'"((?:container|kubelet|machine)_[a-z_]+)"', code)) - {"container_state"}
    page = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert len(names) >= 10
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


# of Kubernetes' own controllers, and of virtual-kubelet's
KUBERNETES_REASONS = {
    "FailedGetScale",
    "FailedRescale",
    "FailedScheduling",
    "NodeNotReady",
    "OwnerRefInvalidNamespace",
    "Preempted",
    "ProviderDeleteFailed",
    "Scheduled",
    "SuccessfulRescale",
}


def recorded_reasons() -> set[str]:
    """Return the reasons that the code writes out where it records an Event: the third argument of ``event``."""
    files = (file for file in PACKAGE.rglob("*.py") if "stubs" not in file.parts)
    calls = (node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    return {
        call.args[2].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "event"
        and len(call.args) > 2
        and isinstance(call.args[2], ast.Constant)
        and isinstance(call.args[2].value, str)
    }


def test_every_reason_of_our_own_events_is_documented() -> None:
    named = set(words(REPOSITORY / "docs/reference/objects.md"))
    told = recorded_reasons()
    assert {"DeletingOrphan", "NotAsDeclared", "Scheduled"} <= told
    shared = {*RECOVERED, *RECOVERED.values(), *WITHOUT_ADDRESS, REFUSED, UNCHECKED}
    assert sorted(((told - KUBERNETES_REASONS) | shared) - named) == []


@pytest.mark.parametrize(
    ("page", "begin"),
    [
        ("ARCHITECTURE.md", "in this order of sections: "),
        ("docs/reference/glossary.md", "realized by one module: "),
        ("docs/reference/node-document.md", "The sections, in order: "),
    ],
)
def test_the_sections_of_a_document_are_those_of_the_code(page: str, begin: str) -> None:
    text = " ".join((REPOSITORY / page).read_text(encoding="utf-8").split())
    named = text.split(begin)[1].split(".")[0].replace("`", "").split(", ")
    assert tuple(named) == SECTIONS


@pytest.mark.parametrize("page", sorted(set(docs_site.PAGES) - {"reference/modules"}))
def test_generated_pages_have_what_the_code_declares(page: str) -> None:
    source = ["# Title"]
    docs_site.add_generated(None, page, source)
    known = {
        "reference/cli": "minik8s node add",
        "reference/variables": "control_plane_pod_pids_limit",
        "reference/kinds": "| HostGrant | minik8s.io/v1 |",
        "reference/metrics": "`apiserver_flowcontrol_rejected_requests_total`",
        "reference/protocols": '{"op": "relist", "node"}',
    }
    assert source[0].startswith("# Title\n")
    assert known[page] in source[0]


def test_every_generated_page_has_a_place_on_the_site() -> None:
    assert [page for page in docs_site.PAGES if not (REPOSITORY / "docs" / f"{page}.md").exists()] == []
