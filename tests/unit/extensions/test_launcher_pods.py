"""The launcher's pod of an instance: containers, rights, memory, volumes; and what the launcher refuses."""

from __future__ import annotations

import base64
import copy
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import parse
from minik8s_virtual_machines.pods import Settings, launcher_pod, launcher_secrets, refused
from minik8s_virtual_machines.pods.resources import overhead
from minik8s_virtual_machines.pods.settings import KVM, TUN

MI = 1 << 20
BASE: JsonObject = {
    "metadata": {"name": "vm", "namespace": "ns", "uid": "uid-1", "labels": {"app": "web"}},
    "spec": {
        "terminationGracePeriodSeconds": 30,
        "domain": {
            "machine": {"type": "q35"},
            "cpu": {"cores": 2},
            "memory": {"guest": "128Mi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 80}]}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
    },
}


def vmi(*volumes: JsonObject, machine: str = "q35", **domain: Any) -> JsonObject:
    made = copy.deepcopy(BASE)
    made["spec"]["domain"] |= {"machine": {"type": machine}, **domain}
    if machine == "uml":
        made["spec"]["domain"].pop("cpu")
    made["spec"]["volumes"] += volumes
    made["spec"]["domain"]["devices"]["disks"] += [{"name": each["name"], "disk": {}} for each in volumes]
    return made


def compute(pod: JsonObject) -> JsonObject:
    (found,) = pod["spec"]["containers"]
    return dict(found)


def told(pod: JsonObject) -> JsonObject:
    return dict(json.loads(compute(pod)["env"][0]["value"]))


def test_only_the_short_first_step_has_rights():
    pod = launcher_pod(vmi(), Settings())
    init = {each["name"]: each["securityContext"] for each in pod["spec"]["initContainers"]}
    assert list(init) == ["guest-setup", "volumeroot-init"]
    assert init["guest-setup"]["capabilities"]["add"] == ["NET_ADMIN", "CHOWN", "DAC_OVERRIDE", "FOWNER"]
    for context in (init["volumeroot-init"], compute(pod)["securityContext"]):
        assert (context["runAsUser"], context["capabilities"]) == (107, {"drop": ["ALL"]})
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_the_first_step_imports_nothing_that_only_a_running_guest_needs():
    said = "import sys, minik8s_virtual_machines.launcher.main; print(*sys.modules)"
    argv, path = [sys.executable, "-c", said], os.pathsep.join(sys.path)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    loaded = {*done.stdout.split()}
    assert "minik8s_virtual_machines.launcher.prepare" in loaded
    assert not loaded & {"asyncio", "minik8s_virtual_machines.launcher.running"}


def test_a_container_disk_needs_no_program_of_its_image():
    pod = launcher_pod(vmi(), Settings())
    setup, copying = pod["spec"]["initContainers"]
    assert copying["image"] == "disk:1"
    assert setup["command"][:2] == ["/bin/busybox", "sh"]
    assert "cp /bin/busybox /init/busybox && exec /usr/bin/virt-launcher prepare" in setup["command"][3]
    assert {"name": "binaries", "mountPath": "/init"} in setup["volumeMounts"]
    assert copying["command"][0] == "/init/busybox"
    assert {each["name"] for each in copying["volumeMounts"]} == {"binaries", "ephemeral-disks"}


def test_memory_is_the_guests_and_what_its_machine_needs():
    asked = compute(launcher_pod(vmi(), Settings()))["resources"]
    # launcher 30, page tables 1/4, QEMU 30, I/O 8, two CPUs 16, video 16, TCG 64
    assert asked["requests"] == {"memory": str((128 + 164) * MI + MI // 4), "cpu": "200m"}
    assert "limits" not in asked
    limited = vmi(resources={"requests": {"memory": "100Mi", "cpu": "1"}, "limits": {"memory": "200Mi"}})
    asked = compute(launcher_pod(limited, Settings()))["resources"]
    assert asked["requests"] == {"memory": str(264 * MI + MI // 4), "cpu": "1"}
    assert asked["limits"] == {"memory": str(364 * MI + MI // 4)}


def test_a_user_mode_linux_needs_little_beside_its_guests_memory():
    assert overhead(parse(vmi(machine="uml")), Settings()) == 38 * MI + MI // 4
    pod = launcher_pod(vmi(machine="uml"), Settings())
    room = next(each for each in pod["spec"]["volumes"] if each["name"] == "run")
    assert room["emptyDir"] == {"medium": "Memory", "sizeLimit": str(160 * MI)}  # its memory is a file there


def test_counted_devices_are_asked_for_where_the_administrator_says_so():
    settings = Settings.from_mapping({"devices": [TUN, KVM]})
    pod = launcher_pod(vmi(), settings)
    assert compute(pod)["resources"]["limits"] == {TUN: "1", KVM: "1"}
    assert not any("hostPath" in each for each in pod["spec"]["volumes"])
    assert pod["spec"]["initContainers"][0]["resources"]["limits"] == {TUN: "1"}
    assert compute(launcher_pod(vmi(machine="uml"), settings))["resources"]["limits"] == {TUN: "1"}
    with pytest.raises(ConfigurationError, match=r"launcher\.devices: nvidia\.com/gpu is not used"):
        Settings.from_mapping({"devices": ["nvidia.com/gpu"]})
    with pytest.raises(ConfigurationError, match=r"launcher\.imgae is not known"):
        Settings.from_mapping({"imgae": "x"})


def counting(name: str, kvm: str | None) -> JsonObject:
    amounts = {"cpu": "2"} | ({KVM: kvm} if kvm is not None else {})
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": {"allocatable": amounts}}


def test_a_pc_gets_the_processors_virtualization_where_a_node_counts_it():
    def asks(settings: Settings, of: JsonObject, *nodes: JsonObject) -> bool:
        pod = launcher_pod(of, settings.on_nodes(of, nodes))
        return KVM in compute(pod)["resources"].get("limits", {})

    has, none, used_up = counting("has", "110"), counting("none", None), counting("gone", "0")
    assert asks(Settings(), vmi(), none, has)
    assert not asks(Settings(), vmi(), none, used_up)
    assert not asks(Settings(), vmi(machine="uml"), has)
    placed = vmi()
    placed["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "none"}
    assert not asks(Settings(), placed, none, has), "it may not run where the device is"
    for spec in ({"unschedulable": True}, {"taints": [{"key": "lab", "effect": "NoSchedule"}]},
                 {"taints": [{"key": "lab", "effect": "NoExecute"}]}):  # fmt: skip
        shut, tolerant = {**has, "spec": spec}, vmi()
        assert not asks(Settings(), vmi(), none, shut), "it would wait for a node that does not take it"
        assert asks(Settings(), vmi(), shut, has)
        tolerant["spec"]["tolerations"] = [{"operator": "Exists"}]
        assert asks(Settings(), tolerant, none, shut)
    assert asks(Settings(), vmi(), {**has, "spec": {"taints": [{"key": "lab", "effect": "PreferNoSchedule"}]}})
    strict = Settings.from_mapping({"useEmulation": False})
    assert asks(strict, vmi(), none), "it waits for a node that has it"
    with pytest.raises(ConfigurationError, match=r"launcher\.useEmulation must be true or false, not 'no'"):
        Settings.from_mapping({"useEmulation": "no"})


def test_user_data_is_in_secrets_alone():
    volume = {
        "name": "seed",
        "cloudInitNoCloud": {"userData": "password: s3cret", "networkDataSecretRef": {"name": "n"}},
    }
    of = vmi(volume)
    (secret,) = launcher_secrets(of)
    assert secret["metadata"] == {"name": "vm-seed-cloud-init", "namespace": "ns"}
    assert base64.b64decode(secret["data"]["userdata"]) == b"password: s3cret"
    pod = launcher_pod(of, Settings())
    assert "s3cret" not in json.dumps(pod)
    mounted = {each["name"]: each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each}
    assert mounted == {"volume-seed-user": "vm-seed-cloud-init", "volume-seed-network": "n"}


def test_claims_and_folders_of_the_node_are_mounted_where_the_launcher_looks():
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    host = {"name": "host", "hostDisk": {"path": "/srv/disks/a.img", "type": "DiskOrCreate", "capacity": "1Gi"}}
    pod = launcher_pod(vmi(claim, host), Settings(), {"c": "2Gi"})
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["volume-data"]["persistentVolumeClaim"] == {"claimName": "c"}
    assert volumes["volume-host"]["hostPath"] == {"path": "/srv/disks", "type": "DirectoryOrCreate"}
    assert told(pod)["spec"]["volumes"][1]["persistentVolumeClaim"]["capacity"] == "2Gi"


def test_what_a_spec_says_of_scheduling_and_probes_is_the_pods():
    of = vmi()
    of["spec"] |= {
        "nodeSelector": {"a": "b"},
        "hostname": "greta",
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3},
        "livenessProbe": {"guestAgentPing": {}, "failureThreshold": 9},
    }
    pod = launcher_pod(of, Settings())
    assert (pod["spec"]["nodeSelector"], pod["spec"]["hostname"]) == ({"a": "b"}, "greta")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 45
    assert compute(pod)["readinessProbe"] == {"httpGet": {"port": 80}, "periodSeconds": 3}
    agent = {"exec": {"command": ["/usr/bin/vmctl", "agent-ready"]}, "failureThreshold": 9}
    assert compute(pod)["livenessProbe"] == agent
    assert compute(pod)["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert pod["metadata"]["labels"]["app"] == "web"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices": {"interfaces": [{"name": "default", "bridge": {}}]}}, "only the binding masquerade is possible"),
        ({"devices": {"disks": [{"name": "root", "lun": {}}]}}, "use disk or cdrom"),
        ({"devices": {"disks": [{"name": "root", "disk": {"bus": "usb"}}]}}, "bus usb is not possible"),
        ({"devices": {"disks": [{"name": "root", "cdrom": {"bus": "virtio"}}]}}, "virtio has no CD-ROM drive"),
        ({"devices": {"disks": [{"name": "root", "disk": {}, "serial": "a,b"}]}}, "serial: at most 36 letters"),
        ({"cpu": {"cores": 65}}, "65 CPUs; 1 to 64 are possible"),
        ({"cpu": {"model": "host,+x"}}, "holds a character that no model's name has"),
        ({"memory": {"guest": "much"}}, "'much' is not an amount of bytes"),
    ],
)
def test_what_the_launcher_does_not_do_is_refused_by_name(changes: JsonObject, said: str):
    of = vmi()
    of["spec"]["domain"] |= changes
    assert any(said in each for each in refused(of)) or said in str(refused_by_parsing(of))


def refused_by_parsing(of: JsonObject) -> str:
    """Return why the launcher itself refuses it; its pod then is one that says so."""
    pod = launcher_pod(of, Settings())
    assert "initContainers" not in pod["spec"]
    with pytest.raises(Unusable) as raised:
        parse(of)
    return str(raised.value)


@pytest.mark.parametrize(
    "argument",
    ["ubdb=/etc/shadow", "hostfs=/", "con1=port:9000", "vec1:transport=raw,ifname=eth0", "mem=9G", "initrd=/x"],
)
def test_parameters_of_a_user_mode_linux_that_open_the_pods_files_are_refused(argument: str):
    of = vmi(machine="uml", firmware={"kernelBoot": {"kernelArgs": f"quiet {argument}"}})
    assert any(f"{argument} is not the guest's with machine uml" in each for each in refused(of))
    assert not refused(vmi(machine="uml", firmware={"kernelBoot": {"kernelArgs": "quiet root=/dev/ubda1"}}))


def test_a_machine_that_cannot_be_made_gets_a_pod_that_says_why():
    of = vmi(machine="uml", cpu={"cores": 4})
    of["spec"]["domain"]["cpu"] = {"cores": 4}
    pod = launcher_pod(of, Settings())
    assert compute(pod)["command"] == ["/usr/bin/virt-launcher"]
    assert "machine uml has one CPU" in refused_by_parsing(of)
