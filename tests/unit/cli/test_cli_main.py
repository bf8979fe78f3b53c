"""The command line: own commands explain themselves, wrong use is told in a line, the rest is kubectl's."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.base.clock import SystemClock
from minik8s_modules.cli import completing, kubectl
from minik8s_modules.cli.causes.why import why
from minik8s_modules.cli.commands import build_parser
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import OWN, main, own_words, parse
from minik8s_modules.client.fake import FakeApi


@pytest.mark.parametrize("command", sorted(OWN))
def test_every_own_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args([command, "--help"])
    assert end.value.code == 0
    assert command in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("why pod -n shop web", ["pod", "web"]),
        ("why -n shop pod web", ["pod", "web"]),
        ("why pod web -n shop db", ["pod", "web", "db"]),
        ("drift --detailed-exitcode n1 n2", ["n1", "n2"]),
    ],
)
def test_names_may_stand_on_either_side_of_options(line, words):
    assert parse(line.split()).words == words


@pytest.mark.parametrize(
    ("line", "command"), [("why pods --nope", "why"), ("token list now", "token list"), ("plan -f web.yml web", "plan")]
)
def test_what_no_own_command_takes_is_refused(line, command, capsys):
    with pytest.raises(SystemExit) as end:
        parse(line.split())
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert f"minik8s {command}: error: unrecognized arguments" in told
    assert told.startswith(f"usage: minik8s {command} ")


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("apply -f web.yml", None),
        ("apply -f web.yml --plan", "plan -f web.yml --apply"),
        ("--context c apply --plan -f -", "--context c plan -f - --apply"),
        ("get pods --why -A", "why pods -A --one-line"),
        ("get -n plan pods", None),
        ("-n why get pods", None),
        ("--kubeconfig k drift", "--kubeconfig k drift"),
        ("frobnicate", None),
        ("help", "--help"),
        ("help get", None),
        ("help plan", "plan --help"),
        ("help rollout", "rollout --help"),
        ("help rollout history", None),
        ("", "--help"),
        ("-n shop", "--help"),
        ("token", "token --help"),
        ("--nope", "--nope"),
        ("-n why why pod", "why pod -n why"),
        ("--context c -n=shop why pod", "--context c why pod -n=shop"),
        ("-n shop get pods --why", "why pods -n shop --one-line"),
        ("-n shop apply --plan -f -", "plan -f - -n shop --apply"),
    ],
)
def test_what_is_ours_and_what_is_kubectls(line, own):
    found = own_words(line.split())
    assert found == (None if own is None else own.split())


@pytest.mark.parametrize("line", [[], ["help"], ["token"], ["node"]])
def test_without_anything_to_do_the_help_is_printed(line, capsys):
    with pytest.raises(SystemExit) as end:
        main(line)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: minik8s")


def test_the_kubeconfig_may_stand_before_or_after_the_command():
    assert parse(["--kubeconfig", "k", "drift"]).kubeconfig == "k"
    assert parse(["drift", "--kubeconfig", "k"]).kubeconfig == "k"
    assert parse(["drift"]).kubeconfig == ""


def test_why_without_an_object_says_what_to_name():
    with pytest.raises(UsageError, match="name an object, as in `why pod/web`"):
        why(cast(Any, FakeApi(SystemClock())), parse(["why", "-A"]))


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["--kubeconfig", str(tmp_path / "none"), "drift"]) == 1
    assert f"{tmp_path}/none does not exist" in capsys.readouterr().err


def test_a_missing_kubectl_is_said_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(kubectl, "INSTALLED", tmp_path / "kubectl")
    monkeypatch.setenv("PATH", str(tmp_path))
    for words in (["get", "pods"], ["describe", "pod", "web"], ["rollout", "status", "deploy/web"]):
        assert main(words) == 1
        printed = capsys.readouterr().err
        assert printed.startswith(f"error: kubectl is not installed: there is no {tmp_path}/kubectl and none on PATH; ")
        assert printed.count("\n") == 1


@pytest.mark.parametrize("command", ["completion bash", "init", "inject -f a.yml", "reconciler"])
def test_a_command_that_asks_no_cluster_takes_no_kubeconfig(command, capsys):
    with pytest.raises(SystemExit) as end:
        parse([*command.split(), "--kubeconfig", "k"])
    assert end.value.code == 2
    assert "unrecognized arguments: --kubeconfig" in capsys.readouterr().err
    assert parse(command.split()).offline


def test_help_is_completed_with_the_commands_of_both(monkeypatch):
    monkeypatch.setattr(kubectl, "lines_of", lambda words, _timeout_s: ["get\tDisplay"] if "help" in words else [])
    found = completing.candidates(build_parser(), ["help", ""])
    assert {"get", "plan", "trace"} <= set(found)
    assert completing.candidates(build_parser(), ["get", ""]) == []
