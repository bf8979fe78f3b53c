"""One nginx of our own on a node: its directory, its main file, ``nginx -t`` on a staged copy, and its reload.

It shares nothing with another nginx of the machine but the program: own prefix, pid, temporary directories, ports.
Which files are in force is recorded after a reload (``loaded``), so that a kill between both is made good.
A staged copy is locked by whoever checks it; one that nobody has locked was left by a killed run (``clear``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.files import TEMPORARY, read_bytes, remove_leftovers, write_atomically
from ..core.paths import secrets_dir

MAIN, LOADED, PID, HOSTS, SECRETS = "nginx.conf", "loaded", "nginx.pid", "hosts", "secrets"
FOLDERS = ("", HOSTS, "tmp")
PROGRAM = "/usr/sbin/nginx"
WORKERS = ("www-data", "nginx")  # of Debian's nginx, and of Red Hat's and nginx's own
STAGE = "nginx-check-"
CHECK_S = 10.0
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # what base/tls.py has, for every host; of TLS 1.2 alone
# "nginx: [emerg] why", or "2026/01/01 00:00:00 [emerg] 123#123: why"
_LINE = re.compile(r"^.*?\[(?:emerg|alert)\] (?:[0-9]+#[0-9]+: )?(?:\*[0-9]+ )?(.*)$")
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
Tree = dict[str, str]


def folder_of(state_dir: str) -> str:
    """Return the prefix of the node's own nginx."""
    return os.path.join(state_dir, "nginx")


def worker_user() -> str:
    """Return who nginx's workers are here: the user that a distribution's package makes for them, else nobody."""
    there = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in WORKERS if name in there), "nobody")


def main_text(config: Mapping[str, Any], *, root: bool = True) -> str:
    """Return the main file. Paths are relative to the prefix; what no host claims is answered 404."""
    places = "".join(f"    {name}_temp_path tmp/{name};\n" for name in _TEMPORARY)
    user = f"user {worker_user()};\n" if root else ""
    return (
        "# Written by minik8s_ingress; put back when changed.\n"
        f"{user}worker_processes 1;\nworker_shutdown_timeout 1h;\npid {PID};\nerror_log stderr warn;\n"
        "events { worker_connections 4096; }\n"
        "http {\n"
        f"{places}"
        "    server_tokens off;\n    access_log off;\n    client_max_body_size 0;\n    proxy_http_version 1.1;\n"
        "    server_names_hash_bucket_size 256;\n    server_names_hash_max_size 8192;\n"
        "    default_type text/html;\n"
        f"    ssl_protocols TLSv1.2 TLSv1.3;\n    ssl_ciphers {CIPHERS};\n"
        "    map $http_upgrade $minik8s_connection { default upgrade; '' ''; }\n"
        f"    include {HOSTS}/*.conf;\n"
        f"    server {{\n        {_listen(config, 'http_port')}server_name minik8s.invalid;\n"
        "        return 404 '<h1>404</h1><p>minik8s: nothing is declared for this host.</p>\\n';\n    }\n"
        f"    server {{\n        {_listen(config, 'https_port', ' ssl default_server')}"
        "ssl_reject_handshake on;\n    }\n"
        "}\n"
    )


def _listen(config: Mapping[str, Any], port: str, words: str = "", indent: int = 8) -> str:
    """Return where a server listens, as lines of which the last is open."""
    places = [f"{config[port]}", *([f"[::]:{config[port]}"] if config.get("ipv6") else [])]
    return "".join(f"listen {each}{words};\n{' ' * indent}" for each in places)


def fallback_text(config: Mapping[str, Any]) -> str:
    """Return the file of requests for hosts that nobody declared, where no default backend is declared either."""
    return (
        "# Written by minik8s_ingress: _\n"
        f"server {{\n    {_listen(config, 'http_port', ' default_server', 4)}server_name _;\n"
        "    return 404 '<h1>404</h1><p>minik8s: nothing is declared for this host and path.</p>\\n';\n}\n"
    )


def read_tree(folder: str) -> Tree:
    """Return the files of a server by name; those of a killed run are not among them."""
    found: Tree = {}
    names = [MAIN]
    with contextlib.suppress(FileNotFoundError):
        names += [f"{HOSTS}/{name}" for name in os.listdir(os.path.join(folder, HOSTS))]
    for name in names:
        data = None if TEMPORARY in name else read_bytes(os.path.join(folder, name))
        if data is not None:
            found[name] = data.decode("utf-8", "replace")
    return found


