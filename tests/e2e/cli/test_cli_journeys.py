"""What a person does with the command, one journey a test, against a real API server and through a real kubectl."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.cli.conftest import Cli
from tests.support.kubectl import kubectl_path

DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "minik8s/busybox:1"}]}
"""


def test_files_are_applied_changed_and_left_alone(cli: Cli):
    both = cli.pod("a") + "---\n" + cli.pod("b").replace("app: web", "app: db")
    path = cli.file("two.yml", both)
    assert cli("apply", "-f", path).out == "pod/a created\npod/b created\n"
    assert cli("apply", "-f", path).out == "pod/a unchanged\npod/b unchanged\n"
    cli.file("two.yml", both.replace("app: db", "tier: db"))
    assert cli("apply", "-f", path, "--dry-run=server").out.splitlines()[1] == "pod/b configured (server dry run)"
    assert cli("apply", "-f", path).out == "pod/a unchanged\npod/b configured\n"
    assert json.loads(cli("get", "pod", "b", "-o", "json").out)["metadata"]["labels"] == {"tier": "db"}
    assert cli("apply", "-f", "-", stdin=cli.pod("c")).out == "pod/c created\n"
    assert cli("delete", "pods", "--all", "--now", "--wait=false").out.count("deleted") == 3


def test_a_refused_object_does_not_stop_the_others(cli: Cli):
    bad = cli.pod("Bad_Name") + "---\n" + cli.pod("good") + "---\n" + cli.pod("odd").replace("image:", "imago:")
    done = cli("apply", "-f", cli.file("three.yml", bad), code=1)
    assert done.out == "pod/good created\n"
    assert 'Pod "Bad_Name" is invalid' in done.err
    assert 'unknown field "spec.containers[0].imago"' in done.err
    assert "three.yml" in done.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Deployment\nmetadata: {name: x}\n", "v1 has no kind Deployment; there is Deployment of apps/v1"),
        ("metadata: {name: x}\n", "kind not set"),
        ("apiVersion: v1\nkind: Podd\n", "Podd"),
        ("a: [\n", "error"),
    ],
)
def test_a_manifest_that_is_none_is_explained(cli: Cli, text, expected):
    done = cli("apply", "-f", cli.file("m.yml", text), code=1)
    assert expected in done.err, done.err
    assert "m.yml" in done.err


def test_the_originals_jobs_are_found_by_their_name(cli: Cli):
    job = "kind: Job\nmetadata:\n  name: gpujob\nspec:\n  partition: dgx2\n  threadNum: 1\n  taskPerNode: 1\n"
    job += f"  cpu_per_task: 6\n  gpu-num: 1\n  file: result\n  codePath: {cli.file('add.cu', 'int main() {}')}\n"
    path = cli.file("job.yml", job)
    done = cli("apply", "-f", path)
    assert done.out == "job/gpujob created\n"
    assert "no apiVersion; read as v1" in done.err
    assert cli("apply", "-f", path).out == "job/gpujob unchanged\n"
    assert cli("get", "job", "gpujob").lines[1][:2] == ["gpujob", "dgx2"]
    assert cli("get", "jobs").lines[1][:2] == ["gpujob", "dgx2"]
    assert cli("why", "job", "gpujob").lines[1][1] == "job/gpujob"
    assert "dgx2" in cli("describe", "job", "-p", cli.namespace, "-n", "gpujob").out
    assert 'job "gpujob" deleted' in cli("delete", "job", "-p", cli.namespace, "-n", "gpujob").out.replace("legacy", "")
    assert '"gpujob" not found' in cli("get", "job", "gpujob", code=1).err
    assert cli("get", "hpas").err == f"No resources found in {cli.namespace} namespace.\n"


def test_the_originals_pods_mean_what_they_meant(cli: Cli):
    cli("apply", "-f", "-", stdin=cli.pod("web"))
    assert 'pod "web"' in cli("delete", "pods", "-p", cli.namespace, "--name", "web").out
    assert 'pods "web" not found' in cli("delete", "pod", "-n", "web", code=1).err
    old = cli.pod("old").replace("apiVersion: v1\n", "") + "    command: [sleep, '9']\n"
    assert cli("apply", "--dialect", "original", "-f", "-", stdin=old).out == "pod/old created\n"
    assert yaml.safe_load(cli("get", "pod", "old", "-o", "yaml").out)["spec"]["containers"][0]["args"] == ["sleep", "9"]
    path = cli.file("old.yml", old)
    assert cli("apply", "--dialect", "original", "-f", path).out == "pod/old unchanged\n"
    refused = cli("apply", "--dialect", "original", "-f", cli.file("old.yml", old.replace("9", "10")), code=1)
    assert "Forbidden: pod updates may not change fields other than" in refused.err
    cli("delete", "-f", path)
    assert cli("get", "pods", "-o", "name").out == ""


