"""The provider ``ansible``: what a Pod becomes and what is refused, and the contract with a program in Ansible's place.

tests/integration/ansible/test_ansible_pods.py has Ansible itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import CHECK, HOSTS, PLAYBOOK, ROLE
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.contract import NoResources, ProviderContract, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import InitConfig, Provider
from minik8s_modules.virtual.providers.ansible_runs.provider import AnsibleProvider
from minik8s_modules.virtual.providers.ansible_runs.requests import RunRequest, asked
from minik8s_modules.virtual.providers.ansible_runs.settings import Settings, read

ROOM = "minik8s_modules.virtual.providers.ansible_runs"
CONTAINER = {"name": "app", "image": IMAGE}


def pod(name: str = "one", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a Pod that names the role ``web``, unless annotations say otherwise."""
    container = CONTAINER | spec.pop("container", {})
    made = new_pod(name, **{"restartPolicy": "Never", "containers": [container], **spec})
    made["metadata"]["annotations"] = annotations if annotations is not None else {ROLE: "web"}
    return made


def configured(folder: Path, **more: Any) -> Settings:
    """Return settings of a group with two hosts, the roles ``web`` and ``db``, and the playbook ``site``."""
    for role in ("web", "db"):
        (folder / "roles" / role).mkdir(parents=True, exist_ok=True)
    (folder / "plays").mkdir(exist_ok=True)
    (folder / "plays" / "site.yml").write_text("[]")
    (folder / "secret.yml").write_text("[]")
    hosts, roles, plays = ("web1", "web2"), folder / "roles", folder / "plays"
    made = Settings(folder / "hosts.yml", "web", hosts, roles, plays, become=False, pods=100, cpu="1", memory="1Gi")
    return made._replace(**more)


class TestContract(ProviderContract):
    """See ProviderContract; each run sleeps."""

    survives_restarts = True
    patience_s = 90.0

    @pytest.fixture(autouse=True)
    def _settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(f"{ROOM}.settings.read", lambda _config: configured(tmp_path))

    def make(self, config: InitConfig) -> Provider:
        """Return a provider whose runs are a program that ends only when told to."""
        return AnsibleProvider(config, _sleeping)

    def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        """Return a Pod that this provider takes."""
        return pod(name, **spec)


def _sleeping(_folder: Path, _request: RunRequest) -> Sequence[str]:
    return ["sleep", "600"]


def test_a_pod_becomes_a_play_of_its_role_with_its_words_as_data(tmp_path: Path) -> None:
    hostile = "{{ lookup('pipe', 'id') }}\n\"quoted\": !unsafe"
    env = [{"name": "GREETING", "value": hostile}, {"name": "EMPTY"}]
    request = asked(pod(annotations={ROLE: "web", HOSTS: "web2", CHECK: "true"}, container={"env": env}),
                    configured(tmp_path, become=True))  # fmt: skip
    assert (request.hosts, request.check, request.playbook) == (("web2",), True, None)
    (play,) = yaml.safe_load(request.play)
    assert play == {"name": "Pod default/one", "hosts": ["web2"], "become": True, "roles": [{"role": "web"}]}

    class Loader(yaml.SafeLoader):
        """Knows the tag."""

    def unsafe(loader: Loader, node: yaml.Node) -> tuple[str, object]:
        assert isinstance(node, yaml.ScalarNode)
        return "unsafe", loader.construct_scalar(node)

    Loader.add_constructor("!unsafe", unsafe)
    told = yaml.load(request.variables, Loader)["minik8s_pod"]
    assert told["env"] == {"GREETING": ("unsafe", hostile), "EMPTY": ("unsafe", "")}
    assert (told["name"], told["namespace"]) == ("one", "default")


def test_a_playbook_is_one_of_the_folder(tmp_path: Path) -> None:
    request = asked(pod(annotations={PLAYBOOK: "site"}), configured(tmp_path))
    assert (request.playbook, request.play, request.hosts) == (tmp_path / "plays" / "site.yml", "", ("web1", "web2"))


