"""What `minik8s plan` and `drift` say about pods on the installed cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.clusters.installed import IMAGE, KUBECONFIG, KUBECTL, Installed

FILE = f"""
apiVersion: v1
kind: Secret
metadata: {{name: s}}
stringData: {{password: hidden-from-plans}}
---
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: {IMAGE}
      command: [sleep, "3600"]
      volumeMounts:
        - {{name: s, mountPath: /s}}
        - {{name: e, mountPath: /e}}
  volumes:
    - {{name: s, secret: {{secretName: s}}}}
    - {{name: e, emptyDir: {{}}}}
"""


def test_from_plan_to_apply_to_plan_to_delete(cluster: Installed, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text(FILE)
    given = ("-n", namespace, "-f", str(file))
    brief = cluster.minik8s("plan", "--detailed-exitcode", *given)
    assert brief.returncode == 2, brief.stderr
    for line in (f"  + Secret {namespace}/s", f"  + Pod {namespace}/web", f"+ {namespace}/web  on "):
        assert line in brief.stdout, brief.stdout
    assert "kube-root-ca" not in brief.stdout
    planned = cluster.minik8s("plan", "--full", *given)
    assert planned.returncode == 0, planned.stderr
    assert "hidden-from-plans" not in brief.stdout
    assert "hidden-from-plans" not in planned.stdout
    for step in ("secrets: write", "volumes: make", "sandboxes: create", "containers: create", "containers: start"):
        assert f"  + {step}" in planned.stdout or f"  ~ {step}" in planned.stdout, planned.stdout
    assert cluster.minik8s("apply", *given).returncode == 0
    cluster.until(lambda: cluster.ready("web", namespace))
    assert cluster.minik8s("plan", *given).stdout.strip() == "no changes"
    assert cluster.minik8s("drift").stdout.strip() == "no changes"
    assert as_plugin("plan", *given) == "no changes\n"
    removal = cluster.minik8s("plan", "--full", "--delete", *given).stdout
    for step in ("secrets: remove", "volumes: remove", "sandboxes: remove", "containers: remove"):
        assert step in removal, removal
    assert cluster.minik8s("delete", *given).returncode == 0
    # also the last secret leaves nothing to do
    assert cluster.minik8s("drift").stdout.strip() == "no changes"


def test_objects_that_no_node_hears_of_are_changes(cluster: Installed, namespace: str) -> None:
    # no brace first: kubectl takes that for JSON
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1'}\n"
    given = ("-n", namespace, "-f", "-")
    planned = cluster.minik8s("plan", "--detailed-exitcode", *given, stdin=settings)
    assert (planned.returncode, f"  + ConfigMap {namespace}/c" in planned.stdout) == (2, True), planned.stdout
    assert cluster.minik8s("apply", *given, stdin=settings).returncode == 0
    assert cluster.minik8s("plan", "--detailed-exitcode", *given, stdin=settings).returncode == 0
    planned = cluster.minik8s("plan", *given, stdin=settings.replace("'1'", "'2'"))
    assert f"  ~ ConfigMap {namespace}/c  data.a: 1 → 2" in planned.stdout
    refused = cluster.minik8s("plan", *given, stdin=f"{settings.replace('name: c', 'name: C_')}")
    assert (refused.returncode, f"  ! ConfigMap {namespace}/C_  refused: " in refused.stdout) == (1, True)


def test_a_new_namespace_and_a_pod_in_it_are_planned_whole(cluster: Installed, namespace: str) -> None:
    new = f"{namespace}-new"
    text = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {new}}}\n---\n{FILE}"
    planned = cluster.minik8s("plan", "-n", new, "-f", "-", stdin=text)
    assert planned.returncode == 0, planned.stderr
    for line in (f"  + Namespace {new}", f"  + Pod {new}/web", "containers 2"):
        assert line in planned.stdout, planned.stdout
    assert "kube-root-ca" not in planned.stdout


def test_what_was_shown_is_applied(cluster: Installed, namespace: str) -> None:
    given = ("apply", "--plan", "--yes", "-n", namespace, "-f", "-")
    done = cluster.minik8s(*given, stdin=FILE)
    assert done.returncode == 0, done.stderr
    assert f"Pod {namespace}/web created" in done.stdout
    cluster.until(lambda: cluster.ready("web", namespace))
    again = cluster.minik8s(*given, stdin=FILE)
    assert (again.returncode, again.stdout.strip()) == (0, "no changes")
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=FILE)
    assert cluster.minik8s("plan", "-n", namespace, "-f", "-", stdin=FILE).stdout.strip() == "no changes"


def as_plugin(*words: str) -> str:
    """Return what our command prints when kubectl runs it."""
    environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG)}
    argv = [KUBECTL, "minik8s", *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_misspelt_is_refused_by_plan_and_apply(cluster: Installed, namespace: str) -> None:
    manifest = FILE.replace("terminationGracePeriodSeconds", "terminationGracePeriod")
    for command in ("plan", "apply"):
        done = cluster.minik8s(command, "-n", namespace, "-f", "-", stdin=manifest)
        assert done.returncode == 1
        assert 'unknown field "spec.terminationGracePeriod"' in done.stderr