def digest_of(tree: Tree) -> str:
    """Return what tells two sets of files apart."""
    digest = hashlib.sha256()
    for name in sorted(tree):
        digest.update(f"{name}\0{tree[name]}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def refusal(tree: Tree, run_dir: str, program: str = PROGRAM) -> str:
    """Return why nginx would not run with these files, "" when it would. Stages a copy; nothing in force is touched."""
    with _staged(run_dir) as stage:
        prepare(stage, run_dir)
        for name, text in tree.items():
            with open(os.path.join(stage, name), "w", encoding="utf-8", errors="surrogatepass") as out:
                out.write(text)
        return _test(stage, program)


@contextlib.contextmanager
def _staged(run_dir: str) -> Iterator[str]:
    """Yield a directory of one's own, locked until it is gone. The kernel unlocks it when its process is killed."""
    os.makedirs(run_dir, exist_ok=True)
    with contextlib.ExitStack() as held:
        with _locked(run_dir):  # nobody clears away what is not locked yet
            stage = tempfile.mkdtemp(prefix=STAGE, dir=run_dir)
            held.enter_context(_locked(stage))
            held.callback(shutil.rmtree, stage, ignore_errors=True)
        yield stage


def clear(folder: str, run_dir: str) -> None:
    """Remove what killed runs left of checks and of files half written; call it under the node's lock."""
    for name in ("", HOSTS):
        remove_leftovers(os.path.join(folder, name))
    if not os.path.isdir(run_dir):
        return
    with _locked(run_dir):
        for name in os.listdir(run_dir):
            # a check run on a node that had no state yet holds no lock of the node: its copy may be in use
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                if name.startswith(STAGE):
                    _remove_unlocked(os.path.join(run_dir, name))


def _remove_unlocked(stage: str) -> None:
    with _locked(stage, fcntl.LOCK_EX | fcntl.LOCK_NB):
        shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock on a directory."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _test(stage: str, program: str) -> str:
    argv = [program, "-t", "-q", "-p", stage + "/", "-c", MAIN]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CHECK_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{program} -t did not answer within {CHECK_S:.0f} s"
    except OSError as error:
        return f"{program} -t: {error}"
    if done.returncode == 0:
        return ""
    return _cause(done.stderr).replace(stage, "") or f"exit code {done.returncode}"


def _cause(output: str) -> str:
    """Return why nginx ended, without the time and the process that it puts before each line."""
    lines = [_LINE.sub(r"\1", line) for line in output.splitlines() if _LINE.match(line)] or output.splitlines()
    return " ".join([*dict.fromkeys(lines)][:2])


def can_listen(port: int, *, ipv6: bool = False) -> bool:
    """Return whether nobody listens at a port of some address: ``nginx -t`` does not say, and a reload would fail."""
    with contextlib.ExitStack() as stack:
        try:
            probe = stack.enter_context(socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if ipv6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(("", port))
            probe.listen()
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def listens(pid: int, port: int, *, ipv6: bool = False) -> bool:
    """Return whether a process has a socket of a family that listens at a port, whatever files it was told to load."""
    table = read_bytes(f"/proc/{pid}/net/{'tcp6' if ipv6 else 'tcp'}") or b""
    rows = (row.split() for row in table.splitlines()[1:])
    sockets = {row[9] for row in rows if row[3] == b"0A" and int(row[1].rpartition(b":")[2], 16) == port}
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # it is closed meanwhile
                if os.fsencode(os.readlink(f"/proc/{pid}/fd/{name}"))[len("socket:[") : -1] in sockets:
                    return True
    return False


def is_prepared(folder: str, run_dir: str) -> bool:
    """Return whether a server has what it cannot start without, beside its files."""
    return all(os.path.isdir(os.path.join(folder, name)) for name in FOLDERS) and _is_linked(folder, run_dir)


def _is_linked(folder: str, run_dir: str) -> bool:
    link = os.path.join(folder, SECRETS)
    return os.path.islink(link) and os.readlink(link) == secrets_dir(run_dir)


def prepare(folder: str, run_dir: str) -> None:
    """Make the directories of a server, and the link that leads to certificates on the tmpfs."""
    for name in FOLDERS:
        os.makedirs(os.path.join(folder, name), mode=0o755, exist_ok=True)
    link, target = os.path.join(folder, SECRETS), secrets_dir(run_dir)
    if not _is_linked(folder, run_dir):
        # hosts are written side by side
        made = os.path.join(folder, f"{TEMPORARY}{SECRETS}.{threading.get_native_id()}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        os.symlink(target, made)
        os.replace(made, link)


def master(folder: str) -> int:
    """Return the process id of the running server, 0 when it does not run."""
    data = (read_bytes(os.path.join(folder, PID)) or b"").strip()
    if not data.isdigit():
        return 0
    words = (read_bytes(f"/proc/{int(data)}/cmdline") or b"").split(b"\0")
    ours = any(os.fsencode(folder) in word for word in words) and b"nginx" in words[0]
    return int(data) if ours else 0


def loaded(folder: str) -> str:
    """Return what the running server was told to load last: its process id and the digest of the files."""
    return (read_bytes(os.path.join(folder, LOADED)) or b"").decode("ascii", "replace").strip()


def mark_of(pid: int, tree: Tree) -> str:
    """Return what ``loaded`` returns once server ``pid`` has these files."""
    return f"{pid} {digest_of(tree)}"


def reload(folder: str, pid: int) -> None:
    """Have the server take its files over: new workers accept, the old ones end what they have begun."""
    mark = mark_of(pid, read_tree(folder))
    try:
        os.kill(pid, signal.SIGHUP)
    except ProcessLookupError:
        raise KeyFault("ServerNotRunning", "nginx ended before it could load its files") from None
    write_atomically(os.path.join(folder, LOADED), mark.encode() + b"\n", 0o644)
