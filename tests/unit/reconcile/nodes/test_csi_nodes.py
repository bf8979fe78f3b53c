"""What a node's drivers say of it, as CSINode and Node have it."""

from __future__ import annotations

from minik8s_modules.api.kinds import CSI_NODE, NODE
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.nodes import csi_nodes

SAID = {"node_id": "i-1", "max_volumes": 3, "topology": {"zone": "east", "rack": "r1"}}


def written(api: FakeApi, drivers: csi_nodes.Drivers) -> list[object]:
    csi_nodes.write(api, api.get(NODE, "n1"), drivers)
    return list(api.get(CSI_NODE, "n1")["spec"]["drivers"])


def test_drivers_come_change_and_go():
    api = FakeApi()
    api.create(NODE, {"metadata": {"name": "n1", "uid": "u1"}})
    assert written(api, {}) == []
    row = {"name": "d.example.com", "nodeID": "i-1", "topologyKeys": ["rack", "zone"], "allocatable": {"count": 3}}
    assert written(api, {"d.example.com": SAID}) == [row]
    node = api.get(NODE, "n1")
    assert {"zone": "east", "rack": "r1"}.items() <= node["metadata"]["labels"].items()
    assert node["metadata"]["annotations"][csi_nodes.NODE_IDS] == '{"d.example.com":"i-1"}'
    (owner,) = api.get(CSI_NODE, "n1")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", "n1")
    moved = {"d.example.com": {**SAID, "node_id": "i-2", "max_volumes": 0}}
    assert written(api, moved) == [{"name": "d.example.com", "nodeID": "i-2", "topologyKeys": ["rack", "zone"]}]
    assert written(api, {}) == []
    assert csi_nodes.NODE_IDS not in (api.get(NODE, "n1")["metadata"].get("annotations") or {})


def test_a_limit_that_no_field_holds_is_the_largest():
    assert csi_nodes.rows({"d.example.com": {**SAID, "max_volumes": 2**40}})[0]["allocatable"] == {"count": 2**31 - 1}


def test_what_is_so_is_not_written_again():
    api = FakeApi()
    api.create(NODE, {"metadata": {"name": "n1", "uid": "u1"}})
    written(api, {"d.example.com": SAID})
    before = [api.get(kind, "n1")["metadata"]["resourceVersion"] for kind in (NODE, CSI_NODE)]
    written(api, {"d.example.com": SAID})
    assert [api.get(kind, "n1")["metadata"]["resourceVersion"] for kind in (NODE, CSI_NODE)] == before
