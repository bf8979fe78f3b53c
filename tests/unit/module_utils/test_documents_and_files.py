"""Digests, deltas, files, paths, tokens, mounts and observations: the small parts all sections stand on."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import digests, documents, fencing, files, paths
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault, PassFault
from minik8s_modules.module_utils.minik8s.core.lock_holder import pids_of
from minik8s_modules.module_utils.minik8s.core.observations import observation_from_inspect
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for
from minik8s_modules.module_utils.minik8s.network import attachment, netfilter
from minik8s_modules.module_utils.minik8s.volumes import mounts, project_quotas


def test_the_digest_is_what_the_contract_says() -> None:
    entry = {"b": "ü", "a": [1, None]}
    inner = hashlib.sha256('{"a":[1,null],"b":"ü"}'.encode()).hexdigest()
    assert digests.entry_digest(entry) == inner
    lines = f"k1\0{inner}\nk2\0{inner}\n"
    assert digests.section_digest({"k2": entry, "k1": entry}) == hashlib.sha256(lines.encode()).hexdigest()
    assert digests.section_digest({}) == digests.EMPTY_DIGEST == hashlib.sha256(b"").hexdigest()


def test_a_delta_deletes_then_sets_and_leaves_its_base_alone() -> None:
    base = {"a": {"x": 1}, "b": {"x": 2}}
    made = documents.apply_delta(base, {"c": {"x": 3}, "a": {"x": 4}}, ["b", "missing"])
    assert made == {"a": {"x": 4}, "c": {"x": 3}}
    assert base == {"a": {"x": 1}, "b": {"x": 2}}


def test_a_document_comes_back_and_a_broken_one_is_empty(tmp_path: Path) -> None:
    digest = documents.save_document(str(tmp_path), "volumes", "n1", {"k": {"x": 1}})
    assert documents.load_document(str(tmp_path), "volumes") == documents.Document(digest, {"k": {"x": 1}})
    assert documents.stored_node(str(tmp_path), "volumes") == "n1"
    for broken in (b"", b"{", b"[]", b'{"entries": 3}', b"\xff"):
        (tmp_path / "documents" / "volumes.json").write_bytes(broken)
        assert documents.load_document(str(tmp_path), "volumes").entries == {}


def test_the_leftover_of_a_killed_write_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(files.temporary_for(path)).write_text("half")
    files.write_atomically(path, b"whole", 0o640)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert Path(path).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "x" * 254])
def test_a_name_that_is_no_component_is_refused(name: str) -> None:
    with pytest.raises(KeyFault):
        paths.volume_path("/state", "/run", name, "volume", "emptyDir")
    with pytest.raises(KeyFault):
        paths.volume_path("/state", "/run", "uid", name, "secret")


def test_volumes_of_secrets_lie_in_the_run_directory() -> None:
    assert paths.volume_path("/s", "/r", "u", "v", "secret") == "/r/secrets/.volumes/u/v"
    assert paths.volume_path("/s", "/r", "u", "v", "configMap") == "/s/pods/u/volumes/v"


def test_an_older_token_is_fenced_and_a_newer_one_recorded(tmp_path: Path) -> None:
    context = context_for(Request("n", state_dir=str(tmp_path)))
    assert not fencing.is_fenced(str(tmp_path), [1, 1])
    fencing.record_token(context.state_dir, [1, 5], context.checkpoint)
    assert fencing.is_fenced(str(tmp_path), [1, 4])
    assert fencing.is_fenced(str(tmp_path), [0, 9])
    assert not fencing.is_fenced(str(tmp_path), [1, 5])
    assert not fencing.is_fenced(str(tmp_path), [2, 0])
    assert not fencing.is_fenced(str(tmp_path), None)


def test_the_lock_lets_one_writer_in_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def second() -> None:
        with fencing.hold_node(str(tmp_path)):
            order.append("second")

    with fencing.hold_node(str(tmp_path)):
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.1)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    monkeypatch.setattr(fencing, "WAIT_S", 0.05)
    again = fencing.hold_node(str(tmp_path))
    with fencing.hold_node(str(tmp_path)), pytest.raises(PassFault, match="held by another run") as result:
        again.__enter__()
    assert f"process {os.getpid()} (" in str(result.value)
    assert f"if it hangs, end it on this node: kill {os.getpid()};" in str(result.value)


def test_only_who_holds_a_file_is_its_holder_not_who_waits_for_it() -> None:
    locks = (
        "1: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:131 0 EOF\n"
        "2: FLOCK  ADVISORY  READ 4713 fe:01:132 0 EOF\n"
        "3: POSIX  ADVISORY  WRITE 4714 fe:01:131 0 EOF\n"
        "4: FLOCK  ADVISORY  READ 0 fe:01:133 0 EOF\n"
    )
    device = os.makedev(0xFE, 1)
    assert pids_of(locks, device, 131) == [4711]
    assert pids_of(locks, device, 133) == [0]
    assert pids_of(locks, device, 9) == []


def test_a_check_run_makes_no_directory(tmp_path: Path) -> None:
    with fencing.hold_node(str(tmp_path / "none"), check=True):
        assert not (tmp_path / "none").exists()


def test_mountinfo_is_read_with_its_escapes() -> None:
    text = "36 35 98:0 /a /mnt/with\\040space rw master:1 - tmpfs none rw,size=4k\n37 1 8:1 / / rw - ext4 /dev/x rw\n"
    found = mounts.parse_mountinfo(text)
    assert found[0] == mounts.Mount("/mnt/with space", "tmpfs", "rw,size=4k", "none")
    assert [each.point for each in mounts.under("/", found)] == ["/mnt/with space", "/"]


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x1c", "\x85", "\u2028", "\r\x0c"])
def test_a_mount_point_with_what_ends_lines_elsewhere_is_one(end: str) -> None:
    text = f"36 35 8:1 / /mnt/a{end}b\\043\\134040 rw - tmpfs none rw\n37 1 8:2 / / rw - ext4 /dev/x rw,prjquota\n"
    assert [each.point for each in mounts.parse_mountinfo(text)] == [f"/mnt/a{end}b#\\040", "/"]
    assert project_quotas.enforces(text, os.makedev(8, 2))
    assert not project_quotas.enforces(text, os.makedev(8, 1))


def test_rules_are_read_from_what_the_tools_print() -> None:
    nft = "table ip minik8s_pods {\n\tchain br-a {\n\t\ttype nat hook x;\n\t\tip saddr 1.2.3.0/24 masquerade\n\t}\n}\n"
    assert netfilter.parse_chains(nft) == {"br-a": ["type nat hook x;", "ip saddr 1.2.3.0/24 masquerade"]}
    accepted = '-A FORWARD -o br-a -m comment --comment "minik8s/n1/br-a" -j ACCEPT'
    printed = f"-P FORWARD DROP\n-A FORWARD -i x -j ACCEPT\n{accepted}\n"
    assert netfilter.parse_forward("n1", printed) == {"br-a": netfilter.forward_rules("n1", "br-a")[:1]}
    assert netfilter.parse_forward("n2", printed) == {}
    rules = {"br-a": [netfilter.HOOK, netfilter.masquerade_rule("n1", "10.1.0.0/24", "10.1.0.0/16")], "br-b": []}
    assert netfilter.chains_of("n1", rules) == ["br-a"]
    assert len(netfilter.mark_of("x" * 253)) < 64


def test_the_link_name_fits_and_tells_the_pod() -> None:
    assert attachment.link_name("4AB1c2d3-0000-4000-8000-000000000001") == "mk8s-4ab1c2d3"
    assert len(attachment.link_name("mirror-pod-of-some-file")) == 13


def test_an_observation_has_the_contracts_fields() -> None:
    labels = {
        "minik8s.io/type": "app",
        "minik8s.io/pod-uid": "u",
        "minik8s.io/container": "c",
        "minik8s.io/attempt": "3",
    }
    inspect: dict[str, Any] = {
        "Id": "abc",
        "Name": "/mk8s_c",
        "Created": "2026-01-02T03:04:05.6Z",
        "Image": "sha256:1",
        "Config": {"Image": "busybox", "Labels": labels},
        "State": {
            "Status": "exited",
            "ExitCode": 3,
            "OOMKilled": True,
            "Error": "",
            "StartedAt": "2026-01-02T03:04:06Z",
            "FinishedAt": "0001-01-01T00:00:00Z",
        },
    }
    assert observation_from_inspect(inspect) == {
        "id": "abc",
        "name": "mk8s_c",
        "type": "app",
        "pod_uid": "u",
        "pod_name": "",
        "pod_namespace": "",
        "container": "c",
        "attempt": 3,
        "state": "exited",
        "exit_code": 3,
        "oom_killed": True,
        "error": "",
        "created_at": "2026-01-02T03:04:05.6Z",
        "started_at": "2026-01-02T03:04:06Z",
        "finished_at": "",
        "image": "busybox",
        "image_id": "sha256:1",
        "ip": "",
        "message": None,
        "message_source": "",
        "oom_source": "",
    }
