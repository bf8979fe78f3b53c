"""``minik8s virtual-node``: what its options say, as the daemon's file would."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import parse
from minik8s_modules.cli.virtual_nodes import configuration, without_token
from minik8s_modules.virtual.wishes import wishes_of

WORDS = ["virtual-node", "--provider", "mock", "--node-name", "far"]


def test_the_options_are_a_configuration(tmp_path: Path) -> None:
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "mock.yml"
    kubeconfig.touch()
    config.write_text("cpu: '3'\n")
    words = ["--config", str(config), "--label", "zone=b", "--label", "kubernetes.io/role=", "--disable-taint"]
    said = configuration(parse([*WORDS, *words, "--kubeconfig", str(kubeconfig), "--state-dir", str(tmp_path)]))
    (wish,) = wishes_of(said.rows("nodes"), said.file)
    assert (wish.name, wish.provider, wish.taint, wish.config) == ("far", "mock", False, {"cpu": "3"})
    assert wish.labels == {"zone": "b", "kubernetes.io/role": ""}
    assert said.text("kubeconfig") == str(kubeconfig)
    assert said.text("state_dir") == str(tmp_path / "nodes")
    assert not said.has("serving")


def test_a_node_that_has_joined_serves_with_its_own_certificate(tmp_path: Path) -> None:
    said = configuration(parse([*WORDS, "-j", "192.0.2.1", "--state-dir", str(tmp_path)]), tmp_path / "agent")
    assert said.text("kubeconfig") == str(tmp_path / "agent" / "kubeconfig")
    assert said.text("serving.cert") == said.text("serving.key") == str(tmp_path / "agent" / "serving.pem")
    assert said.host_and_port("serving.listen") == ("0.0.0.0", 10250)


def test_a_label_without_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        configuration(parse([*WORDS, "--label", "zone"]))


def test_the_command_starts_over_without_its_token() -> None:
    assert without_token(["a", "--token", "id.secret", "-j", "x"]) == ["a", "-j", "x"]
    assert without_token(["a", "--token=id.secret", "--token-file", "f"]) == ["a", "--token-file", "f"]


@pytest.mark.parametrize("option", ["--token=abcdef.0123456789abcdef", "--token-file=-", "--ca-hash=sha256:00"])
def test_what_a_node_joins_by_asks_for_the_cluster_that_it_joins(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = parse([*WORDS, option])
    with pytest.raises(SystemExit) as end:
        options.command(None, options)
    assert end.value.code == 2
    assert "give -j SERVER" in capsys.readouterr().err