def test_the_exit_code_and_the_words_are_kubectls(cli: Cli):
    cli("create", "cm", "a")
    done = cli("get", "cm", "a", "nope", code=1)
    assert done.lines[1][0] == "a"
    assert done.err == 'Error from server (NotFound): configmaps "nope" not found\n'
    assert "unknown command" in cli("frobnicate", code=1).err
    assert cli("auth", "can-i", "create", "pods").out == "yes\n"
    assert "Username" in cli("auth", "whoami").out
    assert cli("diff", "-f", "-", stdin=cli.pod("new"), code=1).out.startswith("diff ")
    assert cli("get", "cm", "a", "--namespace", "default", code=1).out == ""


def test_a_cause_is_told_in_a_line(cli: Cli):
    cli("apply", "-f", "-", stdin=cli.pod("web"))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    body = json.dumps({"status": {"phase": "Pending", "conditions": [condition]}}).encode()
    path = f"/api/v1/namespaces/{cli.namespace}/pods/web/status"
    cli.server.request("PATCH", path, body, headers={"Content-Type": "application/merge-patch+json"})
    for why in (("why", "pod", "web"), ("get", "pod", "web", "--why"), ("why", "pods", "-l", "app=web")):
        assert cli(*why).lines[1][1:] == ["pod/web", "PodScheduled:", "Unschedulable:", "no", "node"]
    done = cli("describe", "pod", "web").out
    assert done.startswith("Cause:            PodScheduled: Unschedulable: no node\nName:             web\n")
    cli("create", "cm", "fine")
    assert cli("why", "cm", "fine", "--faults").out == "nothing is wrong\n"
    assert cli("why", "cm", "fine", "-n", "default", code=1).err.startswith("Error from server (NotFound)")
    assert cli("describe", "cm", "fine").out.startswith("Name:         fine\n")
    assert "not found" in cli("describe", "cm", "nope", code=1).err


def test_why_leads_on_and_says_what_it_does_not_know(cli: Cli):
    cli("create", "service", "clusterip", "web", "--tcp=80:80")
    done = cli("why", "service/web").out
    assert f"no pod of namespace {cli.namespace} has the labels app=web" in done
    assert done.splitlines()[-2:] == ["", f"Next: kubectl -n {cli.namespace} get pods --show-labels"]
    assert "Next:" not in cli("get", "service/web", "--why").out
    following = done.rpartition("Next: kubectl ")[2].split()
    assert cli(*following).err.startswith("No resources found")
    cli("create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:robot")
    assert (
        "it gives nothing: there is no Role reader; there is no ServiceAccount robot" in cli("why", "rolebindings").out
    )
    assert cli("why", "leases", "-n", "nowhere").out == "there is no such object: namespace nowhere does not exist\n"
    cli("create", "cm", "held")
    cli("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/held"]}}')
    cli("delete", "cm", "held", "--wait=false")
    done = cli("why", "cm/held").out
    assert "is kept by its finalizers until the controllers that set them remove them: example.com/held" in done
    cli(*shlex.split(done.rpartition("Next: kubectl ")[2]))
    assert cli("get", "cm", "held", code=1).err.startswith("Error from server (NotFound)")
    closed = cli.file("closed", cli.kubeconfig.read_text().replace(cli.server.url, "https://127.0.0.1:1"))
    done = cli("--kubeconfig", closed, "why", "pods", code=1).out
    assert done.startswith("Cause:  the API server does not answer: ")


def test_every_command_that_why_leads_on_to_is_one_that_kubectl_knows(cli: Cli):
    cases = sorted((Path(__file__).parents[2] / "cases" / "why").glob("*.yml"))
    leads = {yaml.safe_load(case.read_text())["next"].partition(" | ")[0] for case in cases}
    cli.environment["KUBE_EDITOR"] = "true"
    # a kind of somebody's own is known where its definition is
    known = [lead for lead in sorted(leads) if lead.startswith("kubectl ") and "widgets.example.com" not in lead]
    asked = [lead.split(" ", 1)[1] for lead in known]
    assert len(asked) >= 15
    for lead in asked:
        done = cli(*shlex.split(lead), code=None).err
        assert "unknown" not in done, (lead, done)
        assert "doesn't have a resource type" not in done, (lead, done)


def test_a_context_is_followed_before_and_after_the_command(cli: Cli):
    name = cli("config", "current-context").out.strip()
    cli("config", "set-context", "other", "--namespace", "default", "--cluster", "nowhere")
    cli("config", "use-context", "other")
    cli("get", "ns", "default", code=1)
    assert cli("--context", name, "get", "ns", "default").lines[1][0] == "default"
    assert cli("get", "ns", "default", "--context", name).lines[1][0] == "default"
    assert cli("why", "ns", "default", "--context", name).lines[1][0] == "namespace/default"
    assert "/nowhere does not exist" in cli("--kubeconfig", "/nowhere", "drift", code=1).err