@pytest.mark.parametrize(
    ("annotations", "spec", "words"),
    [
        ({}, {}, "name exactly one"),
        ({ROLE: "web", PLAYBOOK: "site"}, {}, "name exactly one"),
        ({ROLE: "mail"}, {}, "there are db, web"),
        ({ROLE: "../secret"}, {}, "there are db, web"),
        ({ROLE: "web/../db"}, {}, "there are db, web"),
        ({PLAYBOOK: "../secret"}, {}, "there are site"),
        ({PLAYBOOK: "/etc/passwd"}, {}, "there are site"),
        ({ROLE: "web", HOSTS: "web1,other"}, {}, "'other' is no host of the group web"),
        ({ROLE: "web", HOSTS: "all"}, {}, "'all' is no host"),
        ({ROLE: "web", HOSTS: "web1:!web2"}, {}, "is no host"),
        ({ROLE: "web", CHECK: "yes"}, {}, 'must be "true" or "false"'),
        (None, {"restartPolicy": "Always"}, "restartPolicy"),
        (None, {"container": {"image": "alpine:3"}}, "no image runs"),
        (None, {"container": {"command": ["id"]}}, "containers\\[0\\].command"),
        (None, {"container": {"env": [{"name": "a.b", "value": "x"}]}}, "no variable of such a name"),
        (None, {"container": {"volumeMounts": [{"name": "data", "mountPath": "/d"}]}}, "no volumes"),
        (None, {"initContainers": [CONTAINER]}, "initContainers"),
        (None, {"activeDeadlineSeconds": 5}, "activeDeadlineSeconds"),
        (None, {"containers": [CONTAINER, CONTAINER]}, "one container"),
    ],
)
def test_what_is_no_run_is_refused_by_name(
    tmp_path: Path, annotations: dict[str, str] | None, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        asked(pod(annotations=annotations, **spec), configured(tmp_path))


def test_a_role_that_is_only_a_link_out_of_the_folder_is_the_administrators(tmp_path: Path) -> None:
    """Who may write the folder decides what is in it; a Pod only chooses."""
    settings = configured(tmp_path)
    (tmp_path / "roles" / "linked").symlink_to(tmp_path / "roles" / "web")
    assert yaml.safe_load(asked(pod(annotations={ROLE: "linked"}), settings).play)[0]["roles"] == [{"role": "linked"}]


def test_a_run_that_has_begun_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ROOM}.settings.read", lambda _config: configured(tmp_path))
    provider = AnsibleProvider(InitConfig("n", NoResources(), state_dir=str(tmp_path / "state")), _sleeping)
    first = pod()
    provider.create_pod(first)
    labelled = {**first, "metadata": {**first["metadata"], "labels": {"a": "b"}}}
    provider.update_pod(labelled)
    assert provider.get_pod("default", "one")["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(InvalidInput, match="is not changed"):
        provider.update_pod({**first, "metadata": {**first["metadata"], "annotations": {ROLE: "db"}}})
    provider.delete_pod(first)
    provider.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"group": "web", "roles": "roles"}, "inventory"),
        ({"inventory": "hosts.yml", "group": "web"}, "say what Pods may be"),
        ({"inventory": "hosts.yml", "group": "web", "roles": "nowhere"}, "is no folder"),
        ({"inventory": "hosts.yml", "group": "mail", "roles": "roles"}, "no host is in the group mail"),
        ({"inventory": "hosts.yml", "group": "web", "roles": "roles", "colour": "red"}, "colour is not a setting"),
    ],
)
def test_a_configuration_that_cannot_be_used_says_why(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    configured(tmp_path)
    (tmp_path / "hosts.yml").write_text("web: {children: {front: {hosts: {web1: {}, web2: {}}}}}")
    config = InitConfig("n", NoResources(), said, config_path=str(tmp_path / "ansible.yml"))
    with pytest.raises(ConfigurationError, match=words):
        read(config)
