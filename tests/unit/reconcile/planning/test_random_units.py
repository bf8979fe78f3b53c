"""Random Pods that become units: what a plan shows of each is what its host is given, or both refuse it."""

from __future__ import annotations

import base64
import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.units import GROUP, HOSTS, USER, USERS, DeclaredUnit, NoUnit, declared_unit
from minik8s_modules.module_utils.minik8s.units.folders import folder_of, home_of
from minik8s_modules.module_utils.minik8s.units.texts import unit_name
from minik8s_modules.reconcile.planning.simulated_services import Cluster
from minik8s_modules.reconcile.planning.virtual_pods import on_virtual_nodes, unit_plans
from tests.unit.virtual.systemd_stand_in import USER as OURS
from tests.unit.virtual.systemd_stand_in import Machines

WORDS = ["echo", "it's", "$(A)", "$$(A)", "$(NONE)", '"', "%n", "a\nb", "\\", "", "ä", ";", "-x"]
USERS_HERE = [OURS, "daemon"]
NODE: JsonObject = {
    "metadata": {
        "name": "web",
        "labels": {"type": "virtual-kubelet", GROUP: "web"},
        "annotations": {USERS: ",".join(USERS_HERE)},
    }
}


def pod(dice: random.Random) -> JsonObject:
    container: JsonObject = {"name": "app", "image": dice.choice(["minik8s/host"] * 6 + ["alpine"])}
    if dice.random() < 0.95:
        container["command"] = ["printf", *dice.choices(WORDS, k=dice.randint(0, 4))]
    container["args"] = dice.choices(WORDS, k=dice.randint(0, 3))
    container["env"] = [{"name": name, "value": dice.choice(WORDS)} for name in dice.sample(["A", "B", "C_1"], 2)]
    if dice.random() < 0.1:
        dice.choice(container["env"])["value"] = "a\0b"
    limits = {"cpu": dice.choice(["1m", "150m", "2"]), "memory": dice.choice(["1Mi", "1G"])}
    container["resources"] = {"limits": dict(dice.sample([*limits.items()], dice.randint(0, 2)))}
    if dice.random() < 0.3:
        container["workingDir"] = dice.choice(["/srv", "/a %n b", "srv", "/a\nb"])
    annotations = {USER: dice.choice([*USERS_HERE, "nobody"])} if dice.random() < 0.5 else {}
    if dice.random() < 0.3:
        annotations[HOSTS] = dice.choice(["web1", "web1,web2"])
    spec = {
        "nodeName": "web",
        "containers": [container],
        "restartPolicy": dice.choice(["Always", "OnFailure", "Never"]),
    }
    name, uid = f"p{dice.randint(0, 10**9)}", str(uuid.UUID(int=dice.getrandbits(128)))
    metadata = {"namespace": "shop", "name": name, "uid": uid, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def asked_of(made: JsonObject) -> DeclaredUnit | str:
    """Return what the provider makes of a Pod, or why it refuses it."""
    try:
        return declared_unit(made, USERS_HERE)
    except NoUnit as error:
        return str(error)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_plan_shows_is_what_a_host_is_given(seed: int, tmp_path: Path) -> None:
    made = pod(random.Random(seed))
    uid, key = made["metadata"]["uid"], f"shop/{made['metadata']['name']}"
    plans = unit_plans({uid: made}, Cluster((), (NODE,), ()))
    notes = [note.text for note in on_virtual_nodes({uid: made}, [NODE])]
    asked = asked_of(made)
    if not isinstance(asked, DeclaredUnit):
        assert (plans, notes) == ({}, [f"Pod {key}: node web does not take it: {asked}"])
        return
    assert notes == []
    shown = plans["web"]["diff"]["units"]["after"][key]
    machines = Machines(tmp_path)
    blob: dict[str, Any] = {uid: {"environment": asked.environment}}
    result = machines.call(
        "web1",
        {"node": "web", "entries": {uid: asked.entry}, "blob": base64.b64encode(json.dumps(blob).encode()).decode()},
    )
    assert [step["action"] for step in result["steps"]] == [step["action"] for step in plans["web"]["steps"]]
    folder = tmp_path / "web1" / "state" / "pods" / uid
    assert (folder / "program").read_text() == shown["program"]
    written = (tmp_path / "web1" / "units" / unit_name(uid)).read_text()
    assert written.replace(str(folder), folder_of(home_of("web"), "UID")) == shown["unit"]
    gone = unit_plans({uid: None}, Cluster((made,), (NODE,), ()))["web"]
    assert [step["action"] for step in gone["steps"]] == ["stop", "remove"]
    assert machines.call("web1", {"node": "web", "entries": {}})["steps"] == [
        {"action": "stop", "key": uid, "detail": unit_name(uid)}
    ]
    assert machines.call("web1", {"node": "web", "entries": {}})["steps"][0]["action"] == "remove"
