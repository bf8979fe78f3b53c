"""Random plans down to the node: its document as a plan foretells it is the one that the reconciler then compiles.

Rules, names, paths, files and containers alike, with everything random that a node is told of; the reconciler is the
real one, and so are the deciders of slices; the API and the node are in memory. ``MINIK8S_PLAN_SCENARIOS`` says how
many scenarios.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    DNS,
    ENDPOINT_SLICE,
    ENDPOINTS,
    HOST_GRANT,
    INGRESS,
    INGRESS_CLASS,
    KINDS,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_ADDRESS,
    SECRET,
    SERVICE,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.api.network.balancing import read_balancing
from minik8s_modules.api.network.dual_stack import DualStack
from minik8s_modules.api.network.load_balancers import by_age, decide_addresses, serving_nodes
from minik8s_modules.api.network.surroundings import World, machines_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.interception import OUTBOUND_PORTS
from minik8s_modules.api.pods.mutual_tls import MARK
from minik8s_modules.api.pods.sidecars import IMAGE as SIDECAR_IMAGE
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.controllers.network.endpoints_of_pods import has_endpoints
from minik8s_modules.controllers.network.endpointslices import (
    MANAGED_BY,
    MIRRORED,
    SELECTED,
    decide_families,
    decide_mirrors,
    is_mirrored,
)
from minik8s_modules.controllers.network.load_balancers import LoadBalancerController
from minik8s_modules.controllers.simulation.deciders import DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid
from minik8s_modules.controllers.storage.controllers import ClaimController, VolumeController
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.feeds.references import references
from minik8s_modules.reconcile.network.services import SERVICE_NAME, ZONE
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.simulated_storage import (
    STORAGE_KINDS,
    StorageKeeper,
    standing,
    storage_world,
)
from minik8s_modules.reconcile.planning.simulation import NETWORK_KINDS
from minik8s_modules.reconcile.pods.service_links import link_variables
from minik8s_modules.reconcile.values.values import DnsSettings, IngressSettings, OverlaySettings, Settings
from tests.integration.reconcile.conftest import ROOT
from tests.support.load.storms import Manager
from tests.unit.reconcile.loop.test_loop import NAME, Cluster, running, until
from tests.unit.reconcile.worlds import IMAGE

SCENARIOS = int(os.environ.get("MINIK8S_PLAN_SCENARIOS", "40"))
STORED = (STORAGE_CLASS, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM)
GENERATED = (
    SERVICE,
    ENDPOINTS,
    INGRESS_CLASS,
    HOST_GRANT,
    DNS,
    INGRESS,
    CONFIG_MAP,
    SECRET,
    *STORED,
    NETWORK_POLICY,
    POD,
)
"""In the order in which they are written: a pod has the variables of the Services that are there before it."""
FOLLOWED = {
    ENDPOINT_SLICE: "made of Endpoints and pods here, as the controllers do",
    NAMESPACE: "tests of its own",
    NODE: "its policies for drift have tests of their own",
}
SPACE, HOSTS = "default", ("shop.test", "api.test")
QUIET, PATIENCE_S = 15, 60.0
NEW = {placeholder_uid(SPACE, name): f"<{name}>" for name in ("a", "b", "c", "data", "more")}
NEW |= {placeholder_uid("", f"pvc-{placeholder_uid(SPACE, name)}"): "<volume>" for name in ("data", "more")}
"""What stands for uids that a plan cannot know."""
ADDRESS = re.compile(r"\b10[.-]244[.-]0[.-]\d+\b|\bfd00[:-]10[:-]244[:-]{2}[0-9a-f]+\b")
POOLS = ["203.0.113.50-203.0.113.51", "2001:db8::50-2001:db8::51"]
EXTERNAL = {"IPv4": "198.51.100.7", "IPv6": "2001:db8:7::7"}
Document = dict[str, dict[str, Any]]
SETTINGS = Settings(
    hmac_key=b"test key",
    dns=DnsSettings(listen="10.96.0.10"),
    ingress=IngressSettings(80, 443, str(ROOT / "templates")),
    dual_stack=DualStack("10.244.0.0/16", "fd00:10:244::/48"),
    service_cidr_ipv6="fd00:10:96::/112",
    balancing=read_balancing(
        Configuration({"load_balancer": {"default": "pool", "addresses": POOLS, "external_ips": True}}, "test"), ()
    ),
)
OVERLAYS = (
    SETTINGS,
    SETTINGS._replace(overlay=OverlaySettings("mk8s-vx0"), mtu=1450),
    SETTINGS._replace(overlay=OverlaySettings("mk8s-vx0", ipv6=True), mtu=1430),
    SETTINGS._replace(
        cluster_cidr="fd00:10:244::/48",
        service_cidr="fd00:10:96::/112",
        dual_stack=DualStack("", "fd00:10:244::/48"),
        overlay=OverlaySettings("mk8s-vx0", ipv6=True),
        dns=DnsSettings(listen="fd00:169:254:20::10"),
        ingress=IngressSettings(80, 443, str(ROOT / "templates"), ipv6=True),
        mtu=1430,
    ),
)
"""How nodes reach each other's pods: not at all, by tunnels, by tunnels over IPv6, and so of pods of IPv6 alone."""