def test_what_a_file_would_change_is_asked_by_plan_as_well_as_by_apply(cli: Cli):
    for words in (("plan", "-f", "-"), ("apply", "--plan", "-f", "-")):
        done = cli(*words, stdin=cli.pod("x"), code=1)
        assert "no node was planned" in done.out, done


def test_a_kustomization_is_planned_as_kubectl_renders_it(cli: Cli, tmp_path: Path):
    (tmp_path / "kustomization.yaml").write_text("namePrefix: k-\nresources: [pod.yml]\n")
    cli.file("pod.yml", cli.pod("x"))
    assert f"+ Pod {cli.namespace}/k-x" in cli("plan", "-k", str(tmp_path), code=1).out
    cli.file("pod.yml", cli.pod("x").replace("image:", "imago:"))
    unknown = cli("plan", "-k", str(tmp_path), code=1).err
    assert f"(BadRequest): kustomization {tmp_path}, document 1: Pod {cli.namespace}/k-x: " in unknown
    assert 'unknown field "spec.containers[0].imago"' in unknown
    assert "no such file or directory" in cli("plan", "-k", f"{tmp_path}/none", code=1).err
    cli.file("pod.yml", cli.pod("x"))
    cli("apply", "-k", str(tmp_path))
    assert "pod/k-x" in cli("why", "-k", str(tmp_path)).out


def test_a_rollout_is_drawn_on_a_terminal_and_told_elsewhere(cli: Cli):
    cli("apply", "-f", "-", stdin=DEPLOYMENT)
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    path = f"/apis/apps/v1/namespaces/{cli.namespace}/deployments/web/status"
    body = json.dumps({"status": status}).encode()
    cli.server.request("PATCH", path, body, headers={"Content-Type": "application/merge-patch+json"})
    over = 'deployment "web" successfully rolled out'
    assert cli("rollout", "status", "deploy/web").out == f"{over}\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(cli.argv("rollout", "status", "deploy/web"), stdout=theirs, env=cli.environment) as process:
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        assert process.wait(60) == 0
    os.close(ours)
    text = shown.decode().replace("\r\n", "\n").splitlines()
    assert "deployment/web" in text[0], text
    assert "1/1 new pods available" in text[0]
    assert text[-1] == over


def _read(terminal: int) -> bytes:
    """Return what was printed on a terminal, nothing when its other end was closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_the_shell_is_told_what_may_come_next(cli: Cli):
    cli("create", "cm", "first")
    cli("create", "cm", "second")

    def offered(*words: str) -> list[str]:
        return cli("__complete", *words).out.split()

    assert {"get", "exec", "plan", "why"} <= set(offered(""))
    assert offered("desc") == ["describe"]
    assert offered("get", "cm", "fi") == ["first"]
    assert offered("why", "cm", "fi") == ["first"]
    assert offered("why", "cm/s") == ["cm/second"]
    assert cli.namespace in offered("plan", "-n", "")
    assert offered("token", "cr") == ["create"]
    assert offered("completion", "z") == ["zsh"]
    assert "--detailed-exitcode" in offered("drift", "--")
    assert "--selector" in " ".join(offered("get", "--"))
    assert offered("--kubeconfig", "/nowhere", "why", "cm", "") == []  # no server is no error
    for shell in ("bash", "zsh", "fish"):
        assert "__complete" in cli("completion", shell).out


def test_it_is_a_plugin_of_kubectl(cli: Cli):
    programs = cli.folder / "programs"
    programs.mkdir()
    for name, function in (("kubectl-minik8s", "main"), ("kubectl_complete-minik8s", "complete")):
        code = f"import sys; from minik8s_modules.cli.main import {function}; sys.exit({function}())"
        (programs / name).write_text(f'#!/bin/sh\nexec "{cli.argv()[0]}" -c "{code}" "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**cli.environment, "PATH": f"{programs}:{cli.environment['PATH']}"}

    def kubectl(*words: str) -> str:
        argv = [str(kubectl_path()), *words]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done
        return done.stdout

    cli("create", "cm", "fine")
    assert kubectl("minik8s", "why", "cm", "fine").splitlines()[1].split()[1] == "configmap/fine"
    assert kubectl("minik8s", "get", "cm", "fine", "-o", "name") == "configmap/fine\n"
    assert "why" in kubectl("__complete", "minik8s", "").split()
    assert kubectl("__complete", "minik8s", "why", "cm", "fi").split()[0] == "fine"
