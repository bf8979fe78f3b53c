"""A real Slurm of one machine: munged, slurmctld and two slurmd in namespaces of their own, with a login by ssh.

Debian trixie's 24.11, unpacked once into ``.cache``; nothing is installed. The user ``student`` submits jobs; the
"machine" is reached at ``Slurm.address`` by the key ``Slurm.key``. Both nodes are idle about a second after ``start``.

    python -m tests.support.servers.slurm FOLDER     # for trying: an inventory and a provider's configuration as well
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from tests.support.clients import CACHE, ROOT, locked, run
from tests.support.docker.debian import fetch_whole, unpack_whole
from tests.support.servers import slurm_images
from tests.support.waiting import until

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "munge", "openssh-server", "python3", "tcc", "libc6-dev", "iproute2"),
    *("bash", "dash", "coreutils", "sed", "grep", "mawk", "findutils", "util-linux", "procps", "hostname"),
    *slurm_images.PACKAGES,
)
NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
USERS = {"root": (0, "/root"), "munge": (201, "/run/munge"), "slurm": (202, "/"), "sshd": (203, "/run/sshd")}
STUDENT, STUDENTS_ID = "student", 1000
CONFIGURATION = """
ClusterName=lab
SlurmctldHost=slurmlab({address})
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin={task_plugin}
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobcomp.txt
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdTimeout=20
KillWait=2
MinJobAge={min_job_age_s}
MpiDefault=none
NodeName=n1 NodeHostname=slurmlab NodeAddr={address} Port=17001 CPUs=2 RealMemory=1000 Gres=gpu:fake:2
NodeName=n2 NodeHostname=slurmlab NodeAddr={address} Port=17002 CPUs=2 RealMemory=1000 Gres=gpu:fake:2
PartitionName=batch Nodes=n1,n2 Default=YES MaxTime=60 State=UP
PartitionName=short Nodes=n1 MaxTime=10 State=UP
PartitionName=urgent Nodes=n1,n2 PriorityTier=10 MaxTime=10 State=UP
"""
LIMITS = """
CgroupPlugin=cgroup/v1
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""
CGROUPS = Path("/sys/fs/cgroup")
SSHD = """
Port 22
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_%u
PasswordAuthentication no
UsePAM no
PidFile /run/sshd.pid
Subsystem sftp /usr/lib/openssh/sftp-server
"""
# PID 1: reaps whatever ends, and starts what it is told to by files in /run/todo. Its root is that of the mount
# namespace: in one that chroot alone makes, the kernel lets nobody have a user namespace, which containers need
INIT = """
set -e
mount -t tmpfs tmpfs {root}.upper
mkdir {root}.upper/data {root}.upper/work
mount -t overlay -o lowerdir={lower},upperdir={root}.upper/data,workdir={root}.upper/work overlay {root}
mount -t proc proc {root}/proc
mkdir {root}/repository
mount --bind {repository} {root}/repository
mount -t tmpfs -o mode=755 tmpfs {root}/dev
mount -t tmpfs -o mode=755 tmpfs {root}/run
mount -t tmpfs -o mode=1777 tmpfs {root}/tmp
mkdir {root}/dev/pts {root}/dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts {root}/dev/pts
mknod -m 666 {root}/dev/null c 1 3
mknod -m 666 {root}/dev/zero c 1 5
mknod -m 666 {root}/dev/full c 1 7
mknod -m 666 {root}/dev/random c 1 8
mknod -m 666 {root}/dev/urandom c 1 9
mknod -m 666 {root}/dev/tty c 5 0
ln -s pts/ptmx {root}/dev/ptmx
mknod -m 666 {root}/run/fakegpu0 c 1 3
mknod -m 666 {root}/run/fakegpu1 c 1 3
mknod -m 666 {root}/dev/fuse c 10 229
ln -s /proc/self/fd {root}/dev/fd
for i in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${{i%:*}} {root}/dev/${{i#*:}}; done
mkdir -p {root}/srv {root}/sys/fs/cgroup {root}/before
mount -t tmpfs -o mode=755 tmpfs {root}/sys/fs/cgroup
{cgroups}
hostname slurmlab
cd {root}
pivot_root . before
exec chroot . /bin/bash /init
"""
BOOT = """
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
umount --lazy /before
mkdir -p /run/munge /run/slurm /run/sshd /var/spool/slurmctld /var/log/slurm /var/log/munge /var/lib/munge
chown munge:munge /run/munge /var/log/munge /var/lib/munge
chown slurm:slurm /run/slurm /var/spool/slurmctld /var/log/slurm
chmod 755 /run/munge /var/log/slurm
ip link set lo up
while ! ip addr show dev eth0 2>/dev/null | grep -q {address}; do sleep 0.05; done
setpriv --reuid munge --regid munge --clear-groups munged
slurmctld
slurmd -N n1
slurmd -N n2
/usr/sbin/sshd -f /etc/ssh/sshd_config_lab
touch /run/booted
while :; do sleep 3600 & wait $!; done
"""