def test_every_kind_that_a_node_is_told_of_is_generated():
    told = {"Pod", "ConfigMap", "Secret", "Namespace", "NetworkPolicy", "Node", *NETWORK_KINDS}
    assert {kind.kind for kind in (*GENERATED, *FOLLOWED)} == told | {kind.kind for kind in STORAGE_KINDS}
    assert not {kind.kind for kind in DECIDERS} & told, "workloads: test_random_rollouts.py"
    assert told <= {kind.kind for kind in KINDS.all()}


class Dice:
    """Random objects of one seed, each complete as the API stores it."""

    def __init__(self, seed: int, *, alone: bool = False) -> None:
        self._alone = alone
        self._dice = random.Random(seed)
        self._of_policies = random.Random(seed)
        """A row of numbers of its own: what else a seed makes is as it was before there were policies."""
        self._of_balancers = random.Random(seed)
        self._of_both = random.Random(seed)
        self._of_external = random.Random(seed)
        self._of_makers = random.Random(seed)
        self._of_hosts = random.Random(seed)
        self._of_resources = random.Random(seed)
        self._of_huge_pages = random.Random(seed)

    def _row(self, kind: Kind) -> random.Random:
        return self._of_policies if kind is NETWORK_POLICY else self._dice

    def some(self, kind: Kind) -> dict[str, JsonObject]:
        """Return a few objects of a kind, by name."""
        makers = {
            POD: (self._pod, ("a", "b", "c")), SERVICE: (self._service, ("web", "api", "outside")),
            ENDPOINTS: (self._endpoints, ("outside",)), CONFIG_MAP: (self._data, ("settings",)),
            SECRET: (self._data, ("keys",)), DNS: (self._dns, ("names",)), INGRESS: (self._ingress, ("paths",)),
            INGRESS_CLASS: (self._class, ("mine",)), HOST_GRANT: (self._grant, ("api.test",)),
            STORAGE_CLASS: (self._disk, ("disk",)), PERSISTENT_VOLUME: (self._volume, ("nfs", "local")),
            PERSISTENT_VOLUME_CLAIM: (self._claim, ("data", "more")), NETWORK_POLICY: (self._policy, ("wall", "door")),
        }  # fmt: skip
        make, names = makers[kind]
        return {name: self._whole(kind, name, make(name)) for name in names if self._row(kind).random() < 0.6}

    def kept(self, kind: Kind, found: dict[str, JsonObject]) -> dict[str, JsonObject]:
        """Return what is left of objects, as they are."""
        return {name: obj for name, obj in found.items() if self._row(kind).random() < 0.6}

    def _whole(self, kind: Kind, name: str, body: JsonObject) -> JsonObject:
        metadata = {"name": name, **({"namespace": SPACE} if kind.namespaced else {}), **body.pop("metadata", {})}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **body}

    def _pod(self, _name: str) -> JsonObject:
        pick = self._dice.choice
        app: JsonObject = {"name": "app", "image": IMAGE, "ports": [{"containerPort": 8080, "name": "http"}]}
        if pick([0, 1]):
            app["env"] = [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}]
        if self._of_hosts.random() < 0.5:
            hosts = {"name": "HOSTS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIPs"}}}
            app["env"] = [*app.get("env", []), hosts]
        claimed = [{"persistentVolumeClaim": {"claimName": name}} for name in ("data", "more")]
        sources: list[JsonObject] = [{"secret": {"secretName": "keys"}}, {"emptyDir": {}}, *claimed]
        volumes = pick([[], *([{"name": "v", **each}] for each in sources)])
        app["volumeMounts"] = [{"name": one["name"], "mountPath": "/v"} for one in volumes]
        spec = {"restartPolicy": "Always", "containers": [app], "volumes": volumes, "nodeName": NAME}
        if pick([0, 0, 1]):  # its rules are an entry of the node's
            mark = {"env": [dict(MARK)]} if volumes else {}  # no dice: those that come next stay as they are
            spec["containers"] = [app, {"name": "envoy", "image": SIDECAR_IMAGE, **mark}]
        if self._of_huge_pages.choice([0, 0, 1]):
            pages = {"memory": "8Mi", "hugepages-2Mi": self._of_huge_pages.choice(["2Mi", "4Mi"])}
            app["resources"] = {"limits": pages, "requests": pages}
            spec["volumes"] = [*volumes, {"name": "huge", "emptyDir": {"medium": "HugePages"}}]
        left_out = pick([{}, {"annotations": {OUTBOUND_PORTS: pick(["22", "443,22"])}}])
        labels = {"labels": {"app": pick(["web", "api", "none"])}, **left_out}
        amounts = {"cpu": "10m", "memory": self._of_resources.choice(["8Mi", "9Mi"])}
        own = self._of_resources.choice([{}, {}, {"resources": {"limits": amounts, "requests": amounts}}])
        return {"metadata": labels, "spec": spec | own | {"terminationGracePeriodSeconds": 0}}

    def _service(self, name: str) -> JsonObject:
        pick = self._dice.choice
        ports = [{"name": "p", "port": pick([80, 81]), "targetPort": pick(["http", 8080]), "protocol": "TCP"}]
        spec: JsonObject = {"type": "ClusterIP", "clusterIP": f"100.0.0.{len(name)}", "ports": ports}
        if name != "outside":
            spec |= {"selector": {"app": pick(["web", "api"])}} | pick(
                [{}, {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"]}]
            )
        spec |= pick([{}, {"sessionAffinity": "ClientIP"}])
        if "clusterIP" in spec and spec["clusterIP"] != "None":
            spec |= self._balanced() | self._of_families(spec["clusterIP"])
            known = [EXTERNAL["IPv6"]] if self._alone else [EXTERNAL[one] for one in spec.get("ipFamilies", ["IPv4"])]
            spec |= self._of_external.choice([{}, {"externalIPs": known}, {"externalIPs": known[-1:]}])
        return {"spec": spec | (_of_ipv6(str(spec.get("clusterIP", ""))) if self._alone else {})}

    def _of_families(self, address: str) -> JsonObject:
        second = f"fd00:10:96::{address.rpartition('.')[2]}"
        both = {"ipFamilies": ["IPv4", "IPv6"], "clusterIPs": [address, second]}
        alone = {"ipFamilies": ["IPv6"], "clusterIP": second, "clusterIPs": [second]}
        return self._of_both.choice([{}, both, both, alone])

    def _balanced(self) -> JsonObject:
        pick = self._of_balancers.choice
        chosen = pick([{}, {"loadBalancerClass": pick(["minik8s.io/nodes", "minik8s.io/pool", "example.com/lb"])}])
        asked = pick([{}, {}, {"loadBalancerIP": pick(["203.0.113.51", "203.0.113.99", "2001:db8::51"])}])
        local = pick([{}, {"externalTrafficPolicy": "Local", "healthCheckNodePort": pick([30090, 30091])}])
        balanced = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, **chosen, **asked, **local}
        return {**pick([{}, balanced]), **pick([{}, {"trafficDistribution": "PreferClose"}])}

    def _endpoints(self, _name: str) -> JsonObject:
        numbers = range(1, self._dice.randint(2, 4))
        addresses = [{"ip": f"{family}{number}"} for family in ("203.0.113.", "2001:db8::") for number in numbers]
        ports = [{"name": "p", "port": 9000, "protocol": "TCP"}]
        return {"subsets": [{"addresses": addresses, "ports": ports}]}

    def _data(self, _name: str) -> JsonObject:
        return {"data": {"k": self._dice.choice(["YQ==", "Yg=="])}}

    def _dns(self, _name: str) -> JsonObject:
        backend = {
            "service": {"name": self._dice.choice(["web", "api", "nobody"]), "port": self._dice.choice([80, 81])}
        }
        return {"spec": {"rules": [{"host": self._dice.choice(HOSTS), "paths": [{"path": "/d", "backend": backend}]}]}}

    def _ingress(self, _name: str) -> JsonObject:
        pick = self._dice.choice
        backend = {"service": {"name": pick(["web", "api", "nobody"]), "port": pick([{"number": 80}, {"name": "p"}])}}
        paths = [{"path": pick(["/", "/i"]), "pathType": pick(["Prefix", "Exact"]), "backend": backend}]
        classed = pick([{}, {"ingressClassName": "mine"}])
        return {"spec": {"rules": [{"host": pick(HOSTS), "http": {"paths": paths}}], **classed}}

    def _class(self, _name: str) -> JsonObject:
        return {"spec": {"controller": self._dice.choice(["minik8s.io/ingress", "example.com/other"])}}

    def _disk(self, _name: str) -> JsonObject:
        policy = self._dice.choice(["Retain", "Delete"])
        sizes = {"quota": "project"} if policy == "Retain" else {}
        if (
            self._of_makers.random() < 0.3
        ):  # the node is the NFS server, by its address (tests/unit/reconcile/worlds.py)
            parameters = {"server": "192.0.2.10", "share": "/srv/minik8s", **sizes}
            return {"provisioner": "minik8s.io/nfs", "reclaimPolicy": policy, "parameters": parameters}
        parameters = {"node": NAME, **sizes}
        return {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": policy, "parameters": parameters}

    def _volume(self, name: str) -> JsonObject:
        source = {"nfs": {"server": "192.0.2.1", "path": "/srv"}} if name == "nfs" else {"local": {"path": "/mnt"}}
        spec = {"capacity": {"storage": self._dice.choice(["1Gi", "3Gi"])}, "accessModes": ["ReadWriteOnce"]}
        return {"spec": {**spec, "storageClassName": "disk", **source}}

    def _claim(self, _name: str) -> JsonObject:
        asked = {"requests": {"storage": self._dice.choice(["1Gi", "2Gi"])}}
        named = self._dice.choice(["disk", "other"])
        return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": asked, "storageClassName": named}}

    def _policy(self, _name: str) -> JsonObject:
        pick, sample = self._of_policies.choice, self._of_policies.sample
        selectors: list[JsonObject] = [{}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "api"}}]
        peers = [{"podSelector": pick(selectors)}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.244.0.0/16"]}}]
        ports = [{"protocol": "TCP", "port": pick([8080, "http"])}, {"protocol": "UDP"}]
        rule = {field: sample(peers, pick([0, 1, 2])) for field in ("from", "to")}
        allowed = [{"ports": sample(ports, pick([0, 1, 2]))}]
        spec = {"podSelector": pick(selectors), "policyTypes": pick([["Ingress"], ["Egress"], ["Ingress", "Egress"]])}
        rules = {"ingress": ("from", rule["from"]), "egress": ("to", rule["to"])}
        found = {name: [allowed[0] | {field: each}] for name, (field, each) in rules.items() if pick([0, 1])}
        return {"spec": spec | found}

    def _grant(self, name: str) -> JsonObject:
        return {"spec": {"hosts": [name], "namespaces": self._dice.choice([[SPACE], ["other"]])}}


def _of_its_class(service: JsonObject, live: JsonObject) -> JsonObject:
    """Return an update as the API server takes it: a load balancer's class may not change."""
    declared, before = objects.spec(service), objects.spec(live)
    if not declared.get("type") == before.get("type") == "LoadBalancer":
        return service
    spec = {field: value for field, value in declared.items() if field != "loadBalancerClass"}
    named = before.get("loadBalancerClass")
    return {**service, "spec": {**spec, "loadBalancerClass": named} if named else spec}


class Applied:
    """A reconciler with one node, on which objects come and go."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.cluster = Cluster()
        self.cluster.node.images.append(SIDECAR_IMAGE)
        self.cluster.node.facts["huge_pages"] = {"2097152": 64 << 20}
        self.cluster.settings = settings
        cidr = "fd00:10:244:9::/64" if settings.dual_stack.alone else "10.244.9.0/24"
        self.cluster.api.create(NODE, {"metadata": {"name": "other"}, "spec": {"podCIDR": cidr}})
        addresses = [{"type": "InternalIP", "address": one} for one in ("192.0.2.19", "2001:db8::19")]
        self.cluster.api.patch(NODE, "other", "", {"status": {"addresses": addresses}}, subresource="status")
        self.cluster.start()
        balancers = partial(LoadBalancerController, balancing=SETTINGS.balancing)
        self.controllers = Manager(self.cluster.api, ClaimController, VolumeController, balancers)
        self.controllers.start()
        until(lambda: self.cluster.service is not None and self.cluster.service.loop.basis(NAME) is not None)
        until(lambda: set(self.cluster.node.documents) >= set(SECTIONS))
        self.cluster.api.patch(NODE, NAME, "", {"metadata": {"labels": {ZONE: "west"}}})
        self.standing: dict[Kind, dict[str, JsonObject]] = {kind: {} for kind in GENERATED}
        self._age = 0
        self._names: dict[str, str] = {}

    def plan(self, wanted: dict[Kind, dict[str, JsonObject]]) -> JsonObject:
        """Return what a plan says of the way to other objects."""
        body = [{"operation": verb, "object": obj} for verb, _, obj in self._ways(wanted)]
        assert self.cluster.service is not None
        return self.cluster.service.plan(parse_question({"objects": body, "nodes": []}))

    def _ways(self, wanted: dict[Kind, dict[str, JsonObject]]) -> Iterator[tuple[str, Kind, JsonObject]]:
        # what goes first: a pod that came while its Secret was still there would run
        for kind in GENERATED:
            for name, obj in self.standing[kind].items():
                if name not in wanted[kind]:
                    yield "delete", kind, self.cluster.api.get(kind, name, objects.namespace(obj))
        for kind in GENERATED:
            for name, obj in wanted[kind].items():
                before = self.standing[kind].get(name)
                if before is None:
                    # who is older has a host: what comes is younger, as a plan by the API server says, too
                    aged = {**obj["metadata"], "creationTimestamp": f"2026-01-01T00:0{self._age}:00Z"}
                    yield "create", kind, obj | {"metadata": aged}
                elif kind is not POD and kind not in STORED and before != obj:
                    live = self.cluster.api.get(kind, name, objects.namespace(obj))
                    new = _of_its_class(obj, live) if kind is SERVICE else obj
                    kept = {"status": live["status"]} if kind is SERVICE and live.get("status") else {}
                    yield "update", kind, new | kept | {"metadata": {**live["metadata"], **obj["metadata"]}}

    def apply(self, wanted: dict[Kind, dict[str, JsonObject]]) -> None:
        """Take the way."""
        api = self.cluster.api
        for verb, kind, given in [*self._ways(wanted)]:
            obj = copy.deepcopy(given)
            name, space = objects.name(obj), objects.namespace(obj)
            if verb == "create":
                api.create(kind, obj | ({"status": {"phase": "Pending"}} if kind is POD else {}))
                self.standing[kind][name] = wanted[kind][name]
            elif verb == "update":
                api.update(kind, obj)
                self.standing[kind][name] = wanted[kind][name]
            else:
                api.delete(kind, name, space, grace_s=0 if kind is POD else None)
                del self.standing[kind][name]
            if verb == "delete" and kind is POD:
                until(self._has_freed_addresses)
            if kind is SERVICE:
                until(self._has_balanced)
                self.play()
                until(self._hears_services)
            if kind in STORED:
                until(self._has_bound)
            if kind in (CONFIG_MAP, SECRET, *STORED):
                until(self._hears_references)
        self.play()
        self._age += 1

    def _has_freed_addresses(self) -> bool:
        """Return whether pods that are gone have no address any more: else those that come get others."""
        api = self.cluster.api
        there = {objects.uid(pod) for pod in api.list(POD, SPACE).items}
        return {objects.spec(claim)["podUID"] for claim in api.list(POD_ADDRESS).items} <= there

    def _has_balanced(self) -> bool:
        """Return whether the controller of load balancers has nothing to do, so that what comes next comes next."""
        api = self.cluster.api
        services, nodes = api.list(SERVICE).items, api.list(NODE).items
        slices = {
            name: api.list(ENDPOINT_SLICE, label_selector=f"{SERVICE_NAME}={name}").items for name in ("web", "api")
        }
        given = decide_addresses(
            by_age(services),
            World(machines_of(nodes)),
            lambda one: serving_nodes(slices.get(objects.name(one), [])),
            SETTINGS.balancing,
        )
        return all(
            (objects.dig(one, "status", "loadBalancer", "ingress") or [])
            == [*(given[key].points if (key := str(objects.key(one))) in given else ())]
            and not objects.is_deleting(one)
            for one in services
        )

    def _hears_services(self) -> bool:
        """Return whether the reconciler has heard of all Services: what starts now has their variables."""
        assert self.cluster.service is not None
        known = self.cluster.service.shard.objects.links(SPACE, {})
        return known == link_variables(self.cluster.api.list(SERVICE, SPACE).items)

    def _has_bound(self) -> bool:
        """Return whether the controllers of claims and volumes have nothing to do."""
        api = self.cluster.api
        world = storage_world(
            (
                {"apiVersion": kind.api_version, "kind": kind.kind, **one}
                for kind in STORED
                for one in api.list(kind).items
            ),
            api.list(NODE).items,  # one of them is the NFS server of classes
            api.list(POD, SPACE).items,
            SystemClock().now(),
        )
        before = standing(world)
        StorageKeeper(world).settle()
        return standing(world) == before

    def _hears_references(self) -> bool:
        """Return whether the reconciler has heard of all that pods refer to.

        ConfigMaps and Secrets come by watches of their own: a container that waits for the one would start with the
        other as it was.
        """
        assert self.cluster.service is not None
        api, known = self.cluster.api, self.cluster.service.shard.references
        kinds = (CONFIG_MAP, SECRET, PERSISTENT_VOLUME_CLAIM)
        there = {(kind.kind, objects.name(one)): one for kind in kinds for one in api.list(kind, SPACE).items}
        for pod in api.list(POD, SPACE).items:
            named = {(one.kind, one.name) for one in references(pod)} & there.keys()
            found = [each for kind in kinds for each in known.of(objects.uid(pod), kind.kind).values()]
            if sorted(map(str, found)) != sorted(str(there[one]) for one in named):
                return False
        return True

    def play(self) -> None:
        """Play the controllers of endpoints."""
        api = self.cluster.api
        pods = [pod for pod in api.list(POD, SPACE).items if not objects.is_deleting(pod)]
        slices = api.list(ENDPOINT_SLICE, SPACE).items
        services = {objects.name(one): one for one in api.list(SERVICE, SPACE).items}
        endpoints = {objects.name(one): one for one in api.list(ENDPOINTS, SPACE).items}
        for name in {objects.labels(one)[SERVICE_NAME] for one in slices} | services.keys() | endpoints.keys():
            own = [one for one in slices if objects.labels(one)[SERVICE_NAME] == name]
            selected = [one for one in own if objects.labels(one)[MANAGED_BY] == SELECTED]
            mirrored = [one for one in own if objects.labels(one)[MANAGED_BY] == MIRRORED]
            service = services.get(name)
            if service is not None and has_endpoints(service):
                wanted = objects.spec(service)["selector"].items()
                behind = [pod for pod in pods if wanted <= objects.labels(pod).items()]
                self._take(decide_families(service, behind, lambda _: "west", selected))
            else:
                for one in selected:
                    api.delete(ENDPOINT_SLICE, objects.name(one), SPACE)
            told = endpoints.get(name)
            self._take(decide_mirrors(told if is_mirrored(service, told) else None, mirrored))

    def _take(self, steps: Iterable[Any]) -> None:
        api = self.cluster.api
        for step in steps:
            if step.action == "create":
                api.create(ENDPOINT_SLICE, step.obj)
            elif step.action == "update":
                api.update(ENDPOINT_SLICE, step.obj)
            else:
                api.delete(ENDPOINT_SLICE, objects.name(step.obj), SPACE)

    def calm(self) -> None:
        """Wait until all pods run, or cannot, and the node has what follows from that."""
        end = time.monotonic() + PATIENCE_S
        quiet, last = 0, ""
        while quiet < QUIET:
            assert time.monotonic() < end, f"the cluster does not come to rest: {self._unsettled()}"
            self.play()
            now = json.dumps(self.document(), sort_keys=True) + str(len(self.cluster.node.calls))
            quiet, last = (quiet + 1 if now == last and self._settled() else 0), now
            time.sleep(0.02)

    def comes_to(self, foretold: Document, standing: Iterable[str]) -> tuple[Document, Document]:
        """Return what the node is told, once it is what was foretold and nothing is under way, or after a minute.

        The second one is what was foretold; both are ``comparable``.
        """
        end, pair = time.monotonic() + PATIENCE_S, self._beside(foretold, standing)
        while (pair[0] != pair[1] or not self._settled()) and time.monotonic() < end:
            self.play()
            time.sleep(0.02)
            pair = self._beside(foretold, standing)
        return pair

    def _beside(self, foretold: Document, standing: Iterable[str]) -> tuple[Document, Document]:
        found = self.document()
        # one that is seen before the node has answered is told to be left as it is, else it is not told of again
        kept = {key for key, one in found.get("containers", {}).items() if one["state"] == "kept"}
        return comparable(found, kept | {*standing}), comparable(foretold, kept | {*standing})

    def _settled(self) -> bool:
        return not self._unsettled()

    def _unsettled(self) -> dict[str, JsonObject]:
        """Return the status of each pod that neither runs nor waits for something that is named."""
        pods = self.cluster.api.list(POD, SPACE).items
        found = (one for one in pods if not (running(self.cluster, objects.name(one)) or self.waits(one)))
        return {objects.name(one): objects.status(one) for one in found}

    def waits(self, pod: JsonObject) -> bool:
        """Return whether something keeps a pod from running."""
        statuses = objects.status(pod).get("containerStatuses") or []
        said = [(one["state"].get("waiting") or {}).get("message") for one in statuses]
        return any(said)

    def document(self) -> Document:
        """Return what the node was told, pods called by their names."""
        found: Document = called(self.cluster.node.documents, self.names())
        return found

    def names(self) -> dict[str, str]:
        """Return what pods and claims are called, by their uids; folders have those of claims that are gone, too."""
        there = [one for kind in (POD, PERSISTENT_VOLUME_CLAIM) for one in self.cluster.api.list(kind, SPACE).items]
        self._names |= {objects.uid(one): f"<{objects.name(one)}>" for one in there}
        for one in self.cluster.api.list(PERSISTENT_VOLUME).items:
            if objects.name(one).startswith("pvc-"):
                self._names[objects.uid(one)] = "<volume>"
        claimed = [uid for uid, name in self._names.items() if name in {"<data>", "<more>"}]
        self._names |= {placeholder_uid("", f"pvc-{uid}"): "<volume>" for uid in claimed}
        return self._names


def comparable(found: Document, standing: Iterable[str]) -> Document:
    """Return a node's document as far as it makes a difference there.

    A container is made once: of one that is ``standing`` already, variables and mounts are told again as they come to
    be known, and change nothing. A Service port that nobody is behind has no rules, whether it has an entry or not.
    Which of several new pods asks first for an address is not promised: addresses are called by their pods.
    """
    known = {key: one.get("ip") or (one.get("ipv6") or {}).get("ip") for key, one in found.get("sandboxes", {}).items()}
    addresses = {ip: f"address of {key}" for key, ip in known.items() if ip}
    text = ADDRESS.sub(lambda match: _whose(match[0], addresses), json.dumps(found))
    found = json.loads(text)
    own = ("pod", "name", "type", "attempt", "image")
    containers = found.get("containers", {}).items()
    told = {key: {name: one.get(name) for name in own} if key in standing else one for key, one in containers}
    services = {key: one for key, one in found.get("services", {}).items() if one.get("endpoints") != []}
    whole = {section: dict(found.get(section, {})) for section in SECTIONS} | {"containers": told, "services": services}
    return whole | {section: in_order(whole[section]) for section in ("services", "dns")}


def _whose(text: str, addresses: Mapping[str, str]) -> str:
    """Return whose an address is; of a Pod's two addresses, the one follows from the other."""
    if not text.startswith("fd00"):
        return addresses.get(text.replace("-", "."), text)
    if text in addresses:
        return addresses[text]
    first = f"10.244.0.{int(re.split('[:-]', text)[-1], 16)}"
    return f"second {addresses[first]}" if first in addresses else text


def _of_ipv6(address: str) -> JsonObject:
    """Return what a Service has in a cluster of IPv6 alone, in the place of an address."""
    own = address if address in {"", "None"} else f"fd00:10:96::{address.rpartition('.')[2].rpartition(':')[2]}"
    return {"ipFamilies": ["IPv6"], **({"clusterIP": own, "clusterIPs": [own]} if own else {})}


def in_order(value: Any) -> Any:
    """Return the value with each list in it sorted, as those are whose items begin with addresses."""
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    return sorted(map(in_order, value), key=json.dumps) if isinstance(value, list) else value


def called(value: Any, names: dict[str, str]) -> Any:
    """Return the value with uids replaced by names."""
    text = json.dumps(value)
    for uid, name in sorted(names.items(), reverse=True):  # one uid may be the beginning of another
        text = text.replace(uid, name)
    return json.loads(text)


@pytest.mark.parametrize("provisioner", ["minik8s.io/nfs", "minik8s.io/hostpath"])
def test_what_comes_next_waits_for_the_volume_of_a_claim(provisioner: str):
    dice, applied = Dice(0), Applied()
    try:
        applied.controllers.stop()
        found = (dice._disk("disk") for _ in range(100))
        body = next(one for one in found if one["provisioner"] == provisioner)
        applied.cluster.api.create(STORAGE_CLASS, dice._whole(STORAGE_CLASS, "disk", body))
        assert applied._has_bound()
        claim = dice._whole(PERSISTENT_VOLUME_CLAIM, "data", dice._claim("data"))
        claim["spec"]["storageClassName"] = "disk"
        applied.cluster.api.create(PERSISTENT_VOLUME_CLAIM, claim | {"status": {"phase": "Pending"}})
        assert not applied._has_bound()
    finally:
        applied.cluster.stop()


@pytest.mark.parametrize(
    ("settings", "ends"),
    list(
        zip(
            OVERLAYS,
            [None, ("192.0.2.10", "192.0.2.19"), *[("2001:db8::10", "2001:db8::19")] * 2],
            strict=True,
        )
    ),
)
def test_a_node_is_told_of_the_other_one_by_the_family_of_tunnels(
    settings: Settings, ends: tuple[str, str] | None
) -> None:
    applied = Applied(settings)
    try:
        overlay = applied.document()["network"]["pod-network"].get("overlay")
        assert (overlay and (overlay["address"], overlay["peers"]["other"]["address"])) == ends
    finally:
        applied.controllers.stop()
        applied.cluster.stop()


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_a_node_is_told_what_a_plan_foretells(seed: int):
    settings = OVERLAYS[seed % len(OVERLAYS)]
    dice, applied = Dice(seed, alone=settings.dual_stack.alone), Applied(settings)
    try:
        applied.apply({kind: dice.some(kind) for kind in GENERATED})
        applied.calm()
        wanted = {kind: dice.kept(kind, applied.standing[kind]) | dice.some(kind) for kind in GENERATED}
        wanted[POD] |= {name: pod for name, pod in applied.standing[POD].items() if name in wanted[POD]}
        names = applied.names() | NEW
        before = applied.document()
        answer = applied.plan(wanted)
        assert NAME in answer["nodes"], answer["messages"]
        foretold = {section: dict(before.get(section, {})) for section in SECTIONS}
        for section, diff in called(answer["nodes"][NAME]["diff"], names).items():
            assert {key: before[section].get(key) for key in diff["before"]} == diff["before"]
            foretold[section] |= diff["after"]
            foretold[section] = {key: entry for key, entry in foretold[section].items() if entry is not None}
        applied.apply(wanted)
        found, expected = applied.comes_to(foretold, before["containers"])
        for section in SECTIONS:
            assert found[section] == expected[section], f"{section}; {answer['messages']}"
    finally:
        applied.controllers.stop()
        applied.cluster.stop()
