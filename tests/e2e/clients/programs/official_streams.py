"""The official Python client with a running pod: exec in one go and held open, logs.

Arguments: kubeconfig, namespace, pod.
"""

from __future__ import annotations

import sys

from kubernetes import client, config, watch
from kubernetes.stream import stream

KUBECONFIG, NAMESPACE, POD = sys.argv[1:]


def main() -> None:
    core = client.CoreV1Api(config.new_client_from_config(KUBECONFIG))
    run = core.connect_get_namespaced_pod_exec
    assert stream(run, POD, NAMESPACE, command=["echo", "a b"], stdout=True, stderr=True) == "a b\n"
    script = "read line; echo got $line; echo err >&2; exit 3"
    held = stream(
        run,
        POD,
        NAMESPACE,
        command=["/bin/sh", "-c", script],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    held.write_stdin("word\n")
    held.run_forever(timeout=30)
    assert held.read_stdout() == "got word\n"
    assert held.read_stderr() == "err\n"
    assert held.returncode == 3
    lines = watch.Watch().stream(core.read_namespaced_pod_log, POD, NAMESPACE, follow=True, tail_lines=1)
    first, second = next(lines), next(lines)
    assert int(second.split()[1]) == int(first.split()[1]) + 1
    assert "tick" in core.read_namespaced_pod_log(POD, NAMESPACE, tail_lines=1, timestamps=True)


main()