def tree() -> Path:
    """Return the unpacked system; fetches it the first time (57 MB)."""
    target = CACHE / "slurm-trixie-4"
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix="slurm-", dir=CACHE) as folder:
                made = unpack_whole("trixie", PACKAGES, Path(folder))
                (made / "usr/bin/cc").symlink_to("tcc")
                for name in ("slurmctld", "slurmd", "slurmstepd"):  # Debian's alternatives, which scripts set
                    (made / "usr/sbin" / name).symlink_to(f"{name}-wlm")
                made.replace(target)
    return target


def packages() -> Path:
    """Return a folder with the packages of Debian 13 that its Slurm needs; fetches them the first time."""
    target = CACHE / "slurm-packages-trixie"
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix="slurm-", dir=CACHE) as folder:
                wanted = ("slurmctld", "slurmd", "slurm-client", "munge")
                fetch_whole("trixie", wanted, Path(folder)).replace(target)
    return target


class Slurm:
    """One cluster with the partitions ``batch`` (nodes n1, n2), ``short`` (n1) and ``urgent`` (both).

    Jobs of ``urgent`` preempt others. Each node has 2 CPUs and 2 fake GPUs.
    """

    def __init__(
        self, folder: Path, *, min_job_age_s: int = 300, limits_memory: bool = False, more: Sequence[Path] = ()
    ) -> None:
        self.folder, self._age_s, self._limits, self._more = folder, min_job_age_s, limits_memory, more
        self.address, self._ours = f"10.99.{100 + NUMBER}.2", f"10.99.{100 + NUMBER}.1"
        self.key = folder / "key"
        self.known_hosts = folder / "known_hosts"
        self._device = f"slurm-{NUMBER}"
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0

    def start(self) -> None:
        """Start it, and wait until its nodes are idle."""
        root, layer = self.folder / "root", self.folder / "layer"
        for path in (root, layer, self.folder / "root.upper"):
            path.mkdir(parents=True)
        self._write(layer)
        given = [f"mkdir -p {root}{one} && mount --bind {one} {root}{one}" for one in _hierarchies()]
        cgroups = "\n".join(given if self._limits else [])
        lower = ":".join(map(str, (layer, *self._more, tree())))
        script = INIT.format(root=root, lower=lower, repository=ROOT, cgroups=cgroups)
        own = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *own, "bash", "-c", script]  # it goes with this process
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        self.pid = until(self._child)
        self._connect()
        until(self._is_booted)
        until(self._is_idle)

    def stop(self) -> None:
        """End it with all its processes."""
        if self._process is not None:
            self._process.kill()  # its child, PID 1 of the namespace, dies with it
            self._process.wait()
        if self._limits:
            for path in sorted(CGROUPS.glob("*/slurm_n[12]/**/"), reverse=True):  # the deepest first
                with contextlib.suppress(OSError):
                    path.rmdir()
        subprocess.run(["ip", "link", "delete", self._device], capture_output=True, check=False)

    def inside(self, argv: Sequence[str], user: str = "root") -> list[str]:
        """Return the command that runs ``argv`` in there as ``user``."""
        entered = ["nsenter", "--all", f"--target={self.pid}", "--root"]
        ids = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        home = USERS.get(user, (0, f"/home/{user}"))[1]
        env = ["env", "-i", "-C", "/", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={home}", f"USER={user}", "LC_ALL=C"]
        return [*entered, *env, *ids, *argv]

    def run(self, argv: Sequence[str], user: str = "root", timeout_s: float = 60) -> str:
        """Return what a command in there prints; raise RuntimeError where it fails."""
        return run(self.inside(argv, user), timeout_s=timeout_s)

    def inventory(self, **more: object) -> Path:
        """Write an inventory with the login machine ``login``, and return it; ``more`` are variables of the host."""
        host = {
            "ansible_host": self.address,
            "ansible_user": STUDENT,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts}",
            "ansible_python_interpreter": "/usr/bin/python3",
            "minik8s_known_hosts": str(self.known_hosts),
            **more,
        }
        path = self.folder / "inventory.yml"
        path.write_text(yaml.safe_dump({"slurm_login": {"hosts": {"login": host}}}))
        return path

    def submit(self, command: str, *options: str, user: str = STUDENT) -> str:
        """Submit a job of somebody else's and return its id."""
        argv = ["sbatch", "--parsable", "--chdir=/tmp", "--mem=10", *options, "--wrap", command]
        return self.run(argv, user).strip()

    def controller_down(self, *, forgetting: bool = False) -> None:
        """End slurmctld; ``forgetting`` also loses all that it knew, as jobs are forgotten after MinJobAge."""
        self.run(["bash", "-c", "kill $(cat /run/slurm/slurmctld.pid)"])
        until(lambda: not self.run(["bash", "-c", "ps -C slurmctld -o stat= | grep -v ^Z || true"]))
        if forgetting:
            self.run(["bash", "-c", "rm -rf /var/spool/slurmctld/*"])

    def controller_up(self) -> None:
        """Start slurmctld again, with what it knew."""
        self.run(["slurmctld"])
        until(self._answers)

    def login_down(self) -> None:
        """Take the machine's link away: connections get no answer."""
        run(["ip", "link", "set", self._device, "down"])

    def login_up(self) -> None:
        """Give the link back."""
        run(["ip", "link", "set", self._device, "up"])

    def _child(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        found = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(found[0]) if found else 0

    def _connect(self) -> None:
        """Give it a link to this machine: Slurm resolves nothing where there is but loopback."""
        subprocess.run(
            ["ip", "link", "delete", self._device], capture_output=True, check=False
        )  # of one that was killed
        run(["ip", "link", "add", self._device, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid)])
        run(["ip", "addr", "add", f"{self._ours}/24", "dev", self._device])
        run(["ip", "link", "set", self._device, "up"])
        network = ["nsenter", "--net", f"--target={self.pid}", "ip"]
        run([*network, "link", "set", "eth0", "up"])
        run([*network, "addr", "add", f"{self.address}/24", "dev", "eth0"])

    def _is_booted(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        return Path(f"/proc/{self.pid}/root/run/booted").exists()

    def _answers(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return "UP" in self.run(["timeout", "5", "scontrol", "ping"])
        return False

    def _is_idle(self) -> bool:
        with contextlib.suppress(RuntimeError):  # the controller does not listen yet
            return self.run(["sinfo", "-h", "-o", "%t %D", "-p", "batch"]).split() == ["idle", "2"]
        return False

    def _write(self, layer: Path) -> None:
        """Write what the packages' scripts and an administrator would have made."""
        users = {**USERS, STUDENT: (STUDENTS_ID, f"/home/{STUDENT}")}
        passwd = [f"{name}:x:{number}:{number}::{home}:/bin/bash" for name, (number, home) in users.items()]
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)])
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key")])
        host_key = (self.folder / "host_key.pub").read_text()
        self.known_hosts.write_text(f"{self.address} {host_key}")
        files = {
            "etc/passwd": "\n".join(passwd) + "\n",
            "etc/group": "".join(f"{name}:x:{number}:\n" for name, (number, _) in users.items()),
            "etc/hosts": f"127.0.0.1 localhost\n{self.address} slurmlab\n",
            **dict.fromkeys(("etc/resolv.conf", "etc/localtime"), ""),
            "etc/slurm/slurm.conf": CONFIGURATION.format(
                address=self.address,
                min_job_age_s=self._age_s,
                task_plugin="task/cgroup" if self._limits else "task/none",
            ),
            "etc/slurm/cgroup.conf": LIMITS if self._limits else "CgroupPlugin=disabled\n",
            "etc/slurm/gres.conf": "NodeName=n1,n2 Name=gpu Type=fake Count=2 File=/run/fakegpu[0-1]\n",
            "etc/ssh/sshd_config_lab": SSHD,
            "etc/ssh/host_key": (self.folder / "host_key").read_text(),
            "init": BOOT.format(address=self.address),
            **{f"etc/ssh/authorized_{name}": self.key.with_suffix(".pub").read_text() for name in ("root", STUDENT)},
        }
        for name, content in files.items():
            path = layer / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        slurm_images.write(layer, tree(), STUDENTS_ID)
        layer.chmod(0o755)
        (layer / "etc/ssh/host_key").chmod(0o600)
        _own(layer / f"home/{STUDENT}", STUDENTS_ID, 0o700)
        _own(layer / "root", 0, 0o700)
        _own(layer / "etc/munge", USERS["munge"][0], 0o700)
        key = layer / "etc/munge/munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        os.chown(key, USERS["munge"][0], USERS["munge"][0])
        key.chmod(0o400)


