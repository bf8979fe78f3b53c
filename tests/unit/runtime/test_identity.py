"""A dead process on this machine is recognized, anything else is not."""

from __future__ import annotations

import os
import subprocess

from minik8s_modules.runtime.identity import holder_is_dead, process_identity


def test_a_living_process_is_not_dead_and_an_ended_one_is():
    child = subprocess.Popen(["sleep", "60"])
    identity = process_identity(child.pid)
    try:
        assert not holder_is_dead(identity)
    finally:
        child.kill()
    # a zombie has ended, too
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert holder_is_dead(identity)
    child.wait()
    assert holder_is_dead(identity)


def test_a_pid_that_was_given_again_is_dead():
    host, boot, namespace, pid, start = process_identity().rsplit("_", 4)
    assert holder_is_dead("_".join([host, boot, namespace, pid, str(int(start) + 1)]))


def test_nothing_is_said_of_other_machines_boots_namespaces_and_names():
    host, boot, namespace, _, start = process_identity().rsplit("_", 4)
    gone = "4194999"
    assert holder_is_dead("_".join([host, boot, namespace, gone, start]))
    assert not holder_is_dead("_".join(["other", boot, namespace, gone, start]))
    assert not holder_is_dead("_".join([host, "00000000", namespace, gone, start]))
    assert not holder_is_dead("_".join([host, boot, "1", gone, start]))
    assert not holder_is_dead("somebody")
    assert not holder_is_dead("_".join([host, boot, namespace, "x", start]))
