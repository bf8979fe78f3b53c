"""Without a control plane: what serves goes on, what dies or boots comes back, and nothing changes when it returns.

The machine of the control plane loses its power, so each of its processes is gone at once. `make test-long` serves for
an hour (MINIK8S_SERVING_S).
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.lab.errors import LabError
from tests.support.clusters import backdoor, standing
from tests.support.clusters.labcluster import LabCluster
from tests.support.clusters.wholeness import Container, assert_whole, containers, look

SERVING_S = float(os.environ.get("MINIK8S_SERVING_S", "300"))
BACK_S = 60.0  # of the issue: a rebooted worker has everything back so long after its SSH is up
TAKEOVER_S = 300.0  # two minutes without attendance, a minute's timer, and a busy machine
QUIET_S = 60.0  # of the promise: after its last change a worker shows no process of ours
WATCHED_S = 300.0  # for changes to end; looks at what is declared count as changes
HOST, NODE_PORT = "steady.example.com", 30480
HERE, THERE = "worker1", "worker2"


class Asking:
    """Asks a node from outside, several times a second, by its node port and by its path routing."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)
        self.good, self.bad = 0, [""][:0]

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.wait(0.2):
            for port, host in ((NODE_PORT, ""), (80, HOST)):
                answer = ask(self._address, port, host)
                if answer.startswith("steady-"):
                    self.good += 1
                else:
                    self.bad.append(f"{time.strftime('%X')} port {port}: {answer}")


def ask(address: str, port: int, host: str = "") -> str:
    """Return what a server answers, or why it does not."""
    connection = http.client.HTTPConnection(address, port, timeout=10)
    try:
        connection.request("GET", "/", headers={"Host": host} if host else {})
        return connection.getresponse().read().decode().strip()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


class Standing(NamedTuple):
    """The cluster; by pods' names their uids; the service ``away`` as the API has it; what clients counted before."""

    cluster: LabCluster
    uids: dict[str, str]
    away: JsonObject
    begun: dict[str, standing.Tally]

    def app(self, pod: str) -> Container:
        """Return the newest container of a pod, asked of its node's Docker through SSH: no API is needed."""
        uid = self.uids[pod]
        for node in self.cluster.nodes:
            found = [one for one in containers(node, look(self.cluster, node)) if (one.uid, one.name) == (uid, "app")]
            if found:
                return max(found, key=lambda one: one.attempt)
        raise AssertionError(f"no container of pod {pod} anywhere")

    def all_of(self, pod: str) -> set[str]:
        """Return the ids of all containers of a pod, its sandbox's too."""
        seen = [one for node in self.cluster.nodes for one in containers(node, look(self.cluster, node))]
        return {one.id for one in seen if one.uid == self.uids[pod]}

    def tally(self, pod: str) -> standing.Tally:
        """Return what a client has counted since the beginning."""
        app, before = self.app(pod), self.begun.get(pod, standing.Tally(0, 0, ""))
        now = standing.tally(self.cluster, app.node, app.id)
        return standing.Tally(now.good - before.good, now.bad - before.bad, now.last)

    def identities(self) -> dict[str, set[tuple[str, str]]]:
        """Return of each node the ids of running containers, with their starts."""
        seen = {node: containers(node, look(self.cluster, node)) for node in self.cluster.nodes}
        return {node: {(one.id, one.started) for one in found if one.running} for node, found in seen.items()}


@pytest.fixture
def stood(cluster: LabCluster) -> Standing:
    """Servers on both workers, clients on the first, and one pod whose container is going to die."""
    away = f"away.{standing.NAMESPACE}.svc.cluster.local"
    cluster.apply(
        standing.deployment("steady", 2, standing.server_spec(HERE)),
        standing.deployment("away", 2, standing.server_spec(THERE)),
        standing.service("steady", NODE_PORT),
        standing.service("away"),
        standing.ingress(HOST, "steady"),
        standing.client("near", HERE, f"http://steady.{standing.NAMESPACE}/"),
        standing.client("far", HERE, f"http://{away}/"),
        standing.pod("victim", standing.server_spec(HERE)),
        standing.pod("once", standing.pod_spec(["sh", "-c", "sleep 86400"], HERE, restartPolicy="Never")),
    )
    cluster.until(lambda: standing.all_ready(cluster, 8))
    assert_whole(cluster)
    cluster.until(lambda: ask(cluster.address(HERE), 80, HOST).startswith("steady-"))
    names = {one["metadata"]["name"]: one["metadata"]["uid"] for one in standing.pods(cluster)}
    made = Standing(cluster, names, cluster.get("service", "away", "-n", standing.NAMESPACE), {})
    for client in ("near", "far"):
        wait_for(f"{client} is answered", lambda client=client: made.tally(client).good > 5, 60)  # type: ignore[misc]  # mypy cannot infer the default
        made.begun[client] = made.tally(client)
    return made