def can_limit_memory() -> bool:
    """Return whether this machine has cgroups of version 1, in which this Slurm limits memory."""
    return (CGROUPS / "memory" / "release_agent").exists()


def _hierarchies() -> list[Path]:
    return [CGROUPS / name for name in ("memory", "freezer", "devices", "cpuset", "cpuacct")]


def _own(path: Path, user: int, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, user, user)
    path.chmod(mode)


@contextlib.contextmanager
def running(
    folder: Path, *, min_job_age_s: int = 300, limits_memory: bool = False, more: Sequence[Path] = ()
) -> Iterator[Slurm]:
    """Run a Slurm in ``folder``, which is made; it goes with its end. ``more`` are folders of further programs."""
    slurm = Slurm(folder, min_job_age_s=min_job_age_s, limits_memory=limits_memory, more=more)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run one until it is interrupted."""
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    with running(Path(sys.argv[1]).absolute()) as slurm:
        slurm.inventory()
        config = slurm.folder / "batch.yml"
        images = [*slurm_images.CHARLIECLOUD]
        config.write_text(yaml.safe_dump({"inventory": "inventory.yml", "partition": "batch", "image_command": images}))
        print(slurm.run(["sinfo"]))
        print(f"minik8s virtual-node --provider slurm --node-name batch --config {config}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
