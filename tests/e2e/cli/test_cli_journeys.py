"""What a person does with the command, one journey a test, against a real API server."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest
import yaml

from tests.e2e.cli.conftest import Cli


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
    (cli.folder / "more").mkdir()
    (cli.folder / "more" / "d.yaml").write_text(cli.pod("d"))
    (cli.folder / "more" / "notes.txt").write_text("no manifest")
    assert cli("apply", "-f", str(cli.folder / "more")).out == "pod/d created\n"
    assert cli("apply", "-f", path, "-o", "name").out == "pod/a\npod/b\n"


def test_a_refused_object_does_not_stop_the_others(cli: Cli):
    bad = cli.pod("Bad_Name") + "---\n" + cli.pod("good") + "---\n" + cli.pod("odd").replace("image:", "imago:")
    done = cli("apply", "-f", cli.file("three.yml", bad), code=1)
    assert done.out == "pod/good created\n"
    assert 'document 1: pod/Bad_Name: Pod "Bad_Name" is invalid: metadata.name' in done.err
    assert 'unknown field "spec.containers[0].imago"' in done.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("metadata: {name: x}\n", "kind not found"),
        ("kind: Deployment\nmetadata: {name: x}\n", "v1 has no kind Deployment; there is Deployment of apps/v1"),
        ("apiVersion: v1\nkind: Podd\n", "kind Podd of v1 is not served"),
        ("apiVersion: apps/v2\nkind: Deployment\n", "there is Deployment of apps/v1"),
        ("apiVersion: v1\nkind: Pod\n", "Pod name not found"),
        ("- a\n- b\n", "an object is a mapping, not list"),
        ("a: [\n", "is no valid YAML"),
        ("", "no objects in"),
    ],
)
def test_a_manifest_that_is_none_is_explained(cli: Cli, text, told):
    done = cli("apply", "-f", cli.file("m.yml", text), code=1)
    assert told in done.err, done.err
    assert "m.yml" in done.err


def test_what_the_command_line_lacks_is_said(cli: Cli):
    assert "the following arguments are required: -f" in cli("apply", code=2).err
    assert "m.yml" in cli("apply", "-f", "/nowhere/m.yml", code=1).err
    assert "manifests are not fetched" in cli("apply", "-f", "https://example.test/m.yml", code=1).err
    assert "name a resource type" in cli("get", code=1).err
    assert 'have a resource type "pood"; did you mean' in cli("get", "pood", code=1).err


def test_the_originals_forms_hold(cli: Cli):
    job = "kind: Job\nmetadata:\n  name: gpujob\nspec:\n  partition: dgx2\n  threadNum: 1\n  taskPerNode: 1\n"
    job += "  cpu_per_task: 6\n  gpu-num: 1\n  file: result\n  codePath: /root/add.cu\n"
    done = cli("apply", "-f", cli.file("job.yml", job))
    assert done.out == "legacyjob/gpujob created\n"
    assert "no apiVersion; read as v1" in done.err
    assert cli("apply", "-f", cli.file("job.yml", job)).out == "legacyjob/gpujob unchanged\n"
    assert cli("get", "job", "gpujob").lines[1][:2] == ["gpujob", "dgx2"]
    assert "Partition" not in cli("describe", "job", "-p", cli.namespace, "-n", "gpujob").err
    assert cli("delete", "job", "-p", cli.namespace, "-n", "gpujob").out == 'legacyjob "gpujob" deleted\n'
    cli("apply", "-f", "-", stdin=cli.pod("web"))
    assert cli("delete", "pods", "-p", cli.namespace, "--name", "web").out == 'pod "web" deleted\n'
    assert "-p NAMESPACE -n NAME" in cli("delete", "pod", "-n", "web", code=1).err
    old = cli.pod("old").replace("apiVersion: v1\n", "") + "    command: [sleep, '9']\n"
    assert cli("apply", "--dialect", "original", "-f", "-", stdin=old).out == "pod/old created\n"
    assert yaml.safe_load(cli("get", "pod", "old", "-o", "yaml").out)["spec"]["containers"][0]["args"] == ["sleep", "9"]
    assert cli("apply", "--dialect", "original", "-f", "-", stdin=old).out == "pod/old unchanged\n"


def test_objects_are_shown_in_every_form(cli: Cli):
    cli("apply", "-f", "-", stdin=cli.pod("b") + "---\n" + cli.pod("a", "app: web, tier: x"))
    plain = cli("get", "pods").lines
    assert plain[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [line[:3] for line in plain[1:]] == [["a", "0/1", "Pending"], ["b", "0/1", "Pending"]]
    assert "NODE" in cli("get", "pod", "-o", "wide").lines[0]
    assert cli("get", "po", "-o", "name").out == "pod/a\npod/b\n"
    assert cli("get", "pods", "-l", "tier=x", "-o", "name").out == "pod/a\n"
    assert cli("get", "pods", "--field-selector", "metadata.name=b", "--no-headers").lines[0][0] == "b"
    assert cli("get", "pods", "--show-labels").lines[1][-1] == "app=web,tier=x"
    assert cli("get", "pods", "-o", "custom-columns=N:.metadata.name,I:.spec.containers[*].image,X:.no").lines == [
        ["N", "I", "X"],
        ["a", "minik8s/busybox:1", "<none>"],
        ["b", "minik8s/busybox:1", "<none>"],
    ]
    assert cli("get", "pods", "-o", 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}').out == "a\nb\n"
    assert cli("get", "pods", "b", "a", "-o", "jsonpath={.items[0].metadata.name}").out == "b"
    assert cli("get", "pods", "--sort-by=.metadata.labels.tier", "-o", "name").out == "pod/b\npod/a\n"
    assert cli("get", "pods", "--sort-by={.metadata.labels.tier}").lines[1][0] == "b"
    assert yaml.safe_load(cli("get", "pods", "-o", "yaml").out)["kind"] == "List"
    assert cli("get", "pods", "-A").lines[0][0] == "NAMESPACE"
    assert cli("get", "pod/a", "cm/kube-root-ca.crt", code=None).lines[1][0] == "pod/a"
    assert cli("get", "--raw", "/version").out.startswith("{")
    assert "there are wide, yaml" in cli("get", "pods", "-o", "xml", code=1).err


def test_what_is_not_there_is_said_and_the_rest_is_shown(cli: Cli):
    cli("create", "cm", "a")
    done = cli("get", "cm", "a", "nope", code=1)
    assert done.lines[1][0] == "a"
    assert done.err == 'Error from server (NotFound): configmaps "nope" not found\n'
    assert cli("get", "cm", "nope", "--ignore-not-found").out == ""
    assert cli("get", "pods").err == f"No resources found in {cli.namespace} namespace\n"
    assert cli("get", "pods", "-o", "name").out.strip() == ""


def test_changes_are_watched(cli: Cli):
    cli("create", "cm", "first")

    def later():
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not stop.is_set():
            path = f"/api/v1/namespaces/{cli.namespace}/configmaps"
            cli.server.request("POST", path, {"metadata": {"name": "second"}})
            cli.server.request("DELETE", f"{path}/second")
            time.sleep(0.2)

    stop = threading.Event()
    seen: list[str] = []
    thread = threading.Thread(target=later)
    thread.start()
    process_lines = _watched(cli, seen)
    stop.set()
    thread.join()
    assert process_lines[0].split() == ["NAME", "DATA", "AGE"]
    assert process_lines[1].split()[0] == "first"
    assert any("second" in line and "(deleted)" in line for line in process_lines)


def _watched(cli: Cli, seen: list[str]) -> list[str]:
    """Return the lines of a watch up to the first deletion."""
    import subprocess  # noqa: PLC0415 - the one test that needs a process to end
    import sys  # noqa: PLC0415

    argv = [sys.executable, "-m", "minik8s_modules.cli.main", "get", "cm", "-w"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if "(deleted)" in line:
                break
        process.terminate()
    return seen


def test_objects_are_made_of_options(cli: Cli):
    (cli.folder / "conf").mkdir()
    (cli.folder / "conf" / "a.conf").write_bytes(b"x\n")
    (cli.folder / "conf" / "b.bin").write_bytes(b"\xff\xfe")
    env = cli.file("env", "# comment\nA=1\n\nB=two words\n")
    cli("create", "configmap", "c", "--from-literal", "k=a=b", "--from-file", str(cli.folder / "conf"),
        "--from-file", f"other={cli.folder}/conf/a.conf", "--from-env-file", env)  # fmt: skip
    found = yaml.safe_load(cli("get", "cm", "c", "-o", "yaml").out)
    assert found["data"] == {"k": "a=b", "a.conf": "x\n", "other": "x\n", "A": "1", "B": "two words"}
    assert found["binaryData"] == {"b.bin": "//4="}
    cli("create", "secret", "generic", "s", "--from-literal", "password=hunter2")
    assert cli("get", "secret", "s", "-o", "jsonpath={.data.password}").out == "aHVudGVyMg=="
    login = ("--docker-username", "u", "--docker-password", "p", "--docker-server", "r.test")
    cli("create", "secret", "docker-registry", "r", *login)
    assert cli("get", "secret", "r", "-o", "jsonpath={.type}").out == "kubernetes.io/dockerconfigjson"
    assert cli("create", "deployment", "web", "--image", "caddy:2", "--replicas", "3", "--port", "80").out == (
        "deployment.apps/web created\n"
    )
    job = cli("create", "job", "pi", "--image", "perl:5", "--dry-run=client", "-o", "yaml", "--", "perl", "-e", "1").out
    assert yaml.safe_load(job)["spec"]["template"]["spec"]["containers"][0]["command"] == ["perl", "-e", "1"]
    assert cli("get", "jobs", "-o", "name").out.strip() == ""
    cli("create", "serviceaccount", "robot")
    assert cli("create", "token", "robot", "--duration", "1h").out.count(".") == 2
    cli("create", "role", "reader", "--verb", "get,list", "--resource", "pods,deployments.apps,pods/log")
    assert yaml.safe_load(cli("get", "role", "reader", "-o", "yaml").out)["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
        {"verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["deployments"]},
    ]
    cli("create", "rolebinding", "b", "--role", "reader", "--serviceaccount", f"{cli.namespace}:robot", "--user", "eve")
    assert 'configmaps "c" already exists' in cli("create", "cm", "c", code=1).err
    assert "is no literal" in cli("create", "cm", "d", "--from-literal", "x", code=1).err
    assert cli("create", "-f", "-", stdin=cli.pod("p")).out == "pod/p created\n"
    assert "AlreadyExists" in cli("create", "-f", "-", stdin=cli.pod("p"), code=1).err


def test_objects_are_patched_scaled_and_marked(cli: Cli):
    cli("create", "deployment", "web", "--image", "a:1")
    assert cli("scale", "deploy/web", "--replicas", "4").out == "deployment.apps/web scaled\n"
    assert (
        "has 4 replicas, not 9"
        in cli("scale", "deploy", "web", "--replicas", "1", "--current-replicas", "9", code=1).err
    )
    cli("scale", "deploy", "web", "--replicas", "2", "--current-replicas", "4")
    assert cli("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}").out == "2"
    change = "spec: {template: {spec: {containers: [{name: a, env: [{name: K, value: v}]}]}}}"
    assert cli("patch", "deploy", "web", "-p", change).out == "deployment.apps/web patched\n"
    assert cli("patch", "deploy", "web", "-p", change).out == "deployment.apps/web patched (no change)\n"
    assert cli("get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}").out == "a:1"
    merged = '{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:1"}]}}}}'
    cli("patch", "deploy", "web", "--type", "merge", "-p", merged)
    cli("patch", "deploy", "web", "--type", "json", "-p", '[{"op":"remove","path":"/metadata/labels/app"}]')
    assert "is a list of operations" in cli("patch", "deploy", "web", "--type", "json", "-p", "{}", code=1).err
    assert cli("label", "deploy", "web", "tier=front").out == "deployment.apps/web labeled\n"
    assert "already has a value (front)" in cli("label", "deploy", "web", "tier=back", code=1).err
    assert cli("label", "deploy", "--all", "tier=back", "--overwrite").out == "deployment.apps/web labeled\n"
    assert cli("label", "deploy", "web", "tier=back").out == "deployment.apps/web not labeled\n"
    assert cli("label", "deploy", "web", "--list").out == "tier=back\n"
    assert cli("label", "deploy", "web", "tier-").out == "deployment.apps/web labeled\n"
    assert cli("annotate", "deploy", "-l", "x=y", "a=b", code=1).err.startswith("error: nothing was found")
    assert cli("annotate", "deploy/web", "note=hello world").out == "deployment.apps/web annotated\n"
    assert cli("annotate", "deploy", "web", "--list").out == "note=hello world\n"
    assert cli("scale", "cm", "kube-root-ca.crt", "--replicas", "1", code=1).err.startswith("error: configmaps cannot")


def test_objects_are_deleted_by_every_way_of_naming_them(cli: Cli):
    for name in "abcdefg":
        cli("create", "cm", name)
    assert cli("delete", "cm", "a", "b").out == 'configmap "a" deleted\nconfigmap "b" deleted\n'
    assert cli("delete", "cm/c").out == 'configmap "c" deleted\n'
    done = cli("delete", "cm", "a", "d", code=1)
    assert (done.out, done.err) == (
        'configmap "d" deleted\n',
        'Error from server (NotFound): configmaps "a" not found\n',
    )
    assert cli("delete", "cm", "a", "--ignore-not-found").out == ""
    cli("label", "cm", "e", "x=y")
    assert cli("delete", "cm", "-l", "x=y", "-o", "name").out == "configmap/e\n"
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f}\n"
    assert cli("delete", "-f", cli.file("f.yml", head)).out == 'configmap "f" deleted\n'
    assert "-l SELECTOR or --all" in cli("delete", "cm", code=1).err
    assert 'configmap "g" deleted' in cli("delete", "cm", "--all").out
    assert "either --filename or" in cli("delete", "cm", "x", "-f", "f.yml", code=1).err


def test_a_deletion_that_does_not_end_is_told_with_its_reason(cli: Cli):
    held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.test/hold]}\n"
    cli("apply", "-f", "-", stdin=held)
    done = cli("delete", "cm", "held", "--timeout", "0.3", code=1)
    assert "timed out after 0.3 s: configmap/held waits for its finalizers example.test/hold" in done.err
    assert cli("delete", "cm", "held", "--no-wait").code == 0
    cli("patch", "cm", "held", "--type", "merge", "-p", '{"metadata":{"finalizers":null}}')
    assert cli("get", "cm", "held", code=1).err


def test_fields_have_owners(cli: Cli):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: v, old: x}\n"
    assert cli("apply", "-f", "-", stdin=text).out == "configmap/c created\n"
    done = cli("apply", "--server-side", "-f", "-", stdin=text.replace(", old: x", ""))
    assert done.out == "configmap/c serverside-applied\n"
    assert json.loads(cli("get", "cm", "c", "-o", "json").out)["data"] == {"k": "v"}  # what is given up goes
    other = ("apply", "--server-side", "--field-manager", "other", "-f", "-")
    refused = cli(*other, stdin=text.replace("k: v", "k: w"), code=1)
    assert 'conflict with "minik8s": .data.k' in refused.err
    assert "--force-conflicts" in refused.err
    cli(*other, "--force-conflicts", stdin=text.replace("k: v", "k: w"))
    assert cli("get", "cm", "c", "-o", "jsonpath={.data.k}").out == "w"
    assert "managedFields" in cli("get", "cm", "c", "-o", "yaml", "--show-managed-fields").out


def test_types_and_fields_explain_themselves(cli: Cli):
    rows = cli("api-resources").lines
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows
    assert "deployments.apps" in cli("api-resources", "-o", "name", "--api-group", "apps").out
    assert "apps/v1" in cli("api-versions").out.splitlines()
    text = cli("explain", "deploy.spec.template.spec.containers.image").out
    assert "GROUP:      apps" in text
    assert "FIELD: image <string>" in text
    assert "FIELD: containers <[]Container>" in cli("explain", "pod.spec.containers").out
    assert "labels\t<map[string]string>" in cli("explain", "pod.metadata").out
    assert re.search(r"resources\t<.*>\n\s+claims", cli("explain", "pod.spec.containers", "--recursive").out)
    assert cli("explain", "hpa", "--api-version", "autoscaling/v1").out.splitlines()[2] == "VERSION:    v1"
    assert 'field "bogus" does not exist in pods.spec' in cli("explain", "pod.spec.bogus", code=1).err
    for row in rows[1:]:
        if row[-1] not in {"NodeMetrics", "PodMetrics"}:  # nodes and pods are Kubernetes' own first
            assert f"KIND:       {row[-1]}" in cli("explain", row[0]).out


def test_who_one_is_and_what_one_may(cli: Cli):
    assert ["Username", "minik8s-admin"] in cli("auth", "whoami").lines
    assert cli("auth", "can-i", "create", "pods").out == "yes\n"
    assert cli("auth", "can-i", "get", "/healthz").out == "yes\n"
    assert ["*.*", "[]", "[]", "[*]"] in cli("auth", "can-i", "--list").lines
    assert cli("auth", "can-i", "-q", "list", "deploy/web", "-A").out == ""
    assert "write VERB TYPE" in cli("auth", "can-i", "create", code=1).err


def test_a_cause_is_told_in_a_line(cli: Cli):
    cli("apply", "-f", "-", stdin=cli.pod("web"))
    status = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]
    }
    body = json.dumps({"status": {"phase": "Pending", **status}}).encode()
    path = f"/api/v1/namespaces/{cli.namespace}/pods/web/status"
    cli.server.request("PATCH", path, body, headers={"Content-Type": "application/merge-patch+json"})
    assert cli("why", "pod", "web").lines[1][1:] == ["pod/web", "PodScheduled:", "Unschedulable:", "no", "node"]
    assert "Cause:        PodScheduled: Unschedulable: no node" in cli("describe", "pod", "web").out
    cli("create", "cm", "fine")
    assert cli("why", "cm", "fine", "--faults").out == "nothing is wrong\n"


def test_contexts_are_chosen_and_changed(cli: Cli):
    before = cli.kubeconfig.stat().st_mode
    config = yaml.safe_load(cli.kubeconfig.read_text())
    name, user = config["current-context"], config["users"][0]["name"]
    assert cli("config", "current-context").out == f"{name}\n"
    assert (
        cli("config", "set-context", "other", "--namespace", "shop", "--user", user).out == 'Context "other" created.\n'
    )
    assert cli("config", "get-contexts").lines[1][:2] == ["*", name]
    assert "no context exists with the name" in cli("config", "use-context", "nope", code=1).err
    assert "has no cluster" in cli("config", "set-context", name, "--cluster", "nope", code=1).err
    assert cli("config", "use-context", "other").out == 'Switched to context "other".\n'
    assert "cluster" in cli("get", "pods", code=1).err  # it names none
    assert cli("--context", name, "get", "ns", "default").lines[1][0] == "default"
    assert cli("get", "ns", "default", "--context", name).lines[1][0] == "default"
    cli("config", "use-context", name)
    cli("config", "delete-context", "other")
    shown = cli("config", "view").out
    assert "server:" in shown
    assert "PRIVATE KEY" not in shown
    assert cli.kubeconfig.stat().st_mode == before
    assert [path.name for path in cli.folder.iterdir()] == ["kubeconfig"]


def test_the_shell_is_told_what_may_come_next(cli: Cli):
    cli("create", "cm", "first")
    cli("create", "cm", "second")

    def offered(*words: str) -> list[str]:
        return cli("__complete", *words).out.split()

    assert "get" in offered("")
    assert offered("desc") == ["describe"]
    assert {"pods", "podaddresses"} <= set(offered("get", "po"))
    assert offered("get", "cm", "fi") == ["first"]
    assert offered("delete", "cm", "-n", cli.namespace, "cm/s") == []
    assert offered("delete", "cm/s") == ["cm/second"]
    assert cli.namespace in offered("get", "pods", "-n", "")
    assert offered("auth", "wh") == ["whoami"]
    assert "--selector" in offered("get", "--")
    assert offered("create", "confi") == ["configmap"]
    assert offered("patch", "cm", "first", "--type", "s") == ["strategic"]
    assert offered("--kubeconfig", "/nowhere", "get", "cm", "") == []  # no server is no error
    for shell in ("bash", "zsh", "fish"):
        assert "__complete" in cli("completion", shell).out