def kill(cluster: LabCluster, one: Container) -> None:
    """End a container as a crash does."""
    cluster.on(one.node, ["docker", "kill", one.id])


def wait_for(what: str, true: Callable[[], Any], timeout_s: float) -> None:
    """Wait until something is true; SSH of a booting machine, and Docker there, may fail meanwhile."""
    deadline, last = time.monotonic() + timeout_s, ""
    while True:
        try:
            if true():
                return
        except (LabError, ValueError, AssertionError) as error:
            last = str(error)
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s; {last}"
        time.sleep(0.5)


def test_without_a_control_plane_everything_goes_on(stood: Standing) -> None:
    """Serve, heal a container, boot a worker; then take the control plane back with nothing started anew."""
    cluster = stood.cluster
    before = stood.identities()
    with backdoor.Sampler(cluster), Asking(cluster.address(HERE)) as asking:
        begun = time.monotonic()
        cluster.lab.power_cut("control1")
        victim, once = stood.app("victim"), stood.app("once")
        for one in (victim, once):
            kill(cluster, one)
        boot_takes_s = booted(stood)
        wait_for("the container that died runs again", lambda: stood.app("victim").running, TAKEOVER_S)
        assert stood.app("victim").id == victim.id
        assert not stood.app("once").running, "its policy is Never"
        time.sleep(max(0.0, SERVING_S - (time.monotonic() - begun)))
        near, served = stood.tally("near"), (asking.good, asking.bad)
        unattended, over = stood.identities(), stood.all_of("once")
        assert unattended[HERE] - before[HERE] == {(victim.id, stood.app("victim").started)}, "only one was started"
        cluster.lab.start("control1")
        cluster.until(lambda: len(cluster.ready_nodes()) == 2)
        assert_whole(cluster)
    print(f"{served[0]} requests from outside, {near.good} from a pod, worker back after {boot_takes_s:.1f} s")
    assert (near.bad, served[1]) == (0, []), near.last
    assert near.good > SERVING_S
    assert served[0] > SERVING_S
    for node, found in stood.identities().items():
        assert not found - unattended[node], "nothing is started anew when the control plane is back"
        assert {one for one, _ in unattended[node] - found} <= over, "only the sandbox of the pod that is over goes"
    hand_over(stood, victim)
    assert boot_takes_s <= BACK_S, f"pods, addresses, rules, DNS and nginx were back {boot_takes_s:.1f} s after SSH"


def booted(stood: Standing) -> float:
    """Boot the other worker; return how long after its SSH was up everything on it was back, in seconds."""
    cluster = stood.cluster
    far = stood.tally("far")
    assert (far.bad, far.good > 0) == (0, True), far.last
    cluster.lab.reboot(THERE)
    begun = time.monotonic()

    def back() -> bool:
        seen = look(cluster, THERE, [stood.away])
        alive = [one for one in containers(THERE, seen) if one.running]
        return (
            len(alive) == 4
            and list(seen["names"].values()) == [stood.away["spec"]["clusterIP"]]
            and set(seen["answers"].values()) == {"yes"}
            and ask(cluster.address(THERE), 80, HOST).startswith("steady-")
            and ask(cluster.address(THERE), NODE_PORT).startswith("steady-")
        )

    wait_for("the worker that booted is back", back, TAKEOVER_S)
    took_s = time.monotonic() - begun
    good = stood.tally("far").good
    wait_for("pods of the other worker are served again", lambda: stood.tally("far").good > good + 5, 60)
    return took_s


def hand_over(stood: Standing, victim: Container) -> None:
    """The control plane has the restarts again: the next death is answered by a new attempt, made once."""
    cluster = stood.cluster
    wait_for("somebody attends the worker", lambda: attended(cluster), 60)
    with backdoor.Sampler(cluster):
        kill(cluster, victim)
        cluster.until(lambda: restarts(cluster, "victim") == 1, told="the reconciler makes a new attempt")
        assert_whole(cluster)
    again = stood.app("victim")
    assert (again.attempt, again.id != victim.id) == (1, True)
    assert cluster.get("pod", "once", "-n", standing.NAMESPACE)["status"]["phase"] == "Failed"


