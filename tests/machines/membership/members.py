"""What the tests of joining and leaving share: nodes as a table, load on them, and what a clean machine is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters import standing
from tests.support.clusters.labcluster import REPOSITORY, CommandFailed, LabCluster, Play, recap

WEB, CLIENT, HOME = "web", "client", "worker1"
FOLDERS = (
    "/etc/minik8s",
    "/var/lib/minik8s",
    "/var/lib/minik8s-node",
    "/run/minik8s",
    "/opt/minik8s",
    "/usr/lib/minik8s",
)
REMAINS = """
ip -o link | grep -o 'mk8s[^:@]*'
nft list tables | grep minik8s
docker ps -aq --filter label=minik8s.io/node
docker images -q 'minik8s/*'
getent passwd minik8s-node
ls -d /etc/systemd/system/minik8s* /etc/cron.d/minik8s /etc/sudoers.d/minik8s %s 2>/dev/null
mount | grep -E ' on /(run|var/lib)/minik8s'
ps -eww -o user:20,args | grep -E '^minik8s|[/]minik8s|[m]inik8s-warm'
true
"""

KEY = "/root/.ssh/for-new-machines"
LOGIN_KEY = f"mkdir -p -m 700 /root/.ssh; [ -e {KEY} ] || ssh-keygen -q -t ed25519 -N '' -f {KEY}; cat {KEY}.pub"
LET_IN = 'grep -qF "$1" /root/.ssh/authorized_keys || echo "$1" >>/root/.ssh/authorized_keys'


class Members:
    """The cluster and the machines that come and go; ``control`` is the machine whose API server commands ask."""

    def __init__(self, cluster: LabCluster, control: str = "") -> None:
        self.cluster, self.control = cluster, control

    # --- nodes

    def node(self, name: str) -> JsonObject | None:
        """Return the Node, None when there is none."""
        found = [one for one in self.cluster.get("nodes")["items"] if one["metadata"]["name"] == name]
        return found[0] if found else None

    def ranges(self, node: str) -> dict[str, str]:
        """Return the phase of each range that is claimed for a node."""
        found = self.cluster.get("podcidrs")["items"]
        mine = [one for one in found if one["spec"]["nodeName"] == node]
        return {one["spec"]["cidr"]: one.get("status", {}).get("phase", "") for one in mine}

    def list(self, name: str, *, listed: bool) -> None:
        """Put a machine into the inventory's group nodes, or take it out."""
        nodes = [each for each in self.cluster.nodes if each != name]
        self.cluster.nodes = [*nodes, name] if listed else nodes
        self.cluster.write_inventory()

    def add(self, name: str) -> Play:
        """Add a machine by the playbook."""
        self.list(name, listed=True)
        return self.cluster.play("node_add.yml", "-e", f"node={name}")

    def add_by_command(self, name: str) -> Play:
        """Add a machine by ``minik8s node add``, as docs/how-to/nodes.md says: on the control plane, as root."""
        begun = time.monotonic()
        done = self.cluster.on(self.cluster.control[0], [*self.add_words(name)], timeout_s=900)
        self.list(name, listed=True)
        return Play(done, recap(done), time.monotonic() - begun)

    def add_words(self, name: str) -> Sequence[str]:
        """Return the command that adds a machine, which lets root of the control plane in from now on."""
        public = self.cluster.on(self.cluster.control[0], ["sh", "-euc", LOGIN_KEY]).strip()
        self.cluster.on(name, ["sh", "-euc", LET_IN, "sh", public])
        words = ["minik8s", "node", "add", f"root@{self.cluster.address(name)}", "--name", name]
        return [*words, "--private-key", KEY, "--accept-host-key"]

    def command(self, *words: str) -> str:
        """Run ``minik8s`` with this inventory and return what it printed.

        Raises:
            CommandFailed: it ended with another status than 0.
        """
        argv = [sys.executable, "-m", "minik8s_modules.cli.main", *words, "-i", str(self.cluster.inventory)]
        kubeconfig = self.cluster.fetch_kubeconfig(self.control) if self.control else self.cluster.kubeconfig
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(
            argv, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            raise CommandFailed(words, done.returncode, done.stdout + done.stderr)
        return done.stdout

    def present(self, name: str) -> None:
        """Have the machine be a node."""
        if self.node(name) is None:
            self.add(name)

    def leave(self, name: str) -> None:
        """Have the machine be no node, and clean."""
        if self.node(name) is not None or self.ranges(name):
            self.list(name, listed=True)
            self.cluster.play("node_remove.yml", "-e", f"node={name}")
        self.list(name, listed=False)

    def remains(self, name: str) -> str:
        """Return what a machine still has of us; "" when it is clean."""
        return self.cluster.on(name, ["sh", "-s"], text=REMAINS % " ".join(FOLDERS))

    # --- load

    def serve(self) -> None:
        """Run three servers that end in order, their Service, and the client."""
        spec = standing.server_spec()
        spec["terminationGracePeriodSeconds"] = 30
        # as with any Kubernetes: who ends goes on until nobody is sent to it any more
        spec["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 5}}}
        self.cluster.apply(standing.deployment(WEB, 3, spec), standing.service(WEB))
        self.cluster.until(lambda: standing.all_ready(self.cluster, 3, f"app={WEB}"), told="web is not ready")
        url = f"http://{self.address(WEB)}/"
        self.cluster.apply(standing.client(CLIENT, HOME, url))
        self.cluster.until(lambda: self.cluster.ready(CLIENT, standing.NAMESPACE))
        self.cluster.until(lambda: self.tally().good > 5, told="the client gets no answer")

    def clear(self) -> None:
        """Remove all that tests have made."""
        kinds = "poddisruptionbudgets,services,deployments,replicasets,pods"
        self.cluster.kubectl("delete", kinds, "--all", "-n", standing.NAMESPACE)
        self.cluster.until(lambda: not standing.pods(self.cluster), told="the test's pods do not end")

    def address(self, service: str) -> str:
        """Return a service's address."""
        return str(self.cluster.get("service", service, "-n", standing.NAMESPACE)["spec"]["clusterIP"])

    def tally(self) -> standing.Tally:
        """Return what the client has counted."""
        return standing.tally(self.cluster, HOME, self.container(CLIENT))

    def container(self, pod: str) -> str:
        """Return the Docker id of a pod's container."""
        found = self.cluster.get("pod", pod, "-n", standing.NAMESPACE)
        return str(found["status"]["containerStatuses"][0]["containerID"]).rpartition("/")[2]

    def running(self, *machines: str) -> dict[str, set[str]]:
        """Return, by machine, id and start of each container of ours."""
        found = {}
        for machine in machines:
            ids = self.cluster.on(machine, ["docker", "ps", "-q", "--filter", "label=minik8s.io/node"]).split()
            done = self.cluster.on(machine, ["docker", "inspect", *ids]) if ids else "[]"
            found[machine] = {f"{one['Id']} {one['State']['StartedAt']}" for one in json.loads(done)}
        return found

    def daemons(self) -> str:
        """Return the process ids of the daemons on the control plane."""
        argv = ["systemctl", "show", "--property=Id,MainPID", "minik8s-gateway", "minik8s-reconciler"]
        return self.cluster.on(self.cluster.control[0], argv)
