"""Inventory of a running cluster: its nodes, and its pods, in which tasks run by the connection ``minik8s_pod``.

Two lists are asked of the API server (or taken from Ansible's inventory cache); ``plugins/cluster/hosts.py`` turns
them into hosts. What labels and annotations say is data: Ansible templates none of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

try:
    from minik8s_modules.plugins.cluster import hosts
except ModuleNotFoundError:  # ansible-playbook in a checkout that is not installed
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from minik8s_modules.plugins.cluster import hosts
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import find_kubeconfig

DOCUMENTATION = r"""
name: minik8s
short_description: Nodes and pods of a minik8s cluster as hosts
description:
  - Reads nodes and pods from the API server. The file's name must end in C(minik8s.yml) or C(minik8s.yaml).
  - A node is a host of its name, in the groups C(minik8s_nodes), C(node_<node>) and C(label_<key>_<value>). Its
    C(ansible_host) is its internal address; how to log in there is yours to say.
  - A pod is a host C(<pod>.<namespace>.pod), in the groups C(minik8s_pods), C(namespace_<namespace>), C(node_<node>)
    and C(label_<key>_<value>). Its connection is C(minik8s_pod), which runs tasks in the pod.
  - Characters that group names must not have become C(_), by Ansible's setting C(TRANSFORM_INVALID_GROUP_CHARS).
  - Both have the variables C(minik8s_kind), C(minik8s_node), C(minik8s_ready), C(minik8s_uid), C(minik8s_labels) and
    C(minik8s_annotations); nodes also C(minik8s_addresses), C(minik8s_unschedulable), C(minik8s_taints) and
    C(minik8s_allocatable); pods also C(minik8s_pod), C(minik8s_namespace), C(minik8s_container), C(minik8s_containers),
    C(minik8s_ip), C(minik8s_phase) and C(minik8s_owner).
author: the minik8s authors
extends_documentation_fragment:
  - constructed
  - inventory_cache
options:
  plugin:
    description: Marks a file as one for this plugin.
    type: str
    required: true
    choices: [minik8s]
  kubeconfig:
    description: Whom to ask, and as whom. The default is C(~/.kube/config), then the cluster's own admin file.
    type: path
    env:
      - name: KUBECONFIG
  context:
    description: Context of the kubeconfig. The default is its current one.
    type: str
    default: ""
  nodes:
    description: Whether nodes are hosts.
    type: bool
    default: true
  pods:
    description: Whether pods are hosts.
    type: bool
    default: true
  namespaces:
    description: Namespaces whose pods are hosts. The default is all.
    type: list
    elements: str
    default: []
  label_selector:
    description: Which pods, by labels, as in C(app=web,tier!=test).
    type: str
    default: ""
  field_selector:
    description: Which pods, by fields. Only running ones can be reached.
    type: str
    default: status.phase=Running
"""

EXAMPLES = r"""
# inventory/minik8s.yml: everything. Try: ansible-inventory -i inventory/minik8s.yml --graph
plugin: minik8s

---
# The web servers of two namespaces, grouped by version and by readiness, looked up once in ten minutes
plugin: minik8s
nodes: false
namespaces: [shop, blog]
label_selector: app=web
keyed_groups:
  - key: minik8s_labels['version'] | default('none')
    prefix: version
groups:
  unready: not minik8s_ready
compose:
  minik8s_container: "'app'"
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /tmp/inventory-cache
cache_timeout: 600

---
# Nodes alone, reached as a user of yours
plugin: minik8s
pods: false
compose:
  ansible_user: "'admin'"
"""


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]  # ansible is not typed
    """See the module's documentation."""

    NAME = "minik8s"

    def verify_file(self, path: str) -> bool:
        """Return whether the file's name is one of ours."""
        return super().verify_file(path) and path.endswith(("minik8s.yml", "minik8s.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:  # noqa: FBT001, FBT002  Ansible's signature
        """Fill the inventory from the cache or the API server.

        Raises:
            AnsibleParserError: the cluster could not be asked, or an expression of the file failed.
        """
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        cached = self.get_option("cache")
        if cached:
            self.load_cache_plugin()
        key = self.get_cache_key(path)
        found = self._cache.get(key) if cached and cache else None
        if found is None:
            found = self._ask(path)
            if cached:
                self._cache[key] = found
        for host in (*hosts.node_hosts(found["nodes"]), *hosts.pod_hosts(found["pods"])):
            self._add(host)

    def _ask(self, path: str) -> dict[str, list[Any]]:
        nodes: list[Any] = []
        pods: list[Any] = []
        try:
            client = ApiClient.from_kubeconfig(self._kubeconfig(), context=self.get_option("context"))
            if self.get_option("nodes"):
                nodes = client.list(NODE).items
            if self.get_option("pods"):
                selectors = (self.get_option("label_selector"), self.get_option("field_selector"))
                for namespace in self.get_option("namespaces") or [""]:
                    pods += client.list(POD, namespace, *selectors).items
        except Minik8sError as error:
            raise AnsibleParserError(f"{path}: {error}") from error
        return {"nodes": nodes, "pods": pods}

    def _kubeconfig(self) -> Path:
        return find_kubeconfig(self.get_option("kubeconfig") or "")

    def _add(self, host: hosts.Host) -> None:
        variables = dict(host.variables)
        if variables["minik8s_kind"] == "Pod":
            variables["minik8s_kubeconfig"] = str(self._kubeconfig())
            variables["minik8s_context"] = self.get_option("context")
        name = self.inventory.add_host(host.name)
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        for group in host.groups:
            self.inventory.add_child(self.inventory.add_group(self._sanitize_group_name(group)), name)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)