def attended(cluster: LabCluster) -> bool:
    """Return whether the gateway has touched the worker's file within the last minute."""
    age = cluster.on(HERE, ["sh", "-c", "echo $(($(date +%s) - $(stat -c %Y /run/minik8s/attended)))"])
    return int(age) < 60


def restarts(cluster: LabCluster, pod: str) -> int:
    """Return how often the API says that a pod's container was restarted, while it is ready."""
    if not cluster.ready(pod, standing.NAMESPACE):
        return -1
    return int(cluster.get("pod", pod, "-n", standing.NAMESPACE)["status"]["containerStatuses"][0]["restartCount"])


# What may run on a worker when nothing changes, by its first word (of systemd: the whole path); containers apart.
RESIDENTS = {
    "/lib/systemd/systemd",
    "/lib/systemd/systemd-journald",
    "/lib/systemd/systemd-logind",
    "/lib/systemd/systemd-udevd",
    "/usr/bin/dbus-daemon",
    "/sbin/agetty",
    "/usr/sbin/cron",
    "/usr/bin/containerd",
    "/usr/bin/containerd-shim-runc-v2",
    "/usr/sbin/dockerd",
    "/opt/minik8s/bin/coredns",
    "nginx:",
    "sshd:",  # the listener, and the gateway's one session
    "/usr/lib/openssh/sftp-server",
}
SFTP = "sh -c /usr/lib/openssh/sftp-server"  # sshd starts it by a shell


LOOK = """
import json, os, subprocess, sys, time
rows = []
listed = subprocess.run(["ps", "-eww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
for line in listed.splitlines():
    pid, parent, args = line.split(None, 2)
    try:
        status = open(f"/proc/{pid}/status").read()
    except OSError:
        continue
    runs = sum(int(told.split()[1]) for told in status.splitlines() if "ctxt_switches" in told)
    rows.append([pid, parent, args, runs])
json.dump({"at_s": time.monotonic(), "asks": str(os.getpid()), "rows": rows}, sys.stdout)
"""


def test_a_worker_shows_no_process_of_ours(cluster: LabCluster) -> None:
    """All processes of a worker are of known programs, a minute after its last change and from then on.

    The last change is when one of the others last did something: came, or was given the processor.
    """
    cluster.apply(standing.service("web"), standing.pod("web", standing.server_spec(HERE)))
    cluster.until(lambda: standing.all_ready(cluster, 1))
    deadline = time.monotonic() + WATCHED_S
    seen: dict[str, int] = {}
    looks, changed_s, longest_s = 0, 0.0, 0.0
    while looks < 5:  # not just between two changes
        assert time.monotonic() < deadline, f"changes do not end within {WATCHED_S:.0f} s: {seen}"
        at_s, found = strangers(cluster)
        if any(seen.get(process) != runs for process, runs in found.items()):
            changed_s = at_s
        longest_s = max(longest_s, at_s - changed_s if found else 0)
        assert longest_s <= QUIET_S, f"idle for {longest_s:.0f} s and still there: {found}"
        seen, looks = found or seen, 0 if found else looks + 1
        time.sleep(1)
    assert seen, "nobody was seen who could go"
    print(f"the last processes were there for {longest_s:.0f} s after their last change")


def strangers(cluster: LabCluster) -> tuple[float, dict[str, int]]:
    """Return the worker's time, and the processes that nobody expects with how often each was given the processor.

    Left out are those of containers and of this very question.
    """
    done = json.loads(cluster.on(HERE, ["python3", "-c", LOOK]))
    rows = done["rows"]  # ps itself has ended
    parents = {pid: parent for pid, parent, _, _ in rows}
    words = {pid: args for pid, _, args, _ in rows}
    asking = {done["asks"], *ancestors(done["asks"], parents)}
    found = {
        f"{pid} {args}": runs
        for pid, _, args, runs in rows
        if pid not in asking
        and args.split()[0] not in RESIDENTS
        and args != SFTP
        and not any("containerd-shim" in words.get(one, "") for one in ancestors(pid, parents))
    }
    return done["at_s"], found


def ancestors(pid: str, parents: dict[str, str]) -> list[str]:
    """Return the processes above one."""
    found = []
    while (pid := parents.get(pid, "0")) != "0":
        found.append(pid)
    return found
