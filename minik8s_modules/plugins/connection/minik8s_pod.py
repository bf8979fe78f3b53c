"""minik8s_pod: tasks run inside a container of a pod, by the API server's exec; files go through it as well.

Every command is one exec (``client/exec.py``) of ``/bin/sh -c``. Files are written by ``cat``, so a container needs a
shell and cat; modules need a Python in it besides, ``ansible.builtin.raw`` does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase
from ansible.utils.display import Display

try:
    from minik8s_modules.client import exec as execution
except ModuleNotFoundError:  # ansible-playbook in a checkout that is not installed
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from minik8s_modules.client import exec as execution
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.client.kubeconfig import Access, find_kubeconfig, load_kubeconfig

DOCUMENTATION = r"""
name: minik8s_pod
short_description: Runs tasks in a container of a pod
description:
  - Commands run by the API server's C(exec), with the rights of the kubeconfig; no ssh server is needed in the pod.
  - The container needs C(/bin/sh) and, for files, C(cat). Modules need a Python in it; M(ansible.builtin.raw) does not.
  - Tasks run as the container's user. C(become) works where the container has the program and it asks for no password.
  - Hosts with these variables come from the inventory plugin C(minik8s).
author: the minik8s authors
options:
  pod:
    description: Name of the pod.
    type: str
    vars:
      - name: inventory_hostname
      - name: minik8s_pod
  namespace:
    description: Namespace of the pod.
    type: str
    default: default
    vars:
      - name: minik8s_namespace
  container:
    description: Container of the pod. The default is the pod's default one.
    type: str
    default: ""
    vars:
      - name: minik8s_container
  kubeconfig:
    description: Whom to ask, and as whom. The default is C(~/.kube/config), then the cluster's own admin file.
    type: path
    env:
      - name: KUBECONFIG
    vars:
      - name: minik8s_kubeconfig
  context:
    description: Context of the kubeconfig. The default is its current one.
    type: str
    default: ""
    vars:
      - name: minik8s_context
  executable:
    description: The shell that commands run in.
    type: str
    default: /bin/sh
    vars:
      - name: ansible_executable
"""

EXAMPLES = r"""
# A pod without an inventory plugin
- name: The configuration was checked in the pod
  hosts: web-0
  gather_facts: false
  vars:
    ansible_connection: minik8s_pod
    minik8s_namespace: shop
    minik8s_container: nginx
  tasks:
    - name: Nginx finds its configuration valid
      ansible.builtin.raw: nginx -t
      changed_when: false

# All pods with a label, as the inventory plugin minik8s gives them
- name: Caches are dropped
  hosts: label_app_web
  gather_facts: false
  tasks:
    - name: The cache is empty
      ansible.builtin.file:
        path: /var/cache/web
        state: absent
"""

_CHUNK = 256 * 1024
_FAILED = 1000
display = Display()


class Connection(ConnectionBase):  # type: ignore[misc]  # ansible is not typed
    """See the module's documentation."""

    transport = "minik8s_pod"
    has_pipelining = True
    _access: Access | None = None

    def _connect(self) -> Connection:
        """Read the kubeconfig; connections are made per command."""
        if self._access is None:
            try:
                path = find_kubeconfig(self.get_option("kubeconfig") or "")
                self._access = load_kubeconfig(path, self.get_option("context"))
            except Minik8sError as error:
                raise AnsibleError(str(error)) from error
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:  # noqa: FBT001, FBT002  Ansible's signature
        """Run ``cmd`` in a shell in the container; see ConnectionBase."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        chunks = None if in_data is None else iter([in_data[at : at + _CHUNK] for at in range(0, len(in_data), _CHUNK)])
        out: list[bytes] = []
        code, err = self._run((self.get_option("executable"), "-c", cmd), out.append, chunks)
        return code, b"".join(out), err

    def put_file(self, in_path: str, out_path: str) -> None:
        """Write a file of this machine into the container; see ConnectionBase."""
        super().put_file(in_path, out_path)
        source = Path(in_path)
        if not source.is_file():
            raise AnsibleFileNotFound(f"there is no file {in_path}")
        argv = ("/bin/sh", "-c", 'cat > "$1"', "sh", out_path)
        with source.open("rb") as file:
            code, err = self._run(argv, _ignore, _chunks(file))
        self._need(code, f"cannot write {out_path}", err)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Write a file of the container to this machine; see ConnectionBase."""
        super().fetch_file(in_path, out_path)
        with Path(out_path).open("wb") as file:
            code, err = self._run(("/bin/sh", "-c", 'cat < "$1"', "sh", in_path), file.write, None)
        self._need(code, f"cannot read {in_path}", err)

    def close(self) -> None:
        """Nothing stays open."""
        self._connected = False

    def _run(self, argv: tuple[str, ...], out: execution.Sink, chunks: Iterator[bytes] | None) -> tuple[int, bytes]:
        """Run a program; return its exit code and what it wrote to stderr."""
        self._connect()
        if self._access is None:
            raise AssertionError("_connect reads it")
        namespace, pod, container = (self.get_option(name) for name in ("namespace", "pod", "container"))
        err: list[bytes] = []
        program = execution.Program(namespace, pod, container, argv)
        try:
            code = execution.run(self._access, program, out, err.append, chunks)
        except Minik8sError as error:
            raise AnsibleConnectionFailure(f"pod {namespace}/{pod}: {error}") from error
        return code, b"".join(err)

    def _need(self, code: int, what: str, err: bytes) -> None:
        if code:
            where = f"pod {self.get_option('namespace')}/{self.get_option('pod')}"
            reason = err.decode(errors="replace").strip()[-_FAILED:] or f"exit code {code}"
            raise AnsibleError(f"{where}: {what}: {reason}")


def _ignore(_data: bytes) -> None:
    """Take output that is none."""


def _chunks(file: Any) -> Iterator[bytes]:
    return iter(partial(file.read, _CHUNK), b"")
